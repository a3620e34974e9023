"""Both ends of a real wire over a socket pair, and small servers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from runner.wire import messages
from runner.wire.mux import Mux

PATIENCE = 5.0
"""Seconds that a test waits for what must happen."""


class SocketTransport:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self, size: int) -> bytes:
        return await self.reader.read(size)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Wire:
    """`host` and `guest` are the two muxes; what arrives at each goes to a handler, each in a task of its own."""

    host: Mux[Any]
    guest: Mux[Any]

    def __init__(self) -> None:
        self.on_host: Callable[[Any], Awaitable[None] | None] = lambda message: None
        self.at_guest: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self) -> Any:
        """The next message that reached the guest."""
        async with asyncio.timeout(PATIENCE):
            return await self.at_guest.get()


@contextlib.asynccontextmanager
async def wire() -> AsyncIterator[Wire]:
    ends = Wire()
    left, right = socket.socketpair()
    host = SocketTransport(*await asyncio.open_connection(sock=left))
    guest = SocketTransport(*await asyncio.open_connection(sock=right))
    ends.host = Mux(host, messages.decode_for_host, even=True)
    ends.guest = Mux(guest, messages.decode_for_guest, even=False)
    handlers: set[asyncio.Task[None]] = set()

    async def run_host() -> None:
        async for message in ends.host.run():
            result = ends.on_host(message)
            if result is not None:
                task = asyncio.ensure_future(result)
                handlers.add(task)

    async def run_guest() -> None:
        async for message in ends.guest.run():
            ends.at_guest.put_nowait(message)

    runs = [asyncio.create_task(run_host()), asyncio.create_task(run_guest())]
    try:
        yield ends
    finally:
        for task in [*runs, *handlers]:
            task.cancel()
        results = await asyncio.gather(*runs, *handlers, return_exceptions=True)
        for end in (host, guest):
            end.writer.close()
            with contextlib.suppress(OSError):
                await end.writer.wait_closed()
        for result in results:
            if isinstance(result, Exception):
                raise result  # what a guest sends must never raise in the host


class HttpServer:
    """Answers each request with what `answer` says, and remembers the requests' bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer: Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = ok
        self.client_gone = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(reader):
                length = next(
                    (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0
                )
                body = await reader.readexactly(length)
                self.requests.append(head + body)
                await self.answer(head, reader, writer)
                await writer.drain()
                if writer.is_closing():
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.client_gone.set()
            writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return b""


async def ok(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n" + b'{"data":[]}')


@contextlib.asynccontextmanager
async def http_server(host: str = "127.0.0.1", **options: Any) -> AsyncIterator[HttpServer]:
    server = HttpServer()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(server.serve(reader, writer)))

    listener = await asyncio.start_server(connected, host, 0, **options)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
