"""The sandbox's end of published ports: joins a client of the host's to the program that listens in here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from runner.wire.mux import Stream, StreamReset

PIECE = 64 * 1024
LOOPBACK = ("127.0.0.1", "::1")
"""Tried in this order: many a server listens on one of them only."""
CONNECT_WITHIN = 10.0
"""Seconds."""
_LENGTH = struct.Struct(">H")
_MAX_DATAGRAM = 65535


async def forward(stream: Stream, port: int, protocol: str) -> None:
    """Until one of the ends is over. `protocol` is `tcp` or `udp`."""
    try:
        await (_datagrams(stream, port) if protocol == "udp" else _connection(stream, port))
    except (OSError, StreamReset) as error:
        stream.reset(str(error))


async def _connection(stream: Stream, port: int) -> None:
    reason = ""
    for address in LOOPBACK:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                reader, writer = await asyncio.open_connection(address, port)
            break
        except OSError as error:
            reason = reason or (error.strerror or str(error)).lower()
    else:
        stream.reset(f"nothing listens on port {port} in the sandbox: {reason}")
        return

    async def inward() -> None:
        async for data in stream:
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def outward() -> None:
        while data := await reader.read(PIECE):
            await stream.write(data)
        stream.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(inward())
            group.create_task(outward())
    except* OSError as errors:
        stream.reset(str(errors.exceptions[0]))
    finally:
        writer.close()


async def _datagrams(stream: Stream, port: int) -> None:
    """One client's datagrams, each behind its length, from and to a socket of its own."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as joined:
        joined.setblocking(False)
        joined.connect((LOOPBACK[0], port))

        async def outward() -> None:
            while True:
                try:
                    data = await loop.sock_recv(joined, _MAX_DATAGRAM)
                except ConnectionRefusedError:
                    continue  # nobody listens yet: a datagram is lost, as they are
                await stream.write(_LENGTH.pack(len(data)) + data)

        answers = asyncio.create_task(outward())
        try:
            rest = b""
            async for data in stream:
                rest += data
                while len(rest) >= _LENGTH.size and len(rest) >= _LENGTH.size + (size := _LENGTH.unpack_from(rest)[0]):
                    datagram, rest = rest[_LENGTH.size : _LENGTH.size + size], rest[_LENGTH.size + size :]
                    # An empty datagram is one too, which asyncio's own sending leaves out; a full queue drops, as UDP.
                    with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                        joined.send(datagram)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
    stream.close()
