"""What follows a question that was asked without a person: bounds, checks, files to keep, results to write.

A run ends in one of four ways, and each writes the same results: it went through; an expectation was not met (7); the
turn failed (1); something ended it (its time, a signal, the engine). The first error counts: a check is not run after
a turn that failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import ExpectationError, LimitError, ModelError, RunTimeout, SbxError, TurnError, UsageError

if TYPE_CHECKING:
    from runner.frontends.printer import Printer
    from runner.session.changes import State
    from runner.session.expectations import Expectation
    from runner.session.session import Session

CANCEL_WITHIN = 5.0
"""Seconds that a turn whose time is up gets to say how it ended, for the record and the result."""
CHECK_OUTPUT = 64 * 1024
"""Bytes of each of a check's outputs that are kept."""
ARTIFACTS_WITHIN = 300.0
"""Seconds for all artifacts."""


@dataclass(frozen=True)
class Wanted:
    """What the command line asks of a run beyond its answer."""

    seconds: float | None = None
    expectations: Sequence[Expectation] = ()
    check: str = ""
    artifacts: Sequence[tuple[str, Path]] = ()
    junit: Path | None = None
    changes: bool = False
    """Tell which files of the workspace changed."""

    @classmethod
    def parse(
        cls,
        *,
        seconds: float | None,
        expect: Sequence[str],
        check: str,
        artifacts: Sequence[str],
        junit: Path | None,
        changes: bool,
    ) -> Wanted:
        """From options as they were given. Raises UsageError."""
        from runner.session.expectations import Expectation

        if junit and not junit.absolute().parent.is_dir():
            raise UsageError(f"--junit {junit}: there is no folder {junit.parent}", place=str(junit))
        if check and not check.strip():
            raise UsageError("--check: the command is empty")
        return cls(
            seconds,
            [Expectation.parse(text) for text in expect],
            check,
            [_artifact(text) for text in artifacts],
            junit,
            changes,
        )


def _artifact(text: str) -> tuple[str, Path]:
    path, equals, target = text.rpartition("=")
    if not equals or not path or not target:
        raise UsageError(f"--artifact {text}: not PATH=DEST", hint="PATH in the sandbox, DEST on this machine")
    return path, Path(target)


@dataclass
class Outcome:
    """One run's, filled in as it goes; `results` are the further fields of its document."""

    wanted: Wanted
    results: dict[str, Any] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _before: State | None = None
    _started: float = 0.0

    async def ask(self, session: Session, printer: Printer, question: str) -> None:
        """The question, and what is to be done after its answer.

        Raises:
            RunTimeout: the time was up.
            TurnError: the turn failed; ModelError and LimitError tell why.
            ExpectationError: an expectation or the check was not met.
            SbxError: the session broke.
        """
        from runner.session.changes import scan

        workspace = Path(session.sandbox.order.workspace)
        if self.wanted.changes:
            self._before = await asyncio.to_thread(scan, workspace)
        self._started = time.monotonic()
        failure: SbxError | None = None
        try:
            await self._within(session, printer, question)
            failure = _turn_failure(printer)
            if failure is None:
                failure = await self._judge(session, printer)
        except SbxError as error:
            failure = error
        if self.wanted.changes:
            from runner.session.changes import compare

            changes = compare(self._before, await asyncio.to_thread(scan, workspace))
            self.results["changed"] = changes.to_json() if changes else None
        if self.wanted.artifacts:
            lost = await self._keep(session)
            failure = failure or lost
        if failure:
            raise failure

    def times(self) -> dict[str, float]:
        """Milliseconds until the session was ready, and until now."""
        now = time.monotonic()
        return {
            "start": round(((self._started or now) - self._began) * 1000, 1),
            "total": round((now - self._began) * 1000, 1),
        }

    def report(self, printer: Printer, error: SbxError | None, *, name: str, group: str) -> None:
        """Prints and writes the results, once, whatever happened."""
        from runner.frontends.render import error_lines

        printer.document.milliseconds.update(self.times())
        if error and not isinstance(error, TurnError):
            printer.fail(error, **self.results)
        else:  # how the turn failed was shown with its events, and is in the document
            printer.finish(**self.results)
            if error and printer.quiet and not printer.stdout.closed:
                printer.stderr.lines(error_lines(error))
        if self.wanted.junit:
            self.write_junit(error, name=name, group=group, answer=printer.document.answer)

    def write_junit(self, error: SbxError | None, *, name: str, group: str, answer: str = "") -> None:
        """The run as JUnit's XML, where it is wanted."""
        from runner.frontends.junit import Case, junit, write_whole

        if self.wanted.junit:
            case = Case(name, group, self.times()["total"] / 1000, answer, error)
            write_whole(self.wanted.junit, junit("sbx", [case]))

    def _left(self) -> float | None:
        if self.wanted.seconds is None:
            return None
        return self.wanted.seconds - (time.monotonic() - self._began)

    def _is_up(self) -> RunTimeout:
        return RunTimeout(f"the run was not over after {self.wanted.seconds:g} s", hint="give it more: --timeout")

    async def _within(self, session: Session, printer: Printer, question: str) -> None:
        left = self._left()
        if left is not None and left <= 0:
            raise self._is_up()
        asking = asyncio.create_task(printer.run(session, question))
        try:
            await asyncio.wait({asking}, timeout=left)
            if not asking.done():
                await session.cancel()
                await asyncio.wait({asking}, timeout=CANCEL_WITHIN)
                raise self._is_up()
            asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _judge(self, session: Session, printer: Printer) -> SbxError | None:
        """The check first: what it says is part of what expectations look at."""
        failures = []
        if self.wanted.check:
            failures += await self._check(session, printer)
        if self.wanted.expectations:
            from runner.session.expectations import judge

            rows = judge(self.wanted.expectations, printer.document.to_json(None, **self.results))
            self.results["expectations"] = rows
            failures += [row["reason"] for row in rows if not row["met"]]
        return ExpectationError("; ".join(failures)) if failures else None

    async def _check(self, session: Session, printer: Printer) -> list[str]:
        from runner.frontends.safe import safe
        from runner.session.commands import code_of
        from runner.wire.messages import Exited

        left = self._left()
        if left is not None and left <= 0:
            raise self._is_up()
        began = time.monotonic()
        ended = await session.run(["bash", "-c", self.wanted.check], seconds=left or 0.0, limit=CHECK_OUTPUT)
        code = code_of(Exited(0, ended.code, ended.signal, ended.error))
        self.results["check"] = {
            "command": self.wanted.check,
            "code": code,
            "stdout": ended.stdout.decode("utf-8", "replace"),
            "stderr": ended.stderr.decode("utf-8", "replace"),
            "ms": round((time.monotonic() - began) * 1000, 1),
        }
        if ended.timed_out:
            raise self._is_up()
        if code == 0:
            return []
        if printer.mode == "text":
            printer.stderr.write(safe(ended.stdout.decode("utf-8", "replace")))
            printer.stderr.write(safe(ended.stderr.decode("utf-8", "replace")))
        return [f"the check `{self.wanted.check}` ended with code {code}" + (f": {ended.error}" if ended.error else "")]

    async def _keep(self, session: Session) -> SbxError | None:
        """Copies the artifacts out; the first that could not be is the error, and keeps no other."""
        from runner.session.copying.copy import copy_out

        lost: SbxError | None = None
        rows = self.results["artifacts"] = []
        try:
            async with asyncio.timeout(ARTIFACTS_WITHIN):
                for path, target in self.wanted.artifacts:
                    try:
                        written = await copy_out(session, session.sandbox.order.target, path, target)
                        rows.append({"path": path, "to": str(target), **vars(written)})
                    except SbxError as error:
                        rows.append({"path": path, "to": str(target), "error": error.to_json()})
                        lost = lost or ExpectationError(f"the artifact {path}: {error.message}", hint=error.hint)
        except TimeoutError:
            lost = lost or ExpectationError(f"the artifacts were not copied within {ARTIFACTS_WITHIN:g} s")
        return lost


def _turn_failure(printer: Printer) -> TurnError | None:
    document = printer.document
    if document.status in ("completed", "stopped"):
        return None
    kind = ModelError if document.reason.startswith("model") else LimitError if "max" in document.reason else TurnError
    return kind(document.error or f"the turn {document.status or 'did not end'}: {document.reason}")
