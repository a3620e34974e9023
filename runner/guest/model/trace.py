"""Every request to the model server and its answer, sent to the host for a file each.

What is traced is what this end sent and received: the host adds the key later, so no trace holds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from runner.wire.messages import Trace
from runner.wire.mux import Mux, MuxClosed, StreamReset

MAX_BODY = 32 * 1024 * 1024
"""Bytes of one body that are kept."""


class Traced(httpx.AsyncBaseTransport):
    """Passes everything on, and tells the host what passed.

    Args:
        inner: sends the requests.
        mux: the guest's end of the wire.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, mux: Mux[Any]) -> None:
        self._inner = inner
        self._mux = mux
        self._sending: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = time.monotonic()
        asked = request.content if request.method not in ("GET", "HEAD") else b""
        answer = bytearray()

        def over(status: int, error: str = "") -> None:
            elapsed = round((time.monotonic() - started) * 1000, 1)
            task = asyncio.create_task(self._send(request, status, elapsed, asked[:MAX_BODY], bytes(answer), error))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            over(0, str(error) or type(error).__name__)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Tee(response.stream, answer, lambda error: over(response.status_code, error))
        return response

    async def _send(
        self, request: httpx.Request, status: int, elapsed: float, asked: bytes, answer: bytes, error: str
    ) -> None:
        try:
            stream = self._mux.open()
            url = str(request.url)
            self._mux.post(Trace(stream.channel, request.method, url, status, elapsed, len(asked), error))
            await stream.write(asked)
            await stream.write(answer)
            stream.close()
        except (MuxClosed, StreamReset):
            return  # the host has no use for it

    async def sent(self, within: float) -> None:
        """Waits until the host has everything, at most `within` seconds."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=within)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Tee(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, kept: bytearray, over: Callable[[str], None]) -> None:
        self._inner = inner
        self._kept = kept
        self._over: Callable[[str], None] | None = over
        self._error = "closed before its end"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._kept += chunk[: MAX_BODY - len(self._kept)]
                yield chunk
        except httpx.HTTPError as error:
            self._error = str(error) or type(error).__name__
            raise
        self._error = ""

    async def aclose(self) -> None:
        await self._inner.aclose()
        if self._over:
            self._over(self._error)
            self._over = None
