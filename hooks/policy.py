#!/usr/bin/env python3
"""preToolCall: allow and deny lists for tool calls; shell commands are parsed, and what cannot be parsed is denied.

Usage: `python3 "$SBX_HOOKS_DIR/policy.py" [RULES.json]`; without an argument the rules are `policy.json` beside this
file.

    {"tools":    {"allow": ["*"], "deny": ["fetch_*"]},            names of tools, shell patterns; deny wins
     "commands": {"allow": ["*"],                                  names of programs, shell patterns
                  "deny": [{"name": "rm",                          a rule: the program's name,
                            "first": ["clean"],                    its first word that is no option, when given,
                            "options": ["-r", "--recursive"],      any of these options, when given,
                            "words": ["-delete"],                  or any word like these;
                            "reason": "…"}]},
     "code":     {"deny": [{"pattern": "rmtree", "reason": "…"}]}} programs in other languages: a regular expression

A rule is matched against every command at any depth: in pipes, substitutions, functions, here-documents that feed a
shell, behind `env`, `xargs`, `find -exec`, `sh -c`, `eval`. Where a word is not known before the command runs and
could make a rule match, the call is denied and the reason tells how to write it plainly. A guard by patterns stops
mistakes and plain attempts. What a file or another language's program does when it runs it cannot know: the container
is the boundary.
"""

import json
import os
import re
import shlex
import sys
from fnmatch import fnmatchcase

from hook_io import HookError, serve, tool_of

DEEPEST = 12
"""Scripts in scripts."""
LONGEST = 256 * 1024
"""Characters of a command that is parsed."""

UNKNOWN = "\0"
"""As `shell_parser.UNKNOWN`; that module is imported only for calls that are a shell's."""

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"}
INTERPRETERS = {"python", "perl", "ruby", "node", "nodejs", "php", "lua", "awk", "gawk", "mawk", "tclsh", "deno", "bun"}
STRINGS = {"eval": 0, "trap": 1}
"""Builtins that run their words as a script, and how many of the last words are none."""

# Programs that run another one: the options of theirs that take the next word, and how many words stand before it.
WRAPPERS = {
    "builtin": ("", 0),
    "busybox": ("", 0),
    "chroot": ("", 1),
    "chrt": ("", 1),
    "command": ("", 0),
    "doas": ("Cu", 0),
    "env": ("uCS", 0),
    "exec": ("a", 0),
    "flock": ("wE", 1),
    "ionice": ("cnp", 0),
    "nice": ("n", 0),
    "nohup": ("", 0),
    "nsenter": ("tSG", 0),
    "parallel": ("jI", 0),
    "runuser": ("ug", 0),
    "setpriv": ("", 0),
    "setsid": ("", 0),
    "ssh": ("bcDEeFIiJLlmOopQRSWw", 1),
    "stdbuf": ("ioe", 0),
    "strace": ("eopPuEs", 0),
    "sudo": ("ugpChrtTUD", 0),
    "taskset": ("", 1),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
    "toybox": ("", 0),
    "unshare": ("", 0),
    "watch": ("nq", 0),
    "xargs": ("aEIiLlnPsd", 0),
}
RUNS_TEXT = {"watch", "ssh", "parallel"}
"""Wrappers that hand their words to a shell as one text."""


class Denied(Exception):
    """Why the call is not allowed."""


class Policy:
    def __init__(self, rules):
        try:
            self.tools_allowed = _texts(rules.get("tools", {}).get("allow", ["*"]))
            self.tools_denied = _texts(rules.get("tools", {}).get("deny", []))
            self.allowed = _texts(rules.get("commands", {}).get("allow", ["*"]))
            self.denied = [Rule(rule) for rule in rules.get("commands", {}).get("deny", [])]
            code = rules.get("code", {}).get("deny", [])
            self.code = [(re.compile(rule["pattern"]), str(rule["reason"])) for rule in code]
        except (AttributeError, KeyError, TypeError, re.error) as error:
            raise HookError("its rules are not what they should be") from error

    def judge(self, name, arguments):
        """Raises Denied when a tool call is not allowed."""
        if any(fnmatchcase(name, pattern) for pattern in self.tools_denied):
            raise Denied("the tool is not allowed")
        if not any(fnmatchcase(name, pattern) for pattern in self.tools_allowed):
            raise Denied("the tool is not among the allowed ones")
        command = arguments.get("command")
        if name in ("bash", "Bash"):
            if not isinstance(command, str):
                raise Denied("the call has no command")
            self.script(command, 0)

    def script(self, text, depth):
        from shell_parser import CannotParse, pipelines

        if depth > DEEPEST:
            raise Denied("the command is nested too deeply to be checked; write it plainly")
        if len(text) > LONGEST:
            raise Denied("the command is too long to be checked; write it to a file in parts")
        if UNKNOWN in text:
            raise Denied("a script is made of text that is only known when it runs; write it plainly")
        try:
            found = pipelines(text)
        except CannotParse as error:
            raise Denied("the command cannot be parsed, so it cannot be checked; write it in plainer shell") from error
        for pipeline in found:
            self.pipeline(pipeline, depth)

    def pipeline(self, pipeline, depth):
        feeding = None  # the stage before, when there is one
        for command in pipeline:
            for word in command.words + command.assignments:
                for script in word.scripts:
                    self.script(script, depth + 1)
            if command.words:
                self.command(_texts_of(command.words), command.stdin, feeding, depth)
            feeding = command

    def command(self, words, stdin, feeding, depth):
        """One command as `words`, with `UNKNOWN` in what is not known."""
        name = os.path.basename(words[0])
        if UNKNOWN in words[0] or re.search(r"[*?]|\[.", words[0].removeprefix("[[")):
            raise Denied("which program runs is only known when it runs; write its name plainly")
        if not any(fnmatchcase(name, pattern) for pattern in self.allowed):
            raise Denied(f"the program {_shown(name)} is not among the allowed ones")
        arguments = words[1:]
        for rule in self.denied:
            rule.check(name, arguments)
        if depth > DEEPEST:
            raise Denied("the command is nested too deeply to be checked; write it plainly")

        if name == "find" or name in ("fd", "fdfind"):
            for inner in _executed(name, arguments):
                self.command(inner, None, None, depth + 1)
        elif name in WRAPPERS:
            self.wrapped(name, arguments, stdin, feeding, depth)
        elif name in STRINGS:
            signals = STRINGS[name] if len(arguments) > 1 else 0
            self.script(" ".join(arguments[: len(arguments) - signals]), depth + 1)
        elif name == "alias":
            for word in arguments:
                self.script(word.partition("=")[2], depth + 1)
        elif name in SHELLS or (name == "su" and any(word.startswith("-c") for word in arguments)):
            self.shell(arguments, stdin, feeding, depth)
        elif name.rstrip("0123456789.") in INTERPRETERS:
            self.program(arguments, stdin, feeding)

    def wrapped(self, name, arguments, stdin, feeding, depth):
        if name == "env":
            for at, word in enumerate(arguments):
                text = re.fullmatch(r"(?:-S|--split-string=?)(.*)", word, re.DOTALL)
                if text:
                    rest = arguments[at + 1 :]
                    self.script(text[1] or (rest.pop(0) if rest else ""), depth + 1)
                    return
        inner = _unwrapped(name, arguments)
        if not inner:
            return
        if name in RUNS_TEXT:
            self.script(" ".join(inner), depth + 1)
            return
        if name == "xargs":
            # What it reads is put behind the command's own words.
            inner = [*inner, UNKNOWN]
        self.command(inner, stdin, feeding, depth + 1)

    def shell(self, arguments, stdin, feeding, depth):
        for at, word in enumerate(arguments):
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word):
                rest = [text for text in arguments[at + 1 :] if not text.startswith("-")]
                if rest:
                    self.script(rest[0], depth + 1)
                return
            if UNKNOWN in word and (word.startswith(UNKNOWN) or word.startswith("-")):
                raise Denied("what a shell is told to run is only known when it runs; write it plainly")
            if not word.startswith(("-", "+")):
                return  # a script in a file
        if stdin is not None:
            self.script(stdin.text, depth + 1)
        elif feeding is not None:
            text = _printed(feeding)
            if text is None:
                raise Denied("a shell that reads its script from a pipe cannot be checked; write the commands plainly")
            self.script(text, depth + 1)

    def program(self, arguments, stdin, feeding):
        """A program in another language: all text that is given to it is searched, nothing is parsed."""
        texts = list(arguments)
        if stdin is not None:
            texts.append(stdin.text)
        if feeding is not None:
            texts.append(_printed(feeding) or "")
        for text in texts:
            for pattern, reason in self.code:
                if pattern.search(text[:LONGEST]):
                    raise Denied(reason)


class Rule:
    """One entry of `commands.deny`."""

    def __init__(self, written):
        self.name = str(written["name"])
        self.first = _texts(written.get("first", []))
        self.options = _texts(written.get("options", []))
        self.words = _texts(written.get("words", []))
        self.reason = str(written.get("reason") or f"{self.name} is not allowed")
        unknown = set(written) - {"name", "first", "options", "words", "reason"}
        if unknown:
            raise KeyError(unknown)

    def check(self, name, arguments):
        if not fnmatchcase(name, self.name):
            return
        if self.first:
            plain = [word for word in arguments if not word.startswith("-")]
            if not plain or not (plain[0] in self.first or UNKNOWN in plain[0]):
                return
        if not self.options and not self.words:
            raise Denied(self.reason)
        for word in arguments:
            if word == "--" and self.options:
                return
            if any(self._is(option, word) for option in self.options) or any(fnmatchcase(word, p) for p in self.words):
                raise Denied(self.reason)
            known = word.partition(UNKNOWN)[0]
            if known != word and (not known or known.startswith("-")):
                raise Denied(
                    f"{self.reason}, and a word of this {_shown(name)} is only known when it runs; "
                    "write it plainly, or put it after --"
                )

    @staticmethod
    def _is(option, word):
        if option.startswith("--"):
            # GNU programs take a long option by its beginning; the shortest that is meant has one letter.
            written = word.partition("=")[0]
            return len(written) > 2 and written.startswith("--") and option.startswith(written)
        return word.startswith("-") and not word.startswith("--") and option[1:] in word[1:]


def _texts(value):
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(value)
    return value


def _texts_of(words):
    """The words' texts; one that an unquoted, known expansion makes several words of comes apart."""
    texts = []
    for word in words:
        texts += word.text.split() or [""] if word.split and word.known else [word.text]
    return texts


def _unwrapped(name, arguments):
    """The command that a wrapper starts."""
    takes_next, before = WRAPPERS[name]
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            separate = re.fullmatch(r"-[A-Za-z]+", word) and word[-1] in takes_next
            at += 2 if separate else 1
        elif name in ("env", "sudo", "doas") and re.match(r"[A-Za-z_]\w*=", word):
            at += 1
        else:
            break
    return arguments[at + before :]


def _executed(name, arguments):
    """The commands of `find -exec` and `fd -x`."""
    starts = {"find": ("-exec", "-execdir", "-ok", "-okdir")}.get(name, ("-x", "-X", "--exec", "--exec-batch"))
    for at, word in enumerate(arguments):
        if word in starts:
            inner = arguments[at + 1 :]
            for end, text in enumerate(inner):
                if text in (";", "+") and name == "find":
                    inner = inner[:end]
                    break
            if inner:
                # A file's name always begins with the folder it was searched in, so it is no option.
                yield [text.replace("{}", "./file") for text in inner]


def _printed(command):
    """What a command prints, when that is plain from its words; else None."""
    if command.stdin is not None and command.words and command.words[0].text == "cat" and len(command.words) == 1:
        return command.stdin.text
    words = _texts_of(command.words)
    if not words or words[0] not in ("echo", "printf") or any(UNKNOWN in word for word in words):
        return None
    if words[0] == "echo":
        while len(words) > 1 and re.fullmatch(r"-[neE]+", words[1]):
            words.pop(1)
        text = " ".join(words[1:])
    elif "%" in words[1:2] or len(words) != 2:
        return None
    else:
        text = words[1]
    unclear = "\\" in text or (words[0] == "printf" and "%" in text)
    return None if unclear else text


def _shown(name):
    return shlex.quote(name[:40].replace("\n", " "))


def main():
    here = os.path.dirname(os.path.realpath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "policy.json")

    def handle(event):
        name, arguments = tool_of(event)
        try:
            with open(path, encoding="utf-8") as file:
                rules = json.load(file)
            if not isinstance(rules, dict):
                raise HookError("its rules are not what they should be")
        except (OSError, ValueError) as error:
            raise HookError("its rules cannot be read") from error
        try:
            Policy(rules).judge(name, arguments)
        except ImportError as error:
            raise HookError("its shell parser (bashlex) is not installed") from error
        except Denied as denied:
            return {"action": "deny", "reason": str(denied)}
        return None

    serve("policy", handle, failing="deny")


if __name__ == "__main__":
    main()
