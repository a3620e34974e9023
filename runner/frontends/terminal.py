"""Writing to a stream: colours where they are wanted, no crash where a character or a reader is missing."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from runner.errors import SbxError

_CODES = {"plain": "", "dim": "2", "bold": "1", "red": "31", "yellow": "33", "green": "32"}


@dataclass(frozen=True)
class Styled:
    """One line to show. `text` is safe already; `style` is plain, dim, bold, red, yellow or green."""

    text: str
    style: str = "plain"


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Only a terminal that is not dumb gets colours, and none where NO_COLOR is set to anything (no-color.org)."""
    environ = os.environ if environ is None else environ
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "") != "dumb"


def painted(line: Styled, colour: bool) -> str:
    """The line with its style's codes, or without. Each of several lines is closed by itself, for pagers."""
    code = _CODES[line.style]
    if not (colour and code):
        return line.text
    return "\n".join(f"\x1b[{code}m{each}\x1b[0m" for each in line.text.split("\n"))


class Output:
    """A text stream that people or programs read.

    Characters that its encoding lacks are written as escapes. When its reader is gone, `closed` becomes true and
    what is written goes nowhere, also at the interpreter's exit.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str] | None = None):
        self.stream = stream
        self.closed = False
        self.terminal = stream.isatty()
        self.colour = wants_colour(stream, environ)

    def write(self, text: str) -> None:
        """Write and flush. Raises SbxError where a result cannot be written, such as to a full disk."""
        if self.closed or not text:
            return
        encoding = self.stream.encoding or "utf-8"
        try:
            self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.stream.flush()
        except (BrokenPipeError, ConnectionResetError, ValueError):
            self._give_up()
        except OSError as error:
            self._give_up()
            # The terminal hung up; or it is what nobody needs to read, such as on a full disk.
            if error.errno != errno.EIO and self.stream is not sys.stderr:
                raise SbxError(f"the output cannot be written: {error.strerror}") from None

    def lines(self, lines: Iterable[Styled]) -> None:
        """Write each with a line end."""
        self.write("".join(painted(line, self.colour) + "\n" for line in lines))

    def _give_up(self) -> None:
        self.closed = True
        try:
            # The interpreter flushes once more at exit and would complain about the same pipe.
            fd = self.stream.fileno()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, fd)
            os.close(null)
        except (OSError, ValueError):
            return
