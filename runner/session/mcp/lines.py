"""A server's stdin and stdout, over the wire, as the streams that the SDK reads and writes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import mcp.types as types
from mcp.shared.message import SessionMessage

from runner.wire.mux import StreamReset

MAX_LINE = 8 * 1024 * 1024
"""Bytes of one message of a server's."""
MAX_UNASKED = 10_000
"""Messages that answer nothing (notifications, requests, noise) that one server may send in its life."""
STDERR_KEPT = 4096
"""Bytes of a server's stderr that are kept, for the message when it dies."""


class Bytes(Protocol):
    """One direction or both of a byte stream of the wire's."""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...


class Flood(Exception):
    """The server sends more than it may; the text says what."""


async def lines(stream: Bytes) -> AsyncIterator[bytes]:
    """The stream's lines without their end. Raises Flood, StreamReset."""
    held = bytearray()
    while data := await stream.read():
        start = len(held)
        held += data
        begun = 0
        while (end := held.find(b"\n", max(start, begun))) >= 0:
            yield bytes(held[begun:end])
            begun = start = end + 1
        del held[:begun]
        if len(held) > MAX_LINE:
            raise Flood(f"it sent a line of more than {MAX_LINE // 1024**2} MiB")


async def keep_tail(stream: Bytes, tail: deque[bytes]) -> None:
    """Reads a server's stderr to its end and keeps the last of it."""
    try:
        while data := await stream.read():
            tail.append(data[-STDERR_KEPT:])
            while len(tail) > 1 and sum(map(len, tail)) - len(tail[0]) >= STDERR_KEPT:
                tail.popleft()
    except StreamReset:
        return


@asynccontextmanager
async def joined(stdin: Bytes, stdout: Bytes, ended: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's two streams over a server's stdin and stdout.

    Args:
        ended: called once with the reason when the server can no longer be spoken to.
    """
    to_session, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        unasked = 0
        reason = ""
        try:
            async for line in lines(stdout):
                if not line.strip():
                    continue
                item: SessionMessage | Exception
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except (ValueError, RecursionError) as error:
                    item = error
                else:
                    item = SessionMessage(message)
                    if isinstance(message, (types.JSONRPCResponse, types.JSONRPCError)):
                        unasked -= 1
                unasked += 1
                if unasked > MAX_UNASKED:
                    raise Flood(f"it sent more than {MAX_UNASKED} messages that nobody asked for")
                await to_session.send(item)
        except Flood as flood:
            reason = str(flood)
        except StreamReset as reset:
            reason = str(reset)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            await to_session.aclose()
        ended(reason)

    async def write() -> None:
        try:
            async for item in from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.write(text.encode("utf-8", "replace") + b"\n")
        except StreamReset as reset:
            ended(str(reset))
        finally:
            await from_session.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield read_stream, write_stream
        finally:
            group.cancel_scope.cancel()
            for stream in (to_session, read_stream, write_stream, from_session):
                await stream.aclose()
