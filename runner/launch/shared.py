"""What many throwaway sessions of one process share: engine, janitor, scripted models, sandboxes started ahead."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from runner.errors import EngineError
from runner.launch.locks import locks_of, sweep_leftovers
from runner.launch.models import scripted_model
from runner.launch.opening import open_session
from runner.launch.orders import order_ahead
from runner.launch.prepared import Prepared
from runner.sandbox import owner
from runner.sandbox.container import Janitor, Order, Sandbox
from runner.session.booted import Booted
from runner.session.pool import Pool
from runner.session.state import Folders, new_session_id

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.images.build import Image
    from runner.scripted.server import ScriptedServer
    from runner.session.session import Session

CREATING = 4
"""Most containers that are being created and started at once; more only make the engine slower."""


class Shared:
    """Opens sessions, each in a sandbox of its own. Use it as `async with`, from one event loop.

    Args:
        engine: where.
        folders: the user's.
        ahead: most sandboxes that wait, started, for a session.
        upcoming: what will be opened next, in that order; looked at whenever one is taken.
    """

    def __init__(
        self,
        engine: Engine,
        folders: Folders,
        *,
        ahead: int = 0,
        upcoming: Callable[[], Iterable[tuple[Prepared, Image]]] = tuple,
    ) -> None:
        self._engine = engine
        self._folders = folders
        self._creating = asyncio.Semaphore(CREATING)
        self._pool = Pool(ahead, self._make, lambda: (order_ahead(*each) for each in upcoming()))
        self._models: dict[Path | None, ScriptedServer] = {}
        self._open = AsyncExitStack()
        self._clean = True

    async def __aenter__(self) -> Shared:
        # Everything of this process bears its owner's label, so one janitor covers all sessions.
        janitor = Janitor(self._engine, f"{owner.LABEL}={owner.current().label()}")
        self._open.callback(lambda: janitor.done(clean=self._clean))
        sweeping = asyncio.create_task(asyncio.to_thread(sweep_leftovers, self._engine, self._folders))
        self._open.push_async_callback(asyncio.wait, [sweeping])
        await self._open.enter_async_context(self._pool)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean = self._clean and error is None
        await self._open.aclose()

    @property
    def ready(self) -> int:
        """Sandboxes that wait, started, for a session."""
        return self._pool.ready

    @asynccontextmanager
    async def session(self, prepared: Prepared, image: Image) -> AsyncIterator[Session]:
        """A session that is ready to be asked; its sandbox is gone after the block.

        Raises what `open_session` raises.
        """
        try:
            booted = await self._pool.take(order_ahead(prepared, image))
            try:
                server = self._model(prepared) if prepared.options.demo else None
                async with open_session(self._engine, prepared, image, ahead=booted, server=server) as session:
                    yield session
            finally:
                await booted.end()
        except (EngineError, asyncio.CancelledError):
            self._clean = False  # what the engine did not remove, or made too late, is the janitor's
            raise

    async def _make(self, order: Order) -> Booted:
        order = replace(order, name=f"{order.name}-{secrets.token_hex(4)}", session=new_session_id())
        async with self._creating:
            booted = Booted(await Sandbox.create(self._engine, order, locks_of(self._folders)))
            try:
                await booted.start()
            except BaseException:
                self._clean = False
                await booted.end()
                raise
        return booted

    def _model(self, prepared: Prepared) -> ScriptedServer:
        folder = prepared.what.folder
        if folder not in self._models:
            self._models[folder] = self._open.enter_context(scripted_model(prepared))
        return self._models[folder]
