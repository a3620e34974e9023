"""The gateway's door in the container: a listener on loopback whose every connection goes to the host as it is.

It parses nothing and decides nothing. What it listens on is open to every program in the container, so what it could
refuse a program could get by asking in another way; all judgement is the host's (`runner.gateway.proxy`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from runner.wire.agent import PROXY_PORT
from runner.wire.messages import Dial
from runner.wire.mux import Mux, MuxClosed, Stream

HOST = "127.0.0.1"
MAX_CONNECTIONS = 512
"""Most connections at once; half of the wire's streams, so that the rest of a session never starves."""
BACKLOG = 256
READ_SIZE = 256 * 1024


@contextlib.asynccontextmanager
async def serve(mux: Mux[Any], *, port: int = PROXY_PORT, call: Callable[[], str] = lambda: "") -> AsyncIterator[int]:
    """Listens while the context lasts; yields the port. Leaving it ends every connection.

    Args:
        mux: the guest's end of the wire.
        port: 0 for any free one.
        call: the id of the tool call that runs now, or empty; it goes to the decision log.

    Raises:
        OSError: the port is taken.
    """
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(_carry(mux, reader, writer, call()))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(connected, HOST, port, limit=READ_SIZE, backlog=BACKLOG)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        tasks = list(connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _carry(mux: Mux[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: str) -> None:
    try:
        stream = mux.open()
    except MuxClosed:
        writer.transport.abort()
        return
    whole = False
    try:
        mux.post(Dial(stream.channel, "proxy", call))
        async with asyncio.TaskGroup() as both:
            both.create_task(_up(reader, stream))
            both.create_task(_down(stream, writer))
        whole = True
    except* (OSError, ValueError):
        pass  # one end is gone: a reset for the other
    finally:
        if whole:
            writer.close()
        else:
            stream.reset("the connection in the sandbox is gone")
            writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _up(reader: asyncio.StreamReader, stream: Stream) -> None:
    while data := await reader.read(READ_SIZE):
        await stream.write(data)
    stream.close()


async def _down(stream: Stream, writer: asyncio.StreamWriter) -> None:
    """Copies until the host ends its direction; the other direction may go on (half-closed connections)."""
    while data := await stream.read():
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
