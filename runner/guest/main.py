"""The guest: PID 1 of the container, one end of the wire, owner of every process in it.

`runner.guest.entry` runs first, as root: it prepares the container, gives up everything but what starting and ending
processes takes, forks the process starter while memory is still small, and calls `main`.

When the wire ends, for whatever reason, the guest ends, and the kernel ends everything else in the container.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import signal
import sys
import tarfile
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from runner.guest.commands import Commands
from runner.guest.consent import Consent
from runner.guest.context import Reader
from runner.guest.disk import Watch
from runner.guest.history import History
from runner.guest.hooks import HookChain
from runner.guest.hooks.host import OverTheWire
from runner.guest.hooks.trying import try_hook
from runner.guest.loop import Loop
from runner.guest.model.failure import ModelFailure
from runner.guest.prompt import system_prompt
from runner.guest.remote import RemoteTool
from runner.guest.spawn.command import RUN_DIR, Command
from runner.guest.spawn.spawner import Spawner
from runner.guest.startup import AtStart, StartupFailed, instructions_prompt
from runner.guest.structured import Form
from runner.guest.tools.asking import AskUser, ReadSkill
from runner.guest.tools.base import Place, Tool, environment_for
from runner.guest.tools.bash import Jobs
from runner.guest.tools.registry import tools_for
from runner.wire import VERSION
from runner.wire import messages as m
from runner.wire.agent import CLOSED, PROXIED
from runner.wire.markers import CONTEXT_LABEL
from runner.wire.mux import Mux, MuxClosed
from runner.wire.pipes import PipeTransport

if TYPE_CHECKING:
    from httpx import AsyncBaseTransport

    from runner.guest import entry
    from runner.guest.model.client import Model
    from runner.guest.model.trace import Traced
    from runner.guest.model.transport import WireTransport

CONFIG = Path("/run/sbx/config")
"""Where the kit's folder is laid, readable by everyone, written by nobody."""
HOOKS = "/opt/sbx/hooks"
MAX_SNAPSHOT = 32 * 1024 * 1024
MAX_CONTENTS = 80 * 1024 * 1024
_OWN_VARIABLES = frozenset({"HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_"})
"""Of the container's environment, what is the guest's own."""
HELLO_WITHIN = 24 * 3600.0
"""Seconds that the guest waits for the host's first message; one that was started ahead waits long. A host that dies
ends the wire, which is seen at once."""


class Fatal(Exception):
    """The guest cannot go on; `kind` is one of those of `Failed`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Guest:
    """Reads messages and acts on them until the wire ends.

    Args:
        prepared: what the entry has made ready.
        source, sink: descriptors of the wire.
    """

    def __init__(self, prepared: entry.Guest, source: int, sink: int) -> None:
        self._spawner = Spawner(prepared.connection, prepared.server_pid)
        self._owner = prepared.owner
        self._workspace = prepared.workspace
        self._jobs = Jobs()
        self._mux: Mux[m.ToGuest] = Mux(PipeTransport(source, sink), m.decode_for_guest, even=False)
        self._transport: WireTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._host_hooks = OverTheWire(self._mux, self._task)
        self._asks: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_ask = 1
        self._turn: asyncio.Task[None] | None = None
        self._turn_id = 0
        self._loop: Loop | None = None
        self._hello: m.Hello | None = None
        self._model: asyncio.Task[Model] | None = None
        self._commands: Commands | None = None
        self._starting: asyncio.Task[None] | None = None
        self._traced: Traced | None = None
        self._tools: list[Tool] = []
        self._remote: list[Tool] = []
        self._fatal = False
        self._call = ""
        self._open = AsyncExitStack()

    async def run(self) -> int:
        """Until the wire ends. Returns the process's exit code."""
        version = ".".join(map(str, sys.version_info[:3]))
        mark = m.workspace_mark(self._workspace)
        self._mux.post(m.Ready(VERSION, _program_version(), self._owner.uid, self._owner.gid, version, mark))
        warm = threading.Thread(target=_warm_up, daemon=True)
        warm.start()
        code = 0
        try:
            async with asyncio.timeout(HELLO_WITHIN) as patience:
                async for message in self._mux.run():
                    if isinstance(message, m.Hello):
                        patience.reschedule(None)
                    if isinstance(message, m.Shutdown):
                        await self._shut_down()
                        break
                    self._dispatch(message)
        except TimeoutError:
            print("the host sent no first message", file=sys.stderr)
            code = 1
        except MuxClosed as error:
            print(error, file=sys.stderr)
            code = 1
        finally:
            await self._open.aclose()
        return 1 if self._fatal else code

    async def _shut_down(self) -> None:
        """Ends the turn in good order, tells the hooks, and lets what is queued go out."""
        if self._turn and not self._turn.done():
            self._turn.cancel()
            await asyncio.wait([self._turn], timeout=5)
        if self._loop and self._hello:
            try:
                async with asyncio.timeout(5):
                    await self._loop.hooks.session_end("ended")
                    await self._loop.hooks.close()
            except TimeoutError:
                print("sessionEnd hooks took too long", file=sys.stderr)
        if self._traced:
            await self._traced.sent(5)
        await self._mux.flush()

    # ---- messages

    def _dispatch(self, message: m.ToGuest) -> None:
        match message:
            case m.HttpHead():
                self._wire().on_head(message)
            case m.HttpFail():
                self._wire().on_fail(message)
            case m.Reply():
                future = self._asks.pop(message.id, None)
                if future and not future.done():
                    future.set_result(message.value)
            case m.Hello():
                if self._starting:
                    raise MuxClosed("a second Hello")
                self._starting = self._task(self._start(message))
            case m.Turn():
                self._turn_id = message.id
                self._turn = self._task(self._run_turn(message))
            case m.Steer():
                if self._loop:
                    self._loop.steer(message.text)
            case m.New():
                self._task(self._new(message))
            case m.Tools():
                self._remote = [RemoteTool.of(each, self._request) for each in message.tools]
                if self._loop:
                    self._loop.set_tools([*self._tools, *self._remote])
            case m.Compact():
                self._turn_id = message.id
                self._turn = self._task(self._compact(message.id))
            case m.Cancel():
                if self._turn and message.turn == self._turn_id:
                    # Not before its first step, or it would not even say that it is over.
                    asyncio.get_running_loop().call_soon(self._turn.cancel)
            case m.Exec():
                self._task(self._with_commands(lambda c: c.run(message)))
            case m.Signal():
                self._task(self._with_commands(lambda c: c.signal(message.id, message.number)))
            case m.Resize():
                self._task(self._with_commands(lambda c: c.resize(message.id, message.rows, message.columns)))
            case m.HostHookDone():
                self._host_hooks.done(message)
            case m.TryHook():
                self._task(self._try_hook(message))
            case m.Forward():
                self._task(self._with_commands(lambda c: c.forward(message)))

    async def _with_commands(self, act: Callable[[Commands], Coroutine[Any, Any, None]]) -> None:
        await self._started()
        if self._commands:
            await act(self._commands)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A child of the guest: it ends with the guest, and what it raises is never lost."""
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Fatal as error:
            self._fail(error.kind, str(error))
        except MuxClosed:
            pass  # the reader of messages tells it
        except Exception as error:
            traceback.print_exc()
            self._fail("internal", f"{type(error).__name__}: {error}")

    def _fail(self, kind: str, message: str) -> None:
        self._fatal = True
        self._mux.post(m.Failed(kind, message))

    async def _started(self) -> None:
        if self._starting is None:
            raise Fatal("internal", "the first message was not Hello")
        await self._starting

    # ---- the start

    async def _start(self, hello: m.Hello) -> None:
        if hello.version != VERSION:
            raise Fatal("version", f"the host speaks wire version {hello.version}, this image {VERSION}")
        self._hello = hello
        if hello.snapshot:
            data = await self._mux.accept(hello.snapshot).read_all(MAX_SNAPSHOT)
            await asyncio.to_thread(_lay_snapshot, data, CONFIG)
        else:
            await asyncio.to_thread(CONFIG.mkdir, mode=0o755, parents=True, exist_ok=True)
        if hello.setup.contents:
            data = await self._mux.accept(hello.setup.contents).read_all(MAX_CONTENTS)
            await asyncio.to_thread(_lay_snapshot, data, Path(RUN_DIR))
        await self._check_canary(hello)
        agent = hello.agent
        image = {key: value for key, value in os.environ.items() if key not in _OWN_VARIABLES}
        added = dict(hello.environment)
        if hello.trust:
            from runner.guest import trust

            path = added.get("PATH") or image.get("PATH", "")
            added = trust.lay(hello.trust, base64.b64decode(hello.truststore), path) | added
        environment = environment_for(self._owner, hello.workspace, image, added)
        place = Place(hello.workspace, self._owner, environment)
        self._commands = Commands(self._mux, self._spawner, place)
        if hello.network in (CLOSED, PROXIED):
            from runner.guest import proxy

            await self._open.enter_async_context(proxy.serve(self._mux, call=lambda: self._call))
        at_start = AtStart(hello.setup, self._spawner, place, self._emit, self._mux)
        self._open.push_async_callback(at_start.close)
        try:
            await at_start.run()
        except StartupFailed as error:
            raise Fatal("startup", str(error)) from None
        hooks = HookChain(
            agent.hooks,
            self._spawner,
            workspace=hello.workspace,
            config_dir=str(CONFIG),
            hooks_dir=HOOKS,
            owner=self._owner,
            emit=self._emit,
            session=hello.session,
            model=agent.model,
            host=self._host_hooks,
        )
        await hooks.start()
        begun = await hooks.session_start()
        if begun.stopped:
            raise Fatal("refused", f"the hook {begun.stopped.hook} refuses the session: {begun.stopped.reason}")
        reader = Reader(self._spawner, place, str(CONFIG), self._emit)
        loaded = await reader.load(
            agents_md=agent.agents_md, files=agent.context, skills_dirs=agent.extra.get("skills_dir", ())
        )
        self._tools = tools_for(_possible(agent.tools, hello), self._spawner, place, self._jobs)
        if "ask_user" in _possible(agent.tools, hello):
            self._tools.append(AskUser(self.ask))
        if loaded.skills:
            self._tools.append(ReadSkill(self._spawner, place, loaded.skills))
        form = None if agent.structured_output is None else Form(agent.structured_output, self._request)
        tools = [*self._tools, *self._remote]
        system = system_prompt(
            agent.system,
            workspace=hello.workspace,
            tools=[t.name for t in tools],
            network=hello.network,
            extra=[
                *loaded.parts,
                *instructions_prompt(hello.setup.instructions, agent.tools),
                *(f"{CONTEXT_LABEL}\n{piece}" for piece in begun.context),
                *([form.instruction] if form else []),
            ],
        )
        rules = agent.extra.get("consent", {})
        consent = Consent(self.ask, hello.workspace, rules.get("allow", ()), rules.get("deny", ()))
        self._loop = Loop(
            agent,
            History(hello.history),
            system,
            hooks,
            self,
            tools,
            self._emit,
            consent,
            form,
            recorded=lambda: self._request("recorded", {}),
        )
        self._emit("guest.started", {"tools": [t.name for t in tools], "system_bytes": len(system.encode())})
        for folder in hello.volumes:
            self._task(self._watch_disk(folder, hello.disk, hello.disk_files))
        if hello.interactive:
            self._model_task()

    async def _check_canary(self, hello: m.Hello) -> None:
        """The mount may be silently empty, or another folder: then the agent's work would be lost."""
        if not hello.canary:
            return
        path = f"{hello.workspace.rstrip('/')}/{hello.canary}"
        result = await self._spawner.run(
            Command(["cat", "--", path], {"PATH": "/usr/bin:/bin"}, "/", self._owner), timeout=10.0, limit=4096
        )
        if result.stdout.data.decode("utf-8", "replace") != hello.canary_text:
            seen = result.stderr.data.decode("utf-8", "replace").strip() or "it holds something else"
            raise Fatal("workspace", f"the workspace {hello.workspace} is not the host's folder in the sandbox: {seen}")

    async def _try_hook(self, message: m.TryHook) -> None:
        await self._started()
        if self._loop:
            self._mux.post(m.HookTried(message.id, await try_hook(self._loop.hooks, message)))

    async def _watch_disk(self, folder: str, size: int, files: int) -> None:
        over = await Watch(self._spawner, self._owner, folder, size, files).run()
        raise Fatal("limit", f"the sandbox's {folder} holds {over}")

    # ---- turns

    async def _run_turn(self, message: m.Turn) -> None:
        await self._started()
        if self._loop is None:
            return
        self._mux.post(await self._loop.turn(message.id, message.prompt))

    async def _new(self, message: m.New) -> None:
        await self._started()
        if self._loop:
            self._loop.forget(message.history)
            if message.session:
                self._loop.hooks.session = message.session
            if not message.history:
                self._emit("session.new", {})

    async def _compact(self, turn_id: int) -> None:
        await self._started()
        if self._loop:
            self._mux.post(await self._loop.compact(turn_id))

    async def model(self) -> Model:
        """The model, found once a session; a failure is tried again by the next turn."""
        task = self._model_task()
        try:
            return await asyncio.shield(task)
        except ModelFailure:
            if self._model is task:
                self._model = None
            raise

    def _wire(self) -> WireTransport:
        from runner.guest.model.transport import WireTransport

        if self._transport is None:
            self._transport = WireTransport(self._mux)
        return self._transport

    def _model_task(self) -> asyncio.Task[Model]:
        if self._model is None:
            self._model = asyncio.create_task(self._resolve())
            self._model.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._model

    async def _resolve(self) -> Model:
        from runner.guest.model import transport
        from runner.guest.model.client import Model
        from runner.guest.model.resolve import resolve

        assert self._hello is not None
        agent = self._hello.agent
        routes: AsyncBaseTransport = transport.Routes(self._wire(), self._hello.network)
        if agent.trace:
            from runner.guest.model.trace import Traced

            routes = self._traced = Traced(routes, self._mux)
        client = transport.client(routes)
        found = await resolve(
            agent.urls,
            client,
            model=agent.model,
            provider=agent.provider,
            context_window=agent.context_window,
            first_token_timeout=agent.first_token_timeout,
            on_wait=lambda waiting: self._emit("model.wait", {"seconds": waiting.seconds, "why": waiting.why}),
        )
        self._emit(
            "model.resolved",
            {
                "url": found.url,
                "model": found.model,
                "tried": [{"url": url, "reason": reason} for url, reason in found.tried],
                "models": list(found.models),
                "warnings": list(found.warnings),
                "context_window": found.context_window,
            },
        )
        return Model(
            client,
            found.url,
            found.model,
            sampling=agent.sampling,
            first_token_timeout=agent.first_token_timeout,
            watchdog_timeout=agent.watchdog_timeout,
            context_window=found.context_window,
        )

    # ---- events and questions

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        if name in ("tool.start", "tool.end"):
            self._call = str(data.get("id", "")) if name == "tool.start" else ""
        self._mux.post(m.Event(name, data))

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Asks the person at the host; an empty answer where there is none."""
        if not (self._hello and self._hello.interactive):
            return {}
        return await self._request(kind, data)

    async def _request(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Asks the host; cancelling says that the answer is no longer wanted."""
        ask = m.Ask(self._next_ask, kind, data)
        self._next_ask += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asks[ask.id] = future
        self._mux.post(ask)
        try:
            return await future
        except asyncio.CancelledError:
            self._mux.post(m.Withdraw(ask.id))
            raise
        finally:
            self._asks.pop(ask.id, None)


def _possible(tools: tuple[str, ...], hello: m.Hello) -> list[str]:
    """The tools that can do anything here: nobody to ask and nowhere to go make two of them useless."""
    missing = set()
    if not hello.interactive:
        missing.add("ask_user")
    if hello.network in ("none", CLOSED):
        missing.add("fetch_content")
    return [name for name in tools if name not in missing]


def _warm_up() -> None:
    """Imports what the first model request needs, while the guest waits for the host and for hooks."""
    import runner.guest.model.resolve  # noqa: F401


def _lay_snapshot(data: bytes, folder: Path) -> None:
    """Unpacks the host's copy of the kit's folder; only files and folders with names that stay inside."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            path = folder / member.name
            if not path.is_relative_to(folder) or ".." in Path(member.name).parts:
                raise Fatal("config", f"the snapshot holds the name {member.name!r}")
            if member.isdir():
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
            elif member.isfile():
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                content = archive.extractfile(member)
                path.write_bytes(content.read() if content else b"")
                path.chmod(0o755 if member.mode & 0o111 else 0o644)
            else:
                raise Fatal("config", f"the snapshot holds {member.name!r}, which is neither file nor folder")


def _program_version() -> str:
    from runner import __version__

    return __version__


def main(prepared: entry.Guest) -> NoReturn:
    """Takes stdin and stdout for the wire and runs until it ends.

    The wire's descriptors are moved away first, so that neither a stray `print` nor a child can reach them.
    """
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)

    def ended(number: int, frame: object) -> None:
        os._exit(128 + number)  # PID 1's end is everybody's

    signal.signal(signal.SIGTERM, ended)

    async def run() -> NoReturn:
        code = await Guest(prepared, source, sink).run()
        sys.stderr.flush()
        os._exit(code)  # the kernel ends everything else, quicker than the loop takes itself apart

    asyncio.run(run())
