"""Git on the host, in a user's repository, with nothing of the repository's own that would run a program.

As the repository's owner when this is root: git refuses the repository of another, and what it says should not act as
root. Where the owner cannot reach the folder (a path below `/root`), as root after all.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from runner.errors import UsageError

GIT_WITHIN = 600.0
"""Seconds for one command."""
_QUIET = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.alternateRefsCommand=true", "gc.auto=0")


def environment() -> dict[str, str]:
    """Git's variables without anything of the user's or the system's."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        # Missing objects would be fetched from wherever the repository's configuration says, by whatever it says.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C.UTF-8",
    }


class HostGit:
    """Runs git in one folder.

    Args:
        source: the work tree.
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        self._settings = list(_QUIET)
        self.owner: tuple[int, int] | None = None
        """Uid and gid that git runs as, when not this process's own."""
        found = source.stat()
        if os.geteuid() == 0 and found.st_uid != 0:
            owner = found.st_uid, found.st_gid
            if self._start(["test", "-x", str(source)], _identity(owner)).returncode == 0:
                self.owner = owner
            else:
                self._settings.append("safe.directory=*")  # a worktree's own repository lies elsewhere

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        return ["git", *(word for setting in self._settings for word in ("-c", setting)), *arguments]

    def run(self, *arguments: str, input: bytes = b"", codes: tuple[int, ...] = (0,)) -> bytes:
        """What git says on stdout.

        Raises:
            UsageError: it ended with another code than `codes`, or could not be run.
        """
        try:
            done = self._start(self.command(*arguments), _identity(self.owner), input)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"git {arguments[0]} failed: {error}", place=str(self._source)) from None
        if done.returncode not in codes:
            raise UsageError(
                f"git {arguments[0]} failed in the workspace",
                place=str(self._source),
                log=done.stderr.decode("utf-8", "replace").strip()[-2000:],
            )
        return done.stdout

    def _start(
        self, command: list[str], identity: dict[str, Any], input: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        found: subprocess.CompletedProcess[bytes] = subprocess.run(
            command,
            # As another user, the folder may not be reachable: git goes there by itself.
            cwd="/" if command[0] == "test" else self._source,
            env=environment(),
            input=input,
            capture_output=True,
            timeout=GIT_WITHIN,
            check=False,
            **identity,
        )
        return found


def _identity(owner: tuple[int, int] | None) -> dict[str, Any]:
    return {"user": owner[0], "group": owner[1], "extra_groups": []} if owner else {}
