"""How other terminals reach a sandbox that a session has: they ask the process that has it.

That process listens on a socket in this user's private state folder. Who connects speaks the wire as a host does, and
gets of it what commands need: `Exec`, `Signal`, `Resize`, and `Shutdown`, which asks a process that only holds the
sandbox (`sbx start`) to let it go. What a client started is killed when the client goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runner import __version__
from runner.errors import EngineError, InUseError, SbxError, WireError
from runner.session.commands import Commander
from runner.wire import VERSION
from runner.wire import messages as m
from runner.wire.mux import Mux, MuxClosed, Stream, StreamReset

CONNECT_WITHIN = 10.0
"""Seconds for the process that has the sandbox to answer."""
RELEASE_WITHIN = 30.0
"""Seconds for it to stop the sandbox and go."""
MAX_CLIENTS = 32

LetGo = Callable[[], None]


def socket_path(folder: Path, container: str) -> Path:
    """Where the process that has the container listens."""
    return folder / f"{container[:12]}.sock"


class _Socket:
    """A transport of the wire over a connected socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, size: int) -> bytes:
        try:
            return await self._reader.read(size)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@contextlib.contextmanager
def _short(path: Path) -> Any:
    """The path under a name that fits a socket's address (107 bytes), however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@asynccontextmanager
async def serving(commander: Commander, path: Path, let_go: LetGo | None = None) -> AsyncIterator[None]:
    """Lets other processes of this user run commands in the sandbox, as long as the block lasts.

    Args:
        commander: the session.
        path: `socket_path`; this process has the sandbox's lock, so what lies there is a dead one's.
        let_go: called when another process wants the sandbox and nothing runs in it; None: it is not let go.
    """
    served = _Served(commander, let_go)
    listening = _listen(path)
    server = await asyncio.start_unix_server(served.client, sock=listening) if listening else None
    try:
        yield
    finally:
        if server:
            server.close()
            _unlink(path)
        await served.close()


def _listen(path: Path) -> socket.socket | None:
    """A socket at the path; None where none can be made (a state folder that takes none): nothing else needs it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with _short(path) as short:
            path.unlink(missing_ok=True)
            listening.bind(short)
            path.chmod(0o600)
    except OSError:
        listening.close()
        return None
    return listening


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


class _Served:
    def __init__(self, commander: Commander, let_go: LetGo | None) -> None:
        self._commander = commander
        self._let_go = let_go
        self._clients: set[asyncio.Task[Any]] = set()
        self.running = 0

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        transport = _Socket(reader, writer)
        try:
            if len(self._clients) <= MAX_CLIENTS:
                await _Client(self, self._commander, Mux(transport, m.decode_for_guest, even=False)).run()
        except (MuxClosed, asyncio.CancelledError):
            return  # it went away, or we do
        finally:
            self._clients.discard(task)
            await transport.close()

    async def close(self) -> None:
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def release(self) -> bool:
        """Lets the sandbox go, when it is only held and nothing runs in it."""
        if self._let_go is None or self.running:
            return False
        self._let_go()
        return True


class _Client:
    """One connected process."""

    def __init__(self, served: _Served, commander: Commander, mux: Mux[m.ToGuest]) -> None:
        self._served = served
        self._commander = commander
        self._mux = mux
        self._inner: dict[int, tuple[int, Mux[m.ToHost]]] = {}

    async def run(self) -> None:
        python = ".".join(map(str, sys.version_info[:3]))
        self._mux.post(m.Ready(VERSION, __version__, os.getuid(), os.getgid(), python))
        async with asyncio.TaskGroup() as group:
            try:
                async for message in self._mux.run():
                    match message:
                        case m.Exec():
                            group.create_task(self._exec(message))
                        case m.Signal():
                            if found := self._inner.get(message.id):
                                found[1].post(m.Signal(found[0], message.number))
                        case m.Resize():
                            if found := self._inner.get(message.id):
                                found[1].post(m.Resize(found[0], message.rows, message.columns))
                        case m.Shutdown():
                            if not self._served.release():
                                self._mux.post(m.Failed("refused", "another session has it"))
                        case _:
                            raise MuxClosed(f"{type(message).__name__} is not for this connection")
            finally:
                for inner, mux in self._inner.values():
                    if not mux.closed:
                        mux.post(m.Signal(inner, signal.SIGKILL))

    async def _exec(self, message: m.Exec) -> None:
        mine = [self._mux.accept(c) if c else None for c in (message.stdin, message.stdout, message.stderr)]
        self._served.running += 1
        try:
            theirs = [self._commander.open() if each else None for each in mine]
            channels = [each.channel if each else 0 for each in theirs]
            inner, ended, mux = self._commander.exec(
                message.argv,
                env=message.env,
                cwd=message.cwd,
                tty=message.tty,
                rows=message.rows,
                columns=message.columns,
                stdin=channels[0],
                stdout=channels[1],
                stderr=channels[2],
                timeout=message.timeout,
            )
            self._inner[message.id] = (inner, mux)
            feeding = asyncio.create_task(_pass(mine[0], theirs[0]))
            try:
                _, _, exited = await asyncio.gather(_pass(theirs[1], mine[1]), _pass(theirs[2], mine[2]), ended)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            self._mux.post(m.Exited(message.id, *list(vars(exited).values())[1:]))
        except SbxError as error:
            self._mux.post(m.Failed("internal", error.message))
        finally:
            self._served.running -= 1
            self._inner.pop(message.id, None)


async def _pass(source: Stream | None, sink: Stream | None) -> None:
    """Bytes from one stream to the other; the end and a reset travel on, either way."""
    if source is None or sink is None:
        return
    try:
        async for data in source:
            await sink.write(data)
        sink.close()
    except StreamReset as error:
        source.reset(str(error))
        sink.reset(str(error))


class Remote:
    """A sandbox that another process of this user has, as a `Commander`."""

    def __init__(self, mux: Mux[m.ToHost]) -> None:
        self._mux = mux
        self._next = 1
        self._execs: dict[int, asyncio.Future[m.Exited]] = {}
        self.ready: asyncio.Future[m.Ready] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.refused = False

    def exec(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[m.Exited], Mux[m.ToHost]]:
        if self._mux.closed:
            raise WireError("the session that has the sandbox has ended")
        exec_id, self._next = self._next, self._next + 1
        future: asyncio.Future[m.Exited] = asyncio.get_running_loop().create_future()
        self._execs[exec_id] = future
        self._mux.post(m.Exec(exec_id, list(argv), **options))
        return exec_id, future, self._mux

    def open(self) -> Stream:
        if self._mux.closed:
            raise WireError("the session that has the sandbox has ended")
        return self._mux.open()

    async def release(self) -> bool:
        """Asks a process that only holds the sandbox to let it go. False: it is used."""
        self._mux.post(m.Shutdown())
        async with asyncio.timeout(RELEASE_WITHIN):
            await self.gone.wait()
        return not self.refused

    async def read(self) -> None:
        """Acts on what comes, until the connection ends."""
        failure: SbxError = WireError("the session that has the sandbox has ended")
        try:
            async for message in self._mux.run():
                match message:
                    case m.Ready():
                        if not self.ready.done():
                            self.ready.set_result(message)
                    case m.Exited():
                        future = self._execs.pop(message.id, None)
                        if future and not future.done():
                            future.set_result(message)
                    case m.Failed():
                        self.refused = message.kind == "refused"
                        failure = WireError(message.message)
                        break
        except MuxClosed as error:
            failure = WireError(str(error))
        finally:
            pending: list[asyncio.Future[Any]] = [self.ready, *self._execs.values()]
            for waiting in pending:
                if not waiting.done():
                    waiting.set_exception(failure)
                    waiting.exception()  # looked at: nobody may be waiting
            self.gone.set()


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Remote]:
    """A connection to the process that has a sandbox.

    Raises:
        InUseError: nobody listens there.
        EngineError: it does not answer.
    """
    try:
        with _short(path) as short:
            reader, writer = await asyncio.open_unix_connection(short)
    except OSError:
        raise InUseError("the sandbox is in use by a session that cannot be reached from here") from None
    transport = _Socket(reader, writer)
    remote = Remote(Mux(transport, m.decode_for_host, even=True))
    reading = asyncio.create_task(remote.read())
    try:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                ready = await remote.ready
        except TimeoutError:
            raise EngineError(f"the session that has the sandbox said nothing for {CONNECT_WITHIN:g} s") from None
        if ready.version != VERSION:
            raise WireError(f"the session that has the sandbox is of sbx {ready.program}, another version")
        yield remote
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await transport.close()
