"""What a person sees of a batch: a line that changes on a terminal, one line a result elsewhere, a table at the end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

from runner.errors import ExpectationError, SbxError, TurnError
from runner.frontends.batch.lines import Line
from runner.frontends.batch.results import Result
from runner.frontends.junit import Case
from runner.frontends.safe import safe_line
from runner.frontends.terminal import Output, Styled, painted

REDRAW_SECONDS = 0.1
TABLE_ROWS = 60
"""Most rows of a table that lists every line; a longer one lists only those that failed."""
ID_WIDTH = 32
MESSAGE_WIDTH = 200


class Progress:
    """Tells how far a batch is.

    Args:
        stream: usually stderr.
        total: lines that will run.
        quiet: say nothing.
        clock: seconds, monotonic.
    """

    def __init__(
        self, stream: Output, total: int, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._total = total
        self._quiet = quiet
        self._clock = clock
        self._live = stream.terminal and stream.colour
        self._began = clock()
        self._drawn = -1.0
        self._started = self._done = self._failed = 0

    def start(self, line: Line) -> None:
        """A line begins."""
        self._started += 1
        if self._live and not self._quiet and self._clock() - self._drawn >= REDRAW_SECONDS:
            self._draw()

    def result(self, result: Result) -> None:
        """A line has its result."""
        self._done += 1
        self._failed += not result.ok
        if self._quiet:
            return
        if not self._live:
            self._stream.lines([Styled(f"[{self._done}/{self._total}] {one_line(result)}", _style(result))])
            return
        if not result.ok:
            self.clear()
            self._stream.lines([Styled(one_line(result), "red")])
        if not result.ok or self._done == self._total or self._clock() - self._drawn >= REDRAW_SECONDS:
            self._draw()

    def clear(self) -> None:
        """Takes the changing line away."""
        if self._live and not self._quiet:
            self._stream.write("\r\x1b[K")

    def _draw(self) -> None:
        self._drawn = self._clock()
        seconds = int(self._drawn - self._began)
        text = f"{self._done}/{self._total} done"
        text += f" · {self._failed} failed" if self._failed else ""
        text += f" · {self._started - self._done} running · {seconds // 60}:{seconds % 60:02d}"
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r\x1b[K" + painted(Styled(text, "dim"), True))


def one_line(result: Result) -> str:
    """A result for a log."""
    how = "ok" if result.ok else f"code {result.code}: {safe_line(result.message, MESSAGE_WIDTH)}"
    tries = f", {result.attempts} attempts" if result.attempts > 1 else ""
    return f"{safe_line(result.line.id, ID_WIDTH)} {how} ({result.seconds:.1f} s{tries})"


def table(results: Sequence[Result], missing: Sequence[Line]) -> list[Styled]:
    """The end of a batch, in the order of its file.

    Args:
        results: all that are known.
        missing: lines that have none.
    """
    ok = sum(r.ok for r in results)
    shown = list(results) if len(results) <= TABLE_ROWS else [r for r in results if not r.ok]
    rows = [("line", "id", "code", "seconds", "tries", "")]
    for r in sorted(shown, key=lambda r: r.line.number):
        identity, message = safe_line(r.line.id, ID_WIDTH), safe_line(r.message, MESSAGE_WIDTH)
        rows.append((str(r.line.number), identity, str(r.code), f"{r.seconds:.1f}", str(r.attempts), message))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for index, row in enumerate(rows if len(rows) > 1 else []):
        cells = [
            cell.ljust(width) if column == 1 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        style = "bold" if not index else "plain" if row[2] == "0" else "red"
        lines.append(Styled("  ".join([*cells, row[5]]).rstrip(), style))
    if len(results) > TABLE_ROWS and ok:
        lines.append(Styled(f"({ok} that are ok are not listed)", "dim"))
    text = f"{ok} ok, {len(results) - ok} failed" + (f", {len(missing)} not run" if missing else "")
    lines.append(Styled(text, "green" if ok == len(results) and not missing else "red"))
    return lines


def cases(suite: str, results: Sequence[Result], missing: Sequence[Line]) -> list[Case]:
    """The batch for JUnit, in the order of its file. What the agent did wrong is a failure, all else an error."""
    found = [(r.line.number, _case(suite, r)) for r in results]
    found += [(line.number, Case(line.id, suite, 0.0, skipped="not run")) for line in missing]
    return [case for _, case in sorted(found, key=lambda each: each[0])]


def _case(suite: str, result: Result) -> Case:
    kinds = {TurnError.exit_code: TurnError, ExpectationError.exit_code: ExpectationError}
    error = None if result.ok else kinds.get(result.code, SbxError)(f"code {result.code}: {result.message}")
    return Case(result.line.id, suite, result.seconds, error=error)


def _style(result: Result) -> str:
    return "plain" if result.ok else "red"
