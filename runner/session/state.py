"""Where `sbx` keeps things on the host: state, configuration and cache, by the XDG base directory specification.

    STATE/sessions/ID/record.jsonl     one session's events
    STATE/sessions/ID/outputs/N-KEY    outputs too large for their line in the record
    STATE/history                      lines typed into the REPL

State holds questions and outputs, so its folders are 0700 and its files 0600.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

APPLICATION = "sbx"
SESSION_ID = re.compile(r"\d{8}-\d{9}-[0-9a-f]{8}")
"""UTC date, time with milliseconds, 32 random bits: sorts by start, and two started in one millisecond differ."""


@dataclass(frozen=True)
class Folders:
    """The three folders of one user. They need not exist; `private` makes what is needed."""

    state: Path
    config: Path
    cache: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None) -> Folders:
        """The folders that `environ` (default: the process's own) names. A relative XDG path is ignored, as the
        specification demands."""
        environ = os.environ if environ is None else environ
        home = Path(environ["HOME"]) if environ.get("HOME", "").startswith("/") else Path.home()

        def folder(variable: str, default: str) -> Path:
            value = environ.get(variable, "")
            return (Path(value) if value.startswith("/") else home / default) / APPLICATION

        return cls(
            state=folder("XDG_STATE_HOME", ".local/state"),
            config=folder("XDG_CONFIG_HOME", ".config"),
            cache=folder("XDG_CACHE_HOME", ".cache"),
        )

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def history(self) -> Path:
        """The file of lines typed into the REPL."""
        return self.state / "history"

    def session(self, session: str) -> Path:
        """The folder of one session. Raises ValueError for what is not a session's id, such as a path."""
        if not SESSION_ID.fullmatch(session):
            raise ValueError(f"not a session id: {session!r}")
        return self.sessions / session


def private(folder: Path) -> Path:
    """Make `folder` and its missing parents, those we make with mode 0700 whatever the umask; returns it."""
    missing = []
    at = folder
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if missing:
        folder.chmod(0o700)
    return folder


def new_session_id(now: float | None = None) -> str:
    """An id that sorts by `now` (seconds since the epoch, default: the clock)."""
    now = time.time() if now is None else now
    whole = int(now)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(whole))
    return f"{stamp}{int((now - whole) * 1000):03d}-{secrets.token_hex(4)}"
