"""The host's end of a session: it starts the sandbox's guest, talks to it, keeps the record, and ends everything.

Nothing the guest says is trusted beyond its shape: its events are shown and recorded, its requests go to the
gateway, which decides; no name or path of its is used here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from runner.errors import ConfigError, EngineError, RunTimeout, SbxError, UsageError, WireError
from runner.sandbox import workspace
from runner.sandbox.container import SHUTDOWN_WITHIN, Sandbox
from runner.sandbox.transfer import Sink
from runner.session.booted import READY_WITHIN, Booted
from runner.session.kitsetup import Prepared
from runner.session.ports import Publisher
from runner.session.record import NOT_RECORDED, Record
from runner.session.resume import replay
from runner.session.services import OnAsk, Services
from runner.wire import VERSION
from runner.wire import messages as m
from runner.wire.agent import Agent, Hook
from runner.wire.mcp import McpServer
from runner.wire.mux import Mux, MuxClosed, Stream, StreamReset
from runner.wire.pipes import PipeTransport

STARTUP_WITHIN = 605.0
"""Seconds more for each startup command; the guest bounds each by itself, at a little less."""
CLONE_WITHIN = 3600.0
"""Seconds more for sending a copy of the workspace."""
KEPT_EVENTS = 1000
"""Most events that wait while no turn runs; the record has them all."""
KEPT_SIZE = 16 * 1024
"""Most bytes of each."""
MAX_SAID = 2 * 1024**3
"""Most bytes that are recorded of one turn; no turn comes near, and the host keeps them in memory and on its disk."""
MAX_TASKS = 2048
"""Most things that the guest may want at once: requests, connections, answers. More is a flood."""
MAX_SNAPSHOT = 32 * 1024 * 1024
"""Most bytes of the kit's folder that a session takes along."""
LEFT_OUT = frozenset({"playground", "files", ".git"})
"""Top-level folders of a kit that are not part of its configuration."""

Mask = Callable[[str, dict[str, Any]], list[tuple[str, dict[str, Any]]]]


class Relay(Protocol):
    """Carries the model's requests; `runner.gateway.model.ModelRelay`."""

    async def handle(self, request: m.HttpRequest, mux: Mux[Any]) -> None: ...

    def abort(self, message: m.HttpAbort) -> None: ...

    async def close(self) -> None: ...


class HostHooks(Protocol):
    """Runs hooks on the host; `runner.session.host_hooks`."""

    def take(self, message: m.HostHook, mux: Mux[Any]) -> None: ...

    async def close(self) -> None: ...


class Proxy(Protocol):
    """Carries the tools' connections; `runner.gateway.proxy`."""

    async def handle(self, dial: m.Dial, mux: Mux[Any]) -> None: ...


@dataclass(frozen=True)
class Setup:
    """What the guest is told at the start."""

    agent: Agent
    snapshot: bytes = b""
    environment: dict[str, str] = field(default_factory=dict)
    network: str = "none"
    interactive: bool = False
    history: Sequence[dict[str, Any]] = ()
    trust: str = ""
    """PEM certificates for the tools to trust."""
    truststore: bytes = b""
    kit: Prepared = field(default_factory=Prepared)
    """What the kit does at start."""
    clone: Callable[[Sink], object] | None = None
    """Writes the tar of a private workspace."""
    mcp: Sequence[McpServer] = ()


@dataclass(frozen=True)
class Ended:
    """How a command in the sandbox ended."""

    code: int | None
    signal: int | None
    error: str
    timed_out: bool
    oom: bool
    stdout: bytes = b""
    stderr: bytes = b""


async def nobody(ask: m.Ask) -> dict[str, Any]:
    """Answers nothing: there is no person."""
    return {}


class Session:
    """One conversation with the guest of one sandbox. Use it as `async with`.

    Args:
        sandbox: created, not started.
        setup: what the guest is told.
        record: takes every event.
        relay: the model's way out.
        proxy: the tools' way out, where policy lets anything through.
        ports: the published ports.
        host_hooks: runs the agent's hooks with `where: host`, if it has any.
        banner: what a front end shows first.
        mask: takes the secrets out of an event of the guest's; gives the events to record and show instead of it.
        booted: the sandbox's guest, where it was started ahead.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        setup: Setup,
        record: Record,
        relay: Relay,
        *,
        proxy: Proxy | None = None,
        ports: Publisher | None = None,
        host_hooks: HostHooks | None = None,
        banner: Any = None,
        mask: Mask | None = None,
        booted: Booted | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.record = record
        self.banner = banner
        self.on_ask: OnAsk = nobody
        self._booted = booted or Booted(sandbox)
        self._setup = setup
        self._relay = relay
        self._proxy = proxy
        self._mask = mask or (lambda name, data: [(name, data)])
        self._ports = ports
        self._host_hooks = host_hooks
        self._services = Services(setup.agent, setup.mcp, self.say, self._task)
        self._mux: Mux[m.ToHost] | None = None
        self._events: asyncio.Queue[m.Event | m.TurnDone | SbxError] = asyncio.Queue()
        self._turn = 0
        self._said_before = 0
        self._running = False
        self._next_exec = 1
        self._execs: dict[int, asyncio.Future[m.Exited]] = {}
        self._tried: dict[int, asyncio.Future[m.HookTried]] = {}
        self._is_started: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: SbxError | None = None
        self._closing = False

    async def __aenter__(self) -> Session:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ---- start and end

    async def _start(self) -> None:
        """Boots the guest, unless that was done ahead, and tells it its agent."""
        self._is_started = asyncio.get_running_loop().create_future()
        mux = self._booted.mux if self._booted.alive else await self._booted.start()
        assert mux is not None
        self._mux = mux
        self._reader = asyncio.create_task(self._read(mux))
        seen = self._booted.ready.workspace if self._booted.ready else ""
        with workspace.canary(self.sandbox.order.canary_folder, seen) as (canary, text):
            snapshot = mux.open() if self._setup.snapshot else None
            contents = mux.open() if self._setup.kit.contents else None
            copy = mux.open() if self._setup.clone else None
            kit = replace(
                self._setup.kit.setup,
                contents=contents.channel if contents else 0,
                clone=copy.channel if copy else 0,
            )
            hello = m.Hello(
                version=VERSION,
                session=self.record.id,
                agent=self._setup.agent,
                workspace=self.sandbox.order.target,
                snapshot=snapshot.channel if snapshot else 0,
                canary=canary,
                canary_text=text,
                environment=self._setup.environment,
                network=self._setup.network,
                interactive=self._setup.interactive,
                history=list(self._setup.history),
                trust=self._setup.trust,
                truststore=base64.b64encode(self._setup.truststore).decode("ascii"),
                setup=kit,
                volumes=self.sandbox.order.volume_folders,
                disk=self.sandbox.order.profile.home,
                disk_files=self.sandbox.order.profile.home_files,
            )
            try:
                slow = sum(not entry.background for entry in kit.startup)
                patience = READY_WITHIN + slow * STARTUP_WITHIN + (CLONE_WITHIN if copy else 0.0)
                async with asyncio.timeout(patience):
                    mux.post(hello)
                    if snapshot:
                        await snapshot.write(self._setup.snapshot)
                        snapshot.close()
                    if contents:
                        await contents.write(self._setup.kit.contents)
                        contents.close()
                    if copy and self._setup.clone:
                        await send(copy, self._setup.clone)
                    await self._is_started
            except TimeoutError:
                raise EngineError(
                    "the guest did not start in time", place=self.sandbox.container, log=self.log
                ) from None
            except StreamReset:
                raise self._failure or WireError("the guest went away while it started", log=self.log) from None
        if self._ports:
            await self._ports.serve(mux)
        self._services.start(self, mux)

    async def close(self) -> None:
        """Ends the guest and the sandbox, whatever state they are in. Idempotent."""
        if self._closing:
            return
        self._closing = True
        await self._services.close()
        try:
            if self._mux and not self._mux.closed and self._reader:
                self._mux.post(m.Shutdown())
                await asyncio.wait([self._reader], timeout=SHUTDOWN_WITHIN)
        finally:
            for task in [*self._tasks, *([self._reader] if self._reader else [])]:
                task.cancel()
            await asyncio.gather(*self._tasks, *([self._reader] if self._reader else []), return_exceptions=True)
            if self._ports:
                await self._ports.close()
            await self._relay.close()
            if self._host_hooks:
                await self._host_hooks.close()
            await self._booted.end()

    @property
    def ready(self) -> m.Ready | None:
        """What the guest said first."""
        return self._booted.ready

    async def gone(self) -> None:
        """Waits until the guest has ended by itself, or the wire broke."""
        if self._reader:
            await asyncio.wait([self._reader])

    @property
    def log(self) -> str:
        """The end of what the guest wrote to its stderr."""
        return self._booted.log

    # ---- what a front end does

    async def ask(self, prompt: str) -> AsyncIterator[m.Event]:
        """Asks a question and yields the turn's events; the last one is `turn.end`.

        Raises:
            SbxError: the guest or the sandbox went away.
        """
        await self._services.ready()
        async with contextlib.aclosing(self._run_turn(m.Turn(self._turn + 1, prompt))) as events:
            async for event in events:
                yield event

    async def compact(self) -> AsyncIterator[m.Event]:
        """Makes room in the conversation now; yields what is told of it. Raises SbxError."""
        async with contextlib.aclosing(self._run_turn(m.Compact(self._turn + 1))) as events:
            async for event in events:
                yield event

    async def _run_turn(self, message: m.Turn | m.Compact) -> AsyncGenerator[m.Event, None]:
        mux = self._alive()
        if self._running:
            raise RuntimeError("a turn runs already")
        self._running = True
        self._turn = message.id
        self._said_before = self.record.said
        mux.post(message)
        finished = False
        try:
            while not finished:
                item = await self._events.get()
                if isinstance(item, SbxError):
                    raise item
                if isinstance(item, m.TurnDone):
                    finished = item.turn == self._turn
                    continue
                yield item
        finally:
            if not finished and not mux.closed:
                mux.post(m.Cancel(self._turn))
            self._running = False

    async def steer(self, text: str) -> None:
        """Says something while a turn runs."""
        self._alive().post(m.Steer(text))

    async def cancel(self) -> None:
        """Ends the running turn; the session goes on."""
        if self._running and self._mux and not self._mux.closed:
            self._mux.post(m.Cancel(self._turn))

    async def new(self) -> None:
        """Begins a fresh conversation."""
        self._alive().post(m.New())

    async def take_up(self, folder: Path) -> int:
        """Goes on with an earlier session in this sandbox: its conversation, and its record from now on.

        Returns: how many messages it has.

        Raises:
            SbxError: it is in use, damaged, or this very session; nothing has changed then.
        """
        mux = self._alive()
        if folder == self.record.folder:
            raise UsageError("this is that session")
        record, lines = Record.reopen(folder, redact=self.record.redact)
        history = replay(lines, folder)
        self.record.write(m.Event("session.end", {"status": "completed", "code": 0}))
        self.record.close()
        self.record = record
        self._said_before = 0
        mux.post(m.New(history, record.id))
        return len(history)

    def say(self, level: str, text: str) -> None:
        """A notice of the host's own, for the record and the front end."""
        self.tell(m.Event("notice", {"level": level, "text": text}))

    def waiting(self) -> list[m.Event]:
        """Events that came outside of a turn, such as what the model server's probe found."""
        events = []
        while not self._events.empty():
            item = self._events.get_nowait()
            if isinstance(item, m.Event):
                events.append(item)
        return events

    # ---- commands

    def exec(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[m.Exited], Mux[m.ToHost]]:
        """Starts a command as U. `options` are those of `messages.Exec`; the streams are opened by the caller.

        Returns: its id, its end, and the wire to open streams on and to send signals over.
        """
        mux = self._alive()
        exec_id = self._next_exec
        self._next_exec += 1
        future: asyncio.Future[m.Exited] = asyncio.get_running_loop().create_future()
        self._execs[exec_id] = future
        mux.post(m.Exec(exec_id, list(argv), **options))
        return exec_id, future, mux

    def open(self) -> Stream:
        """A byte stream for a command."""
        return self._alive().open()

    async def run(self, argv: Sequence[str], *, seconds: float, limit: int, user: str = "owner") -> Ended:
        """Runs a command to its end and collects what it says, up to `limit` bytes a stream; `seconds` 0: no bound."""
        out, err = self.open(), self.open()
        _, future, _ = self.exec(argv, stdout=out.channel, stderr=err.channel, timeout=seconds, user=user)
        stdout, stderr, exited = await asyncio.gather(_collect(out, limit), _collect(err, limit), future)
        return Ended(exited.code, exited.signal, exited.error, exited.timed_out, exited.oom, stdout, stderr)

    async def try_hook(self, hook: Hook, data: dict[str, Any], *, exact: bool = False) -> dict[str, Any]:
        """Runs one hook in the sandbox outside of any turn; what it came to, as `guest.hooks.trying` says.

        Args:
            data: the event's own fields; with `exact` all that the hook reads.
        """
        mux = self._alive()
        number = self._next_exec
        self._next_exec += 1
        future: asyncio.Future[m.HookTried] = asyncio.get_running_loop().create_future()
        self._tried[number] = future
        mux.post(m.TryHook(number, hook, data, exact))
        return (await future).outcome

    # ---- reading

    def _alive(self) -> Mux[m.ToHost]:
        if self._failure:
            raise self._failure
        if self._mux is None or self._mux.closed:
            raise WireError("the session is over", log=self.log)
        return self._mux

    async def _read(self, mux: Mux[m.ToHost]) -> None:
        failure: SbxError | None = None
        try:
            async with contextlib.aclosing(self._booted.messages()) as messages:
                async for message in messages:
                    if isinstance(message, m.Failed):
                        failure = failure or self._booted.failed(message)
                        self._tell(failure)
                    else:
                        self._act(message, mux)
        except MuxClosed as error:
            failure = failure or WireError(str(error), place=self.sandbox.container, log=self.log)
        except Exception as error:  # whatever the guest has found: nobody may wait for what is no longer read
            told = f"what the guest said could not be dealt with: {type(error).__name__}: {error}"
            failure = failure or WireError(told, place=self.sandbox.container, log=self.log)
        if not self._closing:
            self._tell(failure or await self._booted.why_gone())
        elif self._execs:
            self._tell(WireError("the session ended"))

    def _act(self, message: m.ToHost, mux: Mux[m.ToHost]) -> None:
        match message:
            case m.Event():
                for name, data in self._mask(message.name, message.data):
                    self._take(m.Event(name, data))
            case m.TurnDone():
                self._show(message)
            case m.Ask():
                self._services.ask(message, mux, self.on_ask)
            case m.Withdraw():
                self._services.withdraw(message)
            case m.Trace():
                self._task(self._services.trace(message, mux, self.record))
            case m.HostHook():
                if self._host_hooks:
                    self._host_hooks.take(message, mux)
                else:
                    mux.accept(message.body).reset("not run")
                    mux.post(m.HostHookDone(message.id, None, error="no hook runs on the host in this session"))
            case m.HookTried():
                tried = self._tried.pop(message.id, None)
                if tried and not tried.done():
                    tried.set_result(message)
            case m.HttpRequest():
                self._task(self._relay.handle(message, mux))
            case m.HttpAbort():
                self._relay.abort(message)
            case m.Dial():
                if self._proxy:
                    self._task(self._proxy.handle(message, mux))
                else:
                    mux.accept(message.channel).reset("there is no way out")
            case m.Exited():
                future = self._execs.pop(message.id, None)
                if future and not future.done():
                    future.set_result(message)

    def tell(self, event: m.Event) -> None:
        """Records an event of the host's own, and shows it."""
        self.record.write(event)
        self._show(event)

    def _take(self, event: m.Event) -> None:
        self.record.write(event)
        if self.record.said - self._said_before > MAX_SAID:
            raise MuxClosed(f"the guest says more than {MAX_SAID} bytes in one turn")
        if event.name == "guest.started" and self._is_started and not self._is_started.done():
            self._is_started.set_result(None)
        else:
            self._show(event)

    def _show(self, item: m.Event | m.TurnDone) -> None:
        """For the front end. While no turn runs nobody takes anything, so only the newest are kept."""
        if not self._running:
            if isinstance(item, m.TurnDone) or item.name in NOT_RECORDED or len(json.dumps(item.data)) > KEPT_SIZE:
                return
            while self._events.qsize() >= KEPT_EVENTS:
                self._events.get_nowait()
        self._events.put_nowait(item)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if len(self._tasks) >= MAX_TASKS:
            work.close()
            raise MuxClosed(f"the guest wants more than {MAX_TASKS} things at once")
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, (MuxClosed, StreamReset)):
            self._tell(error if isinstance(error, SbxError) else WireError(f"{type(error).__name__}: {error}"))

    def _tell(self, failure: SbxError) -> None:
        """The session cannot go on: whoever waits is told."""
        if self._failure is None:
            self._failure = failure
        for future in (self._is_started, *self._execs.values(), *self._tried.values()):
            if future and not future.done():
                future.set_exception(failure)
                future.exception()  # looked at: nobody may be waiting
        self._events.put_nowait(failure)


async def send(stream: Stream, write: Callable[[Sink], object]) -> None:
    """Sends what `write` writes, which runs in a thread and waits for the wire as for a pipe.

    Raises:
        SbxError: of `write`'s.
        StreamReset: the other end no longer takes it.
    """
    source, end = os.pipe2(os.O_CLOEXEC)

    def pack() -> None:
        with os.fdopen(end, "wb") as sink:
            write(sink)

    packing = asyncio.create_task(asyncio.to_thread(pack))
    pipe = PipeTransport(source, source)
    try:
        while data := await pipe.read(64 * 1024):
            await stream.write(data)
    finally:
        os.close(source)  # one who still writes is told so by EPIPE
        with contextlib.suppress(BrokenPipeError):
            await packing
    stream.close()


async def _collect(stream: Stream, limit: int) -> bytes:
    data = bytearray()
    with contextlib.suppress(StreamReset):
        async for piece in stream:
            data += piece[: max(limit - len(data), 0)]
    return bytes(data)


def snapshot(folder: Path) -> bytes:
    """A tar of the kit's folder as the guest is to see it: regular files and folders only, links followed inside.

    Raises:
        ConfigError: it is over `MAX_SNAPSHOT`, holds what is neither file nor folder, or a link that leads out.
    """
    out = io.BytesIO()
    root = folder.resolve()
    size = 0
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if relative.parts[0] in LEFT_OUT or "__pycache__" in relative.parts:
                continue
            real = path.resolve()
            if not real.is_relative_to(root):
                raise ConfigError("a link that leads out of the kit's folder", place=str(path))
            if real.is_dir():
                if path.is_symlink():
                    raise ConfigError("a link to a folder", place=str(path), hint="copy the folder")
                continue
            if not real.is_file():
                raise ConfigError("neither a file nor a folder", place=str(path))
            try:
                data = real.read_bytes()
            except OSError as error:
                raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from None
            size += len(data)
            if size > MAX_SNAPSHOT:
                raise ConfigError(f"the kit's folder is over {MAX_SNAPSHOT // 1024**2} MiB", place=str(folder))
            member = tarfile.TarInfo(str(relative))
            member.size = len(data)
            member.mode = 0o755 if real.stat().st_mode & 0o111 else 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


async def within(seconds: float | None, work: Awaitable[Any]) -> Any:
    """Waits for `work`, at most `seconds`; raises RunTimeout after that."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise RunTimeout(f"the run was not over after {seconds:g} s") from None
