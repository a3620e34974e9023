"""A conversation in which every `/new` begins in a fresh sandbox, taken from those that were started ahead."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from runner.frontends.session import nobody
from runner.launch.prepared import Prepared
from runner.launch.shared import Shared
from runner.wire.messages import Event

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.frontends.banner import Banner
    from runner.frontends.session import Answerer
    from runner.images.build import Image
    from runner.session.session import Session


class Fresh:
    """What a front end needs of a session (`SessionLike`), over one session after another. Use it as `async with`.

    Args:
        ahead: sandboxes that wait, started, for the next `/new`.
    """

    banner: Banner

    def __init__(self, engine: Engine, prepared: Prepared, image: Image, ahead: int) -> None:
        self._sandbox = (prepared, image)
        self._shared = Shared(engine, prepared.folders, ahead=ahead, upcoming=lambda: repeat(self._sandbox))
        self._open = AsyncExitStack()
        self._running = AsyncExitStack()
        self._session: Session | None = None
        self._on_ask: Answerer = nobody

    async def __aenter__(self) -> Fresh:
        await self._open.enter_async_context(self._shared)
        self._open.push_async_callback(self._end)
        try:
            await self.new()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    @property
    def session(self) -> Session:
        """The one that runs."""
        assert self._session is not None
        return self._session

    @property
    def record(self) -> Path:
        """Folder of the running session's record."""
        return self.session.record.folder

    @property
    def on_ask(self) -> Answerer:
        return self._on_ask

    @on_ask.setter
    def on_ask(self, answerer: Answerer) -> None:
        self._on_ask = answerer
        self.session.on_ask = answerer

    async def ask(self, prompt: str) -> AsyncGenerator[Event, None]:
        async for event in self.session.ask(prompt):
            yield event

    async def steer(self, text: str) -> None:
        await self.session.steer(text)

    async def cancel(self) -> None:
        await self.session.cancel()

    def compact(self) -> AsyncIterator[Event]:
        return self.session.compact()

    async def new(self) -> None:
        """Ends the sandbox that was used, and takes a fresh one."""
        await self._end()
        self._session = await self._running.enter_async_context(self._shared.session(*self._sandbox))
        self._session.on_ask = self._on_ask
        self.banner = self._session.banner

    async def _end(self) -> None:
        running, self._running = self._running, AsyncExitStack()
        await running.aclose()
