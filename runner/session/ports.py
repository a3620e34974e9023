"""Published ports: the host process listens on its own loopback, and joins each client over the wire.

No port is opened by the engine, so that this works without a network, and so that nothing but this machine's loopback
is ever listened on. UDP travels as one stream a client, each datagram behind its length.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.errors import InUseError, UsageError
from runner.wire import messages as m
from runner.wire.mux import Mux, Stream, StreamReset

if TYPE_CHECKING:
    from runner.kits.plan import Port

ADDRESS = "127.0.0.1"
MAX_CLIENTS = 256
"""Most clients at once, of all ports together."""
UDP_IDLE = 60.0
"""Seconds without a datagram until a UDP client is forgotten."""
UDP_QUEUE = 256
"""Most datagrams of one client that wait; more are dropped, as UDP does."""
_PIECE = 64 * 1024
_LENGTH = struct.Struct(">H")


@dataclass(frozen=True)
class Wanted:
    """A port to publish."""

    container: int
    protocol: str = "tcp"
    host: int = 0
    """0: a free one."""
    name: str = ""
    source: str = ""


@dataclass(frozen=True)
class Published:
    """A port that is listened on."""

    host: int
    wanted: Wanted

    def __str__(self) -> str:
        name = f" ({self.wanted.name})" if self.wanted.name else ""
        return f"{ADDRESS}:{self.host} → {self.wanted.container}/{self.wanted.protocol}{name}"


def parse_publish(text: str) -> Wanted:
    """`[HOSTPORT:]PORT[/tcp|/udp]`, also with `127.0.0.1:` before it. Raises UsageError."""
    match = re.fullmatch(r"(?:(?:127\.0\.0\.1:)?(\d{0,5}):)?(\d{1,5})(?:/(tcp|udp))?", text)
    host, port = (int(match[1] or 0), int(match[2])) if match else (0, 0)
    if not match or not 1 <= port <= 65535 or host > 65535:
        hint = "nothing but 127.0.0.1 is listened on" if text.count(":") > 1 else "for example 8080, 3000:8080, 53/udp"
        raise UsageError(f"--publish {text}: not [HOSTPORT:]PORT[/udp]", hint=hint)
    return Wanted(port, match[3] or "tcp", host, source="--publish")


def wanted(ports: Iterable[Port], options: Sequence[str]) -> tuple[Wanted, ...]:
    """All ports of a run: the kits', then the command line's, which says the host's port of one that a kit names."""
    found: dict[tuple[int, str], Wanted] = {}
    for port in ports:
        found.setdefault(
            (port.container, port.protocol),
            Wanted(port.container, port.protocol, name=port.name, source=f"kit {port.source}"),
        )
    for option in map(parse_publish, options):
        found[option.container, option.protocol] = option
    return tuple(found.values())


class Publisher:
    """Listens from the start, so that the ports can be told; joins clients once the guest is there.

    Args:
        ports: what to publish.
    """

    def __init__(self, ports: Sequence[Wanted]) -> None:
        self.published: list[Published] = []
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server | asyncio.DatagramTransport] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._mux: Mux[m.ToHost] | None = None
        try:
            for port in ports:
                self._bind(port)
        except BaseException:
            self._close_sockets()
            raise

    def _bind(self, port: Wanted) -> None:
        kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
        bound = socket.socket(socket.AF_INET, kind)
        self._sockets.append(bound)
        if kind == socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((ADDRESS, port.host))
        except OSError as error:
            raise InUseError(
                f"port {port.host} of this machine cannot be published: {(error.strerror or str(error)).lower()}",
                hint=f"--publish {port.container} takes a free one",
            ) from None
        bound.setblocking(False)
        self.published.append(Published(bound.getsockname()[1], port))

    async def serve(self, mux: Mux[m.ToHost]) -> None:
        """Joins clients from now on."""
        self._mux = mux
        loop = asyncio.get_running_loop()
        for published, bound in zip(self.published, self._sockets, strict=True):
            if published.wanted.protocol == "udp":
                made = functools.partial(_Datagrams, self, published, bound)
                transport, _ = await loop.create_datagram_endpoint(made, sock=bound)
                self._servers.append(transport)
            else:
                joined = functools.partial(self._join, published)
                self._servers.append(await asyncio.start_server(joined, sock=bound))
        self._sockets.clear()

    async def close(self) -> None:
        """Listens no more, and ends every client. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._close_sockets()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()

    def start(self, work: Any) -> bool:
        """Runs one client. False when there are too many."""
        if len(self._clients) >= MAX_CLIENTS:
            work.close()
            return False
        task = asyncio.create_task(work)
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        return True

    def open(self, published: Published) -> Stream | None:
        """A stream to the port in the sandbox; None when the session is over."""
        if self._mux is None or self._mux.closed:
            return None
        stream = self._mux.open()
        self._mux.post(m.Forward(stream.channel, published.wanted.container, published.wanted.protocol))
        return stream

    def _join(self, published: Published, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.start(self._carry(published, reader, writer)):
            writer.close()

    async def _carry(self, published: Published, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = self.open(published)
        if stream is None:
            writer.close()
            return

        async def inward() -> None:
            while data := await reader.read(_PIECE):
                await stream.write(data)
            stream.close()

        async def outward() -> None:
            async for data in stream:
                writer.write(data)
                await writer.drain()
            with contextlib.suppress(OSError):
                writer.write_eof()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(inward())
                group.create_task(outward())
        except* (OSError, StreamReset):
            # Nobody listens in there, or one end broke off: the client's connection breaks too.
            writer.transport.abort()
        finally:
            stream.reset("the client is gone")
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """One UDP port; each address that sends to it is a client."""

    def __init__(self, publisher: Publisher, published: Published, bound: socket.socket) -> None:
        self._publisher = publisher
        self._published = published
        self._bound = bound
        self._queues: dict[tuple[str, int], asyncio.Queue[bytes]] = {}

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        queue = self._queues.get(address)
        if queue is None:
            queue = self._queues[address] = asyncio.Queue(UDP_QUEUE)
            if not self._publisher.start(self._carry(address, queue)):
                del self._queues[address]
                return
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait(data)

    async def _carry(self, address: tuple[str, int], queue: asyncio.Queue[bytes]) -> None:
        stream = self._publisher.open(self._published)
        try:
            if stream is None:
                return
            async with asyncio.timeout(UDP_IDLE) as idle:
                loop = asyncio.get_running_loop()

                def busy() -> None:
                    idle.reschedule(loop.time() + UDP_IDLE)

                async def inward() -> None:
                    while True:
                        data = await queue.get()
                        busy()
                        await stream.write(_LENGTH.pack(len(data)) + data)

                async def outward() -> None:
                    async for data in datagrams(stream):
                        busy()
                        # asyncio's own sending leaves empty datagrams out.
                        with contextlib.suppress(BlockingIOError):
                            self._bound.sendto(data, address)

                async with asyncio.TaskGroup() as group:
                    sending = group.create_task(inward())
                    receiving = group.create_task(outward())
                    receiving.add_done_callback(lambda _: sending.cancel())
        except* (TimeoutError, OSError):
            pass
        finally:
            self._queues.pop(address, None)
            if stream:
                stream.reset("the client is gone")


async def datagrams(stream: Stream) -> Any:
    """The datagrams of a stream, one after the other."""
    rest = b""
    async for data in stream:
        rest += data
        while len(rest) >= _LENGTH.size and len(rest) >= _LENGTH.size + (size := _LENGTH.unpack_from(rest)[0]):
            yield rest[_LENGTH.size : _LENGTH.size + size]
            rest = rest[_LENGTH.size + size :]
