"""A tunnel's bytes: what may go first, and then both directions until each has ended.

TLS in a tunnel must name the tunnel's host. What is not TLS passes on other ports than 443, where a rule named the
port; a server may then speak first. Nothing of the program's reaches the server before its first bytes were judged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from runner.gateway import hello
from runner.gateway.decisions import Entry
from runner.gateway.names import BadName, Host, normalise
from runner.gateway.upstream import Link

READ_SIZE = 256 * 1024
_Way = Coroutine[Any, Any, None]


class Duplex(Protocol):
    """The sandbox's end of a connection: the wire's byte stream, or TLS on top of one."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""

    async def write(self, data: bytes) -> None:
        """Sends all of it."""

    def close(self) -> None:
        """Ends this direction."""


class Early:
    """A duplex with bytes that were read already."""

    def __init__(self, client: Duplex, data: bytes) -> None:
        self._client, self._data = client, data

    async def read(self) -> bytes:
        if self._data:
            data, self._data = self._data, b""
            return data
        return await self._client.read()

    async def write(self, data: bytes) -> None:
        await self._client.write(data)

    def close(self) -> None:
        self._client.close()


class OverLimit(OSError):
    """A bound was reached."""


class Mismatch(Exception):
    """The tunnel's first bytes may not pass."""


async def carry(
    client: Duplex,
    link: Link,
    host: Host,
    port: int,
    entry: Entry,
    *,
    count: Callable[[int], None],
    hello_seconds: float,
    idle_seconds: float,
) -> None:
    """Carries both directions to their ends.

    Args:
        entry: its `sent` and `received` are kept up.
        count: called with the size of each piece; raises OverLimit.

    Raises:
        Mismatch: the first bytes may not pass; nothing was sent to the server.
        OverLimit: silent for too long, or too many bytes.
        OSError: one end broke.
    """
    active = time.monotonic()

    async def up() -> None:
        nonlocal active
        try:
            async with asyncio.timeout(hello_seconds if port == 443 else None):
                data = await _first_bytes(client, host, port)
        except TimeoutError:
            raise OverLimit(f"no ClientHello within {hello_seconds:.0f} s") from None
        while data:
            active = time.monotonic()
            entry.sent += len(data)
            count(len(data))
            link.writer.write(data)
            await link.writer.drain()
            data = await client.read()
        if link.writer.can_write_eof():
            link.writer.write_eof()

    async def down() -> None:
        nonlocal active
        while data := await link.reader.read(READ_SIZE):
            active = time.monotonic()
            entry.received += len(data)
            count(len(data))
            await client.write(data)
        client.close()

    async def watch() -> None:
        while (left := active + idle_seconds - time.monotonic()) > 0:  # noqa: ASYNC110 (a clock, no event)
            await asyncio.sleep(left)
        raise OverLimit(f"silent for {idle_seconds:.0f} s")

    await _both(up(), down(), watch())


async def _first_bytes(client: Duplex, host: Host, port: int) -> bytes:
    data = b""
    said: hello.Hello | None = None
    while said is None:
        more = await client.read()
        if not more:
            if data:
                raise Mismatch("it ended inside a ClientHello")
            return b""
        data += more
        try:
            said = hello.read(data)
        except hello.NotHello as error:
            if port != 443 and data[0] != hello.HANDSHAKE:
                return data
            raise Mismatch(str(error)) from None
        if said is None and len(data) > hello.MAX_HELLO:
            raise Mismatch("a ClientHello without an end")
    if not said.server_name:
        if isinstance(host, str):
            raise Mismatch("the TLS in it names no server")
        return data
    try:
        same = normalise(said.server_name) == host
    except BadName:
        same = False
    if not same:
        raise Mismatch(f"the TLS in it names {said.server_name[:100]!r}")
    return data


async def _both(
    up: Coroutine[Any, Any, None], down: Coroutine[Any, Any, None], watch: Coroutine[Any, Any, None]
) -> None:
    """Runs both directions to their ends, and the watch as long as one of them runs."""
    ways = [asyncio.create_task(up), asyncio.create_task(down)]
    everything = [*ways, asyncio.create_task(watch)]
    try:
        pending = set(everything)
        while not all(way.done() for way in ways):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
