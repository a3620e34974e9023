"""One question, one answer, nobody to ask: `-p`, `--json` and `--events`.

The answer is stdout's and everything else stderr's. Under `--json` stdout holds one document, under `--events` one
JSON object a line; both stay JSON when something fails. A reader that goes away ends the run without a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

from runner.errors import SbxError
from runner.frontends.banner import banner_lines
from runner.frontends.document import Document, dumps
from runner.frontends.render import Renderer, error_lines
from runner.frontends.safe import safe
from runner.frontends.session import SessionLike, nobody
from runner.frontends.terminal import Output
from runner.session.record import NOT_RECORDED
from runner.wire.messages import Event

Mode = Literal["text", "json", "events"]

QUIET_EVENTS = NOT_RECORDED
"""Events that `--events` leaves out unless deltas are asked for."""


class Printer:
    """The front end of a run without a person.

    Args:
        stdout: where the answer, the document or the events go.
        stderr: where the rest goes.
        deltas: `--events` shows pieces of answers too.
        quiet: nothing but errors on stderr.
    """

    def __init__(
        self, stdout: Output, stderr: Output, mode: Mode = "text", *, deltas: bool = False, quiet: bool = False
    ):
        self.stdout = stdout
        self.stderr = stderr
        self.mode = mode
        self.document = Document()
        self._deltas = deltas
        self.quiet = quiet
        self._renderer = Renderer()

    async def run(self, session: SessionLike, prompt: str) -> Document:
        """Ask `prompt` and print. Under `--json` nothing is printed yet: `finish` does it, when all facts are known.

        Raises what the session raises (SbxError); then call `fail`.
        """
        session.on_ask = nobody
        self.document.session = session.banner.session
        if not self.quiet:
            self.stderr.lines(banner_lines(session.banner))
        async with contextlib.aclosing(_generator(session.ask(prompt))) as events:
            async for event in events:
                await self._show(session, event)
        if self.mode == "text":
            self.stdout.write(_ended(safe(self.document.answer)))
        return self.document

    def finish(self, **more: object) -> None:
        """Print what stands at the end: under `--json` the document, with `more` fields."""
        if self.mode == "json":
            self.stdout.write(dumps(self.document.to_json(None, **more), indent=2) + "\n")
        elif self.mode == "events":
            self.stdout.write(dumps({"name": "run.end", "data": self.document.to_json(None, **more)}) + "\n")

    def fail(self, error: SbxError, **more: object) -> None:
        """Print an error that ended the run, for people on stderr and for programs on stdout."""
        self.stderr.lines(error_lines(error))
        if self.mode == "json":
            self.stdout.write(dumps(self.document.to_json(error, **more), indent=2) + "\n")
        elif self.mode == "events":
            self.stdout.write(dumps({"name": "run.end", "data": self.document.to_json(error, **more)}) + "\n")

    async def _show(self, session: SessionLike, event: Event) -> None:
        self.document.event(event)
        if not self.quiet:
            self.stderr.lines(self._renderer.lines(event))
        if self.mode == "events" and (self._deltas or event.name not in QUIET_EVENTS):
            gone = self.stdout.closed
            self.stdout.write(dumps({"name": event.name, "data": event.data}) + "\n")
            if self.stdout.closed and not gone:
                # Nobody reads on: the run has no purpose any more.
                await session.cancel()


def _generator(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """`events` as something that can be closed, whatever kind of async iterator it is."""

    async def iterate() -> AsyncGenerator[Event, None]:
        async for event in events:
            yield event

    return events if isinstance(events, AsyncGenerator) else iterate()


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
