"""How an image's build is shown: one line that changes on a terminal, one line a step elsewhere."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable

from runner.frontends.safe import safe, safe_line
from runner.frontends.terminal import Output as Stream
from runner.frontends.terminal import Styled, painted
from runner.images.events import Event, Note, Output, Ready, Step

LOG_LINES = 40
"""Lines of output that are kept for a failure."""
LINE_LIMIT = 2000
"""Characters of one line of output that are kept."""
REDRAW_SECONDS = 0.1


class BuildProgress:
    """A `Progress` for `images.ensure`. Call `failed` when the build failed, for the log's end.

    Args:
        stream: usually stderr.
        clock: seconds, monotonic.
    """

    def __init__(self, stream: Stream, clock: Callable[[], float] = time.monotonic):
        self._stream = stream
        self._clock = clock
        self._live = stream.terminal and stream.colour
        self._step: Step | None = None
        self._since = 0.0
        self._drawn = -1.0
        self._shown = False
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._partial = ""

    def __call__(self, event: Event) -> None:
        """Take one event of the build."""
        match event:
            case Step():
                self._step, self._since = event, self._clock()
                self._end_output()
                self._log.clear()
                if self._live:
                    self._draw("")
                else:
                    self._stream.lines([Styled(_step(event), "dim")])
            case Output(text):
                self._output(text)
            case Note(text):
                self._print(Styled(safe_line(text), "dim"))
            case Ready(tag, seconds):
                self._print(Styled(f"image {safe_line(tag)} is ready ({seconds:.0f} s)", "dim"))

    def failed(self) -> None:
        """The build failed: the step it failed in, and the end of that step's output."""
        self._end_output()
        self._clear()
        if self._step is not None:
            self._stream.lines([Styled(f"failed in {_step(self._step)}", "red")])
        self._stream.lines(Styled(f"  | {line}", "dim") for line in self._log)

    def log(self) -> str:
        """The end of the running step's output, safe to show."""
        return "\n".join(self._log)

    def _output(self, text: str) -> None:
        *ended, self._partial = (self._partial + text).split("\n")
        self._partial = self._partial[:LINE_LIMIT]
        self._log.extend(_line(each) for each in ended[-LOG_LINES:])
        if self._live and self._step is not None and self._clock() - self._drawn >= REDRAW_SECONDS:
            self._draw(self._log[-1] if self._log else "")

    def _end_output(self) -> None:
        if self._partial:
            self._log.append(_line(self._partial))
            self._partial = ""

    def _draw(self, output: str) -> None:
        assert self._step is not None
        self._drawn = self._clock()
        seconds = self._drawn - self._since
        text = _step(self._step) + (f" {seconds:.0f} s" if seconds >= 1 else "")
        text += f" · {output}" if output else ""
        self._stream.write(
            "\r\x1b[K" + painted(Styled(_fit(text, shutil.get_terminal_size().columns - 1), "dim"), True)
        )
        self._shown = True

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._shown = False

    def _print(self, line: Styled) -> None:
        self._clear()
        self._stream.lines([line])


def _step(step: Step) -> str:
    return f"[{step.number}/{step.total}] {safe_line(step.text, 200)}"


def _line(text: str) -> str:
    # Of a line that a program drew over itself, the last state counts.
    return safe(text.rstrip("\r").rpartition("\r")[2][:LINE_LIMIT])


def _fit(text: str, columns: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += 1 if character < "\u0300" else 2
        if used > columns:
            return text[:index]
    return text
