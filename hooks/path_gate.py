#!/usr/bin/env python3
"""preToolCall: denies writes under the folders given as arguments.

Usage: `python3 "$SBX_HOOKS_DIR/path_gate.py" FOLDER…`, relative ones in the workspace. Without a folder it denies every
call: a gate whose list got lost must not stand open.

A path is judged as the file system would take it: `.` and `..` folded in order, links followed, also those that point
at nothing yet. Calls of the file tools are judged by the paths in their input. A shell command is parsed; it is denied
when a word or a redirection of it lies under such a folder, unless the program only reads (`cat`, `ls`, `grep`, …).
A program that has the path inside (`python3 script.py`) is not seen: a mount that is read-only holds there.
"""

import errno
import os
import sys

from hook_io import HookError, folder_of, serve, tool_of

PATH_KEYS = frozenset(
    "path file_path filepath file filename notebook_path target destination new_path old_path folder directory dir "
    "paths files".split()
)
READING_TOOLS = frozenset("read read_file view list ls glob grep search Read LS Glob Grep".split())
READERS = frozenset(
    "cat cd cmp cut diff du echo egrep fgrep file grep head jq less ls md5sum more nl printf pwd readlink realpath rg "
    "sha256sum stat tail test [ [[ tree true wc".split()
)
TAKES_FOLDERS = frozenset("rm rmdir mv chmod chown find rsync git".split())
"""Programs that reach what lies under the folder they are given."""
MOST_LINKS = 40
DEEPEST = 6


def resolved(path, links=0):
    """Where a write to `path` would land.

    Raises:
        HookError: a link or folder on the way cannot be read, so nobody knows.
    """
    if links > MOST_LINKS:
        raise HookError("a path goes through too many links")
    if "\0" in path:
        raise HookError("a path holds a NUL")
    at = "/"
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        following = os.path.join(at, part)
        try:
            target = os.readlink(following)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                raise HookError("a path cannot be followed") from error
            at = following  # no link, or not there yet
        else:
            at = resolved(os.path.join(at, target), links + 1)
    return at


def inside(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Gate:
    def __init__(self, folders, workspace):
        self.workspace = workspace
        self.folders = [resolved(os.path.join(workspace, folder)) for folder in folders]

    def check_path(self, path, base=None, *, around=False):
        """Raises PermissionError when `path` lies under a closed folder, or, with `around`, holds one."""
        where = resolved(os.path.join(base or self.workspace, os.path.expanduser(path) if path[:1] == "~" else path))
        for folder in self.folders:
            if inside(where, folder) or (around and inside(folder, where)):
                raise PermissionError

    def check_input(self, value, key=""):
        if isinstance(value, str):
            if key in PATH_KEYS and value:
                self.check_path(value)
        elif isinstance(value, list):
            for item in value:
                self.check_input(item, key)
        elif isinstance(value, dict):
            for name, item in value.items():
                self.check_input(item, str(name).lower())

    def check_command(self, text, depth=0):
        from shell_parser import UNKNOWN, CannotParse, pipelines

        if depth > DEEPEST:
            raise HookError("the command is nested too deeply to be checked")
        try:
            commands = [command for pipeline in pipelines(text) for command in pipeline]
        except CannotParse as error:
            raise HookError("the command cannot be parsed, so it cannot be checked") from error
        bases = [self.workspace]
        for command in commands:
            words = [word.text for word in command.words]
            if words[:1] in (["cd"], ["pushd"]) and len(words) > 1:
                if UNKNOWN in words[-1]:
                    raise HookError("the folder of the command is only known when it runs")
                bases.append(os.path.join(bases[-1], os.path.expanduser(words[-1])))
        for command in commands:
            words = [word.text for word in command.words]
            name = os.path.basename(words[0]) if words else ""
            texts = [] if name in READERS else words[1:]
            # Redirections write whatever the program is; `dd of=FILE` and `--output=FILE` hold a path behind a sign.
            texts += [word.text for word in command.assignments if word is not command.stdin]
            for written in texts:
                for part in {written, written.rpartition("=")[2]}:
                    # What is not known ends the path: the folder before it is judged.
                    for base in bases:
                        if part and len(part) < 4096:
                            self.check_path(part.partition(UNKNOWN)[0] or ".", base, around=name in TAKES_FOLDERS)
            for word in command.words + command.assignments:
                for script in word.scripts:
                    self.check_command(script, depth + 1)
            if name in ("sh", "bash", "dash", "eval"):
                for word in words[1:]:
                    if not word.startswith("-") and (" " in word or ">" in word):
                        self.check_command(word.replace(UNKNOWN, "."), depth + 1)
            if name in ("sh", "bash", "dash") and command.stdin is not None:
                self.check_command(command.stdin.text.replace(UNKNOWN, "."), depth + 1)


def main():
    folders = sys.argv[1:]

    def handle(event):
        if not folders or not all(folders):
            raise HookError("it was given no folders to close, so it closes everything")
        name, arguments = tool_of(event)
        gate = Gate(folders, folder_of(event))
        try:
            if name in ("bash", "Bash") or set(arguments) == {"command"}:
                if not isinstance(arguments.get("command"), str):
                    raise HookError("the call has no command")
                gate.check_command(arguments["command"])
            elif name not in READING_TOOLS:
                gate.check_input(arguments)
        except ImportError as error:
            raise HookError("its shell parser (bashlex) is not installed") from error
        except PermissionError:
            return {"action": "deny", "reason": f"writes under {', '.join(folders)} are not allowed"}
        return None

    serve("path_gate", handle, failing="deny")


if __name__ == "__main__":
    main()
