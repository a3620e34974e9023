"""A program on a pseudo terminal, driven as a person would: type, and wait until something is shown."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path

import tests

ROOT = Path(tests.__file__).parents[1]
PATIENCE = 20.0
"""Seconds until a thing that is waited for counts as not coming."""
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")

PIECE = re.compile(ESCAPE.pattern + "|.", re.DOTALL)
MOVE = re.compile(r"\x1b\[(\d*)([ABCDGJK])")


class TerminalProgram:
    """`raw` is everything the terminal was sent, `text` the same without escape sequences."""

    def __init__(self, module: str, arguments: Sequence[str], rows: int = 40, columns: int = 100):
        self.raw = ""
        self._at = 0
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(ROOT)
            os.environ.update(TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", PYTHONUTF8="1")
            os.environ.pop("NO_COLOR", None)
            os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def text(self) -> str:
        return ESCAPE.sub("", self.raw)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    @property
    def screen(self) -> str:
        """What stands on the terminal, as far as a prompt moves its cursor: the last line is the prompt's."""
        lines: list[list[str]] = [[]]
        row = column = 0
        for match in PIECE.finditer(self.raw):
            piece = match.group()
            move = MOVE.fullmatch(piece)
            count = int(move.group(1) or 1) if move else 0
            match move.group(2) if move else "text" if piece in "ABCDGJK" else piece:
                case "A":
                    row = max(0, row - count)
                case "B":
                    row += count
                case "C":
                    column += count
                case "D" | "\b":
                    column = max(0, column - max(count, 1))
                case "G":
                    column = count - 1
                case "\r":
                    column = 0
                case "\n":
                    row += 1
                case "J":
                    del lines[row + 1 :], lines[row][column:]
                case "K":
                    del lines[row][column:]
                case kind if not kind.startswith("\x1b"):
                    line = lines[row]
                    line.extend(" " * (column + 1 - len(line)))
                    line[column] = piece
                    column += 1
            lines.extend([] for _ in range(row + 1 - len(lines)))
        return "\n".join("".join(line).rstrip() for line in lines)

    def has_on_screen(self, words: str) -> None:
        """Wait until `words` stand on the terminal."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.screen:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{words!r} is not on the screen:\n{self.screen}")

    def interrupt(self) -> None:
        os.kill(self._pid, signal.SIGINT)

    def sees(self, words: str) -> str:
        """Wait until `words` are shown after what was seen before; returns the text up to them."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.text.find(words, self._at)) < 0:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{words!r} is not shown; shown: {self.text[self._at :]!r}")
        seen = self.text[self._at : found]
        self._at = found + len(words)
        return seen

    def ends(self) -> int:
        """Wait until the program is over; returns its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline - time.monotonic()):
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"the program does not end; shown: {self.text[self._at :]!r}")
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
