"""The engine's attach connection as a transport of the wire.

The engine's SDK attaches with blocking sockets that it takes from under its HTTP client; an event loop needs its own.
The protocol is one request that the engine answers by handing the connection over: what is written is the program's
stdin, what is read comes in blocks of its stdout or stderr (`type 0 0 0 length payload`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from runner.errors import EngineError, EngineTimeout, NotFoundError

if TYPE_CHECKING:
    from runner.engine import Endpoint

ATTACH_WITHIN = 30.0
"""Seconds until the engine hands the connection over."""
_BLOCK = struct.Struct(">BxxxI")
_STDERR = 2
_LIMIT = 1024 * 1024


class Attached:
    """A container's stdin, stdout and stderr.

    Args:
        on_log: takes each piece of the program's stderr.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_log: Callable[[bytes], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_log = on_log
        self._left = 0
        self._is_log = False

    async def read(self, size: int) -> bytes:
        """The next bytes of stdout; empty when the program is gone."""
        while True:
            if not self._left:
                try:
                    header = await self._reader.readexactly(_BLOCK.size)
                except asyncio.IncompleteReadError:
                    return b""
                kind, self._left = _BLOCK.unpack(header)
                self._is_log = kind == _STDERR
                continue
            data = await self._reader.read(min(size, self._left))
            if not data:
                return b""
            self._left -= len(data)
            if not self._is_log:
                return data
            self._on_log(data)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Ends the program's stdin, and with it the guest."""
        self._writer.close()


async def attach(endpoint: Endpoint, version: str, container: str, on_log: Callable[[bytes], None]) -> Attached:
    """Joins a container's three streams, before it is started, so that nothing is lost.

    Args:
        endpoint: the engine.
        version: the API version.
        container: id of the container.

    Raises:
        EngineError: the engine refuses, or says nothing for `ATTACH_WITHIN` seconds.
    """
    try:
        async with asyncio.timeout(ATTACH_WITHIN):
            return await _attach(endpoint, version, container, on_log)
    except TimeoutError:
        raise EngineTimeout(f"the engine did not attach within {ATTACH_WITHIN:g} s", place=container) from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise EngineError(f"attaching to the container failed: {error}", place=container) from None


async def _attach(endpoint: Endpoint, version: str, container: str, on_log: Callable[[bytes], None]) -> Attached:
    if endpoint.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(endpoint.path, limit=_LIMIT)
    else:
        context = endpoint.tls.context() if endpoint.tls else None
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context, limit=_LIMIT)
    try:
        writer.write(
            f"POST /v{version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
            f"Host: {endpoint.host or 'docker'}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            "Content-Length: 0\r\n\r\n".encode("ascii")
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = head.split(" ", 2)[1] if head.startswith("HTTP/") else "?"
        if status not in ("101", "200"):
            body = (await reader.read(2000)).decode("utf-8", "replace").strip()
            error = NotFoundError if status == "404" else EngineError
            raise error(f"the engine would not attach: {status} {body}", place=container)
    except BaseException:
        writer.close()
        raise
    return Attached(reader, writer, on_log)
