"""Lines typed into the REPL, kept between sessions: only those that the hooks let pass.

A line enters when the session says that it became a question, in the form it had then; never when it is typed. So a
question that a hook stops, or a secret that a hook takes out of one, is neither on the disk nor an arrow key away.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from prompt_toolkit.history import FileHistory

from runner.session.state import private

LARGEST = 4 * 1024 * 1024
"""Bytes of the file above which it is begun anew with its newer half."""


class PassedHistory(FileHistory):
    """History in `path`, mode 0600, in prompt_toolkit's own format."""

    def __init__(self, path: Path):
        super().__init__(str(path))
        self._path = path
        self._bound()

    def append_string(self, string: str) -> None:
        """What prompt_toolkit calls with every line that was typed: nothing is kept."""

    def passed(self, line: str) -> None:
        """Keep a line that became a question."""
        if not line.strip() or (self._loaded_strings and self._loaded_strings[0] == line):
            return
        super().append_string(line)

    def store_string(self, string: str) -> None:
        entry = [f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n", *(f"+{line}\n" for line in string.split("\n"))]
        content = "".join(entry).encode("utf-8", "replace")
        try:
            private(self._path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)
        except OSError:
            # A full disk costs the arrow keys of the next session, not this one.
            return

    def _bound(self) -> None:
        try:
            if self._path.stat().st_size <= LARGEST:
                return
            content = self._path.read_bytes()
            start = content.find(b"\n# ", len(content) // 2)
            fresh = self._path.with_name(self._path.name + ".new")
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content[start:] if start >= 0 else b"")
            fresh.replace(self._path)
        except OSError:
            return
