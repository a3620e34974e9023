"""From a prepared run and its image to a session that is ready to be asked (codes 3 and 4)."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.errors import NotFoundError, SbxError, WorkspaceError
from runner.launch import models, orders, telling
from runner.launch.locks import locks_of, sweep_leftovers

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.images.build import Image
    from runner.launch.network import Opened
    from runner.launch.prepared import Prepared
    from runner.sandbox.container import Order, Sandbox
    from runner.sandbox.listing import Listed
    from runner.scripted.server import ScriptedServer
    from runner.session.booted import Booted
    from runner.session.host_hooks import HostHooks
    from runner.session.record import Record
    from runner.session.session import Session, Setup


async def create_sandbox(engine: Engine, prepared: Prepared, image: Image) -> Sandbox:
    """A kept sandbox that nobody uses yet; its lock is let go."""
    from runner.sandbox.container import Sandbox

    locks = locks_of(prepared.folders)
    order = orders.order_for(prepared, image, "")
    sandbox = await Sandbox.create(engine, order, locks)
    orders.remember(prepared, order.name, locks)
    sandbox.let_go()
    return sandbox


@asynccontextmanager
async def open_session(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    *,
    ahead: Booted | None = None,
    server: ScriptedServer | None = None,
) -> AsyncIterator[Session]:
    """A session that is ready to be asked; everything of it is ended with the block.

    Args:
        ahead: a sandbox that was started for this; who started it has a janitor and sweeps.
        server: the scripted model, where several sessions share one.
    """
    from runner.launch import workplace

    async with AsyncExitStack() as stack:
        prepared = workplace.for_engine(engine, prepared)
        try:
            opened = _open(engine, prepared, image, ahead, server)
            session = await stack.enter_async_context(opened)
        except WorkspaceError as error:
            if ahead:
                raise
            opened = _open(engine, workplace.retried(error, prepared), image, None, server)
            session = await stack.enter_async_context(opened)
        yield session


@asynccontextmanager
async def _open(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    ahead: Booted | None,
    server: ScriptedServer | None,
) -> AsyncIterator[Session]:
    from runner.launch import network, workplace
    from runner.sandbox.container import LABEL_LAUNCH, LABEL_SANDBOX, Janitor
    from runner.session.control import serving, socket_path
    from runner.session.record import Record
    from runner.wire.messages import Event

    options = prepared.options
    key = await asyncio.to_thread(models.key_of, prepared, options)
    masks = await asyncio.to_thread(network.masks, prepared.outgoing, key)
    # A resumed session goes on in its own record: a new one would lack what was said before, at the next resume.
    if prepared.resumed:
        record, _ = Record.reopen(prepared.resumed, redact=masks.text)
    else:
        reserved = ahead.sandbox.order.session if ahead else ""
        record = Record.create(prepared.folders, session=reserved, redact=masks.text)
    status, code = "completed", 0
    session: Session | None = None
    out = AsyncExitStack()
    try:
        way = out.enter_context(network.opened(prepared.outgoing, record.folder / network.LOG, options.environ))
        way.key, way.masks = key, masks
        if ahead:
            order = ahead.sandbox.order
            session = await _session(engine, prepared, image, record, order, None, server, way, ahead)
            reached_at = socket_path(locks_of(prepared.folders), session.sandbox.container)
            async with serving(session, reached_at), session:
                try:
                    yield session
                finally:
                    await workplace.leave_patch(engine, prepared, order, session.sandbox.container, record)
            return
        taken = await _take_up(engine, prepared, image) if options.takes_up else None
        order = orders.order_for(prepared, image, record.id, taken[0].name if taken else "")
        # By name only where this process holds the name: else two runs of one name, or a resume right after a killed
        # host, would lose their sandbox to the other's janitor.
        janitor = Janitor(engine, f"{LABEL_SANDBOX}={order.name}" if taken else f"{LABEL_LAUNCH}={order.launch}")
        opened: Session | None = None
        try:
            with (models.scripted_model(prepared) if options.demo else None) or nullcontext() as own:
                session = opened = await _session(engine, prepared, image, record, order, taken, own, way)
                reached_at = socket_path(locks_of(prepared.folders), session.sandbox.container)
                watched = workplace.watched(engine, prepared, order, record)
                async with watched, serving(session, reached_at), session:
                    sweeping = asyncio.create_task(asyncio.to_thread(sweep_leftovers, engine, prepared.folders))
                    try:
                        yield session
                    finally:
                        await workplace.leave_patch(engine, prepared, order, session.sandbox.container, record)
                        await asyncio.gather(sweeping, return_exceptions=True)
        finally:
            # An engine that was away when the sandbox was to be ended may come back.
            janitor.done(clean=opened is not None and opened.sandbox.ended)
    except SbxError as error:
        status, code = "failed", error.exit_code
        raise
    except asyncio.CancelledError as error:
        status, code = "interrupted", 128 + _signal_of(error)
        raise
    except BaseException:
        status, code = "failed", 1
        raise
    finally:
        await out.aclose()
        record = session.record if session else record  # another session may have been taken up meanwhile
        record.write(Event("session.end", {"status": status, "code": code}))
        record.close()
        _tell_what_is_lost(record)


def _tell_what_is_lost(record: Record) -> None:
    """A disk that refuses does not end a session; but nobody may take its record for whole."""
    if record.failure or record.lost:
        from runner.frontends.render import notice_line
        from runner.frontends.terminal import Output

        why = record.failure.strerror if record.failure else "the disk was full for too long"
        Output(sys.stderr).lines([notice_line("warning", f"the record of this session is not whole: {why}")])


async def _session(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    record: Record,
    order: Order,
    taken: tuple[Listed, int] | None,
    server: ScriptedServer | None,
    way: Opened,
    ahead: Booted | None = None,
) -> Session:
    """The session, its sandbox created last: whatever fails before leaves nothing in the engine."""
    from runner.gateway.redaction import EventMask
    from runner.launch import workplace
    from runner.sandbox.container import Sandbox
    from runner.session import kitsetup
    from runner.session.ports import Publisher, wanted
    from runner.session.session import Session, Setup, snapshot
    from runner.wire.messages import Event

    options, what = prepared.options, prepared.what
    agent = prepared.agent
    if server:
        agent = replace(agent, provider="demo", model="scripted", urls=(server.url,))
    telling.start(record, prepared, order, image, agent)
    ports = Publisher(wanted(what.plan.ports, options.publish))
    setup = Setup(
        agent=agent,
        snapshot=snapshot(what.folder) if what.folder else b"",
        environment={v.name: v.value for v in what.plan.environment} | way.environment | dict(options.variables),
        network=way.network,
        interactive=options.interactive,
        history=prepared.history,
        trust=way.trust,
        truststore=way.truststore,
        kit=kitsetup.prepare(
            what.plan,
            workspace=order.target,
            folders=what.bringing,
            startup=options.startup,
            read_only=options.mode == "ro",
        ),
        clone=workplace.cloner(prepared, order, taken=bool(taken)),
        mcp=what.agent.mcp,
    )
    relay = models.relay(agent, way, options)
    banner = telling.banner(prepared, agent, image, order, record.id, bool(taken), ports)
    locks = locks_of(prepared.folders)
    # From here on a run mostly waits for the engine; what it needs later is imported meanwhile.
    threading.Thread(target=_warm_up, daemon=True).start()
    if ahead:
        sandbox = ahead.sandbox
    elif taken:
        sandbox = Sandbox(engine, taken[0].container, order, taken[1])
    else:
        try:
            sandbox = await Sandbox.create(engine, order, locks)
        except BaseException:
            await ports.close()
            raise
    if options.keep:
        orders.remember(prepared, order.name, locks)
    hooks = _host_hooks(prepared, setup)
    session = Session(
        sandbox,
        setup,
        record,
        relay,
        proxy=way.egress.proxy,
        ports=ports,
        host_hooks=hooks,
        banner=banner,
        mask=EventMask(way.masks),
        booted=ahead,
    )
    way.tell = lambda entry: session.tell(Event("network", entry))
    return session


def _host_hooks(prepared: Prepared, setup: Setup) -> HostHooks | None:
    """What runs the hooks with `where: host`; None when there are none."""
    if not any(hook.where == "host" for hook in setup.agent.hooks):
        return None
    from runner.kits.data import data_folder
    from runner.session.host_hooks import HostHooks

    folder, workspace = str(data_folder("hooks")), str(prepared.workspace.source)
    return HostHooks(setup.agent.hooks, setup.snapshot, folder, workspace, prepared.options.environ)


async def _take_up(engine: Engine, prepared: Prepared, image: Image) -> tuple[Listed, int] | None:
    """A kept sandbox of the same plan, workspace and controls that nobody uses, with its lock."""
    from runner.launch.entering import take_up
    from runner.sandbox.taking_up import Wanted

    options = prepared.options
    wanted = Wanted(options.name, image.tag, str(prepared.workspace.source), prepared.profile.digest())
    taken = await take_up(engine, wanted, locks_of(prepared.folders))
    if options.existing and taken is None:
        raise NotFoundError(f"the sandbox {options.name} is gone", hint="`sbx ls` lists those that are there")
    return taken


def _warm_up() -> None:
    for name in ("runner.frontends.printer", "httpx", "httpcore"):
        importlib.import_module(name)


def _signal_of(error: asyncio.CancelledError) -> int:
    """The signal that a cancel came from, as `runner.cli.running` tells it; SIGINT when it says none."""
    name = str(error.args[0]) if error.args else ""
    return signal.Signals[name] if name in signal.Signals.__members__ else signal.SIGINT
