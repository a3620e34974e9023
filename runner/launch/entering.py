"""Getting into a sandbox to run commands: through the process that has it, or, when it is idle, by taking it up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import InUseError, NotFoundError
from runner.session.kept import recall
from runner.session.state import Folders, private

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.sandbox.listing import Listed
    from runner.sandbox.taking_up import Wanted
    from runner.session.commands import Commander


@dataclass(frozen=True)
class Entered:
    """A sandbox that runs commands."""

    commander: Commander
    listed: Listed
    target: str
    """The workspace's path in it."""
    gone: Callable[[], Awaitable[None]] | None = None
    """Waits for the sandbox to end by itself; None where another process has it."""


@asynccontextmanager
async def enter(name: str, *, hold: asyncio.Event | None = None) -> AsyncIterator[Entered]:
    """The sandbox `name`, running. One that was idle is stopped again with the block.

    Args:
        hold: this process is to have the sandbox until the event, which another process that wants it sets.

    Raises:
        NotFoundError: there is none.
        InUseError: a session has it that cannot be reached from here; with `hold`, any session has it.
        EngineError, WireError: it could not be started.
    """
    from runner.engine import connect
    from runner.sandbox.container import LABEL_SANDBOX, Janitor, Order, Sandbox
    from runner.sandbox.effective import effective, mode_of
    from runner.sandbox.listing import find_sandbox
    from runner.sandbox.profile import Profile
    from runner.sandbox.taking_up import claim
    from runner.session.bare import bare_session
    from runner.session.control import connected, serving, socket_path

    engine = await asyncio.to_thread(connect, os.environ)
    listed = await asyncio.to_thread(find_sandbox, engine, name)
    locks = private(Folders.of().state / "sandboxes")
    path = socket_path(locks, listed.container)
    async with AsyncExitStack() as stack:
        try:
            held = await asyncio.to_thread(claim, engine, listed, locks)
        except InUseError:
            if hold:
                raise
            target = (await asyncio.to_thread(effective, engine, listed.container)).target
            remote = await stack.enter_async_context(connected(path))
            yield Entered(remote, listed, target)
            return
        try:
            if not listed.kept:
                raise NotFoundError(f"the sandbox {listed.name} is what a dead run left", hint="`sbx prune`")
            found = await asyncio.to_thread(effective, engine, listed.container)
        except BaseException:
            os.close(held)
            raise
        order = Order(
            name=listed.name,
            session=listed.session,
            image=found.image_id,
            plan=listed.image,
            profile=Profile(workspace=mode_of(found.document)),
            workspace=listed.workspace,
            target=found.target,
            keep=True,
            kit=listed.kit,
        )
        janitor = Janitor(engine, f"{LABEL_SANDBOX}={listed.name}")
        stack.callback(janitor.done)
        known = recall(locks, listed.name)
        session = bare_session(Sandbox(engine, listed.container, order, held), known.environment if known else {})
        # The session ends first: who asked for the sandbox is told of its end when the lock is free.
        await stack.enter_async_context(serving(session, path, hold.set if hold else None))
        await stack.enter_async_context(session)
        yield Entered(session, listed, found.target, session.gone)


async def take_up(engine: Engine, wanted: Wanted, locks: Path) -> tuple[Listed, int] | None:
    """`runner.sandbox.taking_up.take_up`, after asking processes that only hold a fitting sandbox to let it go."""
    from runner.sandbox import taking_up
    from runner.sandbox.listing import sandboxes

    found = await asyncio.to_thread(sandboxes, engine)
    held = [each for each in found if each.running and taking_up.fits(each, wanted)]
    asked = [await _release(locks, each.container) for each in held]
    if any(asked):
        found = await asyncio.to_thread(sandboxes, engine)
    return await asyncio.to_thread(taking_up.take_up, engine, found, wanted, locks)


async def _release(locks: Path, container: str) -> bool:
    from runner.errors import SbxError
    from runner.session.control import connected, socket_path

    try:
        async with connected(socket_path(locks, container)) as remote:
            return await remote.release()
    except (SbxError, TimeoutError):
        return False
