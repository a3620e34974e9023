"""httpx over the wire, or directly.

The container has no network of its own. A request to the model travels as an HttpRequest message, its body and the
answer's body as byte streams; the host checks it, adds the key and sends it. No port is opened in the container for
it: a tool could use it, or take it first and play the model.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from runner.guest.model.failure import ModelFailure
from runner.wire.agent import CLOSED, PROXIED
from runner.wire.messages import HttpAbort, HttpFail, HttpHead, HttpRequest
from runner.wire.mux import Mux, Stream, StreamReset

CONNECT_TIMEOUT = 10.0
"""Seconds for a direct connection to be made. Over the wire the host has a bound of its own."""

_DROPPED = frozenset({"host", "connection", "transfer-encoding"})
"""Headers of this end's connection; the host has its own."""


class Refused(httpx.ConnectError):
    """Nobody listens there."""


class Unresolvable(httpx.ConnectError):
    """The host's name has no address."""


class Denied(httpx.ConnectError):
    """The gateway's policy does not let this request out."""


_FAILURES: dict[str, type[httpx.TransportError]] = {
    "refused": Refused,
    "unresolvable": Unresolvable,
    "connect-timeout": httpx.ConnectTimeout,
    "timeout": httpx.ReadTimeout,
    "denied": Denied,
    "broken": httpx.ReadError,
}


class WireTransport(httpx.AsyncBaseTransport):
    """Sends requests over the wire. The guest's main hands it the messages that answer them.

    Args:
        mux: the guest's end of the wire.
    """

    def __init__(self, mux: Mux[Any]) -> None:
        self._mux = mux
        self._waiting: dict[int, asyncio.Future[HttpHead]] = {}
        self._bodies: dict[int, Stream] = {}
        self._last = 0

    # ---- called by the guest's main

    def on_head(self, message: HttpHead) -> None:
        """The answer to a request begins."""
        waiting = self._waiting.get(message.id)
        if waiting and not waiting.done():
            waiting.set_result(message)
        else:
            self._mux.accept(message.body).reset("nobody waits for it")

    def on_fail(self, message: HttpFail) -> None:
        """There is no answer to a request, or its body broke off."""
        error = _FAILURES.get(message.reason, httpx.ReadError)(message.message or message.reason)
        waiting = self._waiting.get(message.id)
        if waiting and not waiting.done():
            waiting.set_exception(error)
        elif body := self._bodies.get(message.id):
            body.fail(message.message or message.reason)

    def on_closed(self, reason: str) -> None:
        """The wire is gone."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(httpx.ReadError(reason))

    # ---- httpx

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._last += 1
        number = self._last
        waiting: asyncio.Future[HttpHead] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        upload = None if request.method in ("GET", "HEAD") else self._mux.open()
        sent = [[name, value] for name, value in request.headers.multi_items() if name not in _DROPPED]
        channel = upload.channel if upload else 0
        self._mux.post(HttpRequest(number, request.method, str(request.url), sent, channel))
        sending = asyncio.create_task(_send_body(request, upload)) if upload else None
        answered = False
        try:
            head = await waiting
            stream = self._mux.accept(head.body)
            stream.close()  # nothing goes the other way
            answered = True
        finally:
            self._waiting.pop(number, None)
            if not answered:
                self._forget(number, waiting)
                _give_up(sending, upload)
        self._bodies[number] = stream
        body = _Body(self, number, stream, sending, upload)
        # bytes, since httpx takes text as ASCII and servers send more than that
        headers = [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in head.headers
        ]
        return httpx.Response(head.status, headers=headers, stream=body, request=request)

    def _forget(self, number: int, waiting: asyncio.Future[HttpHead]) -> None:
        """The request was cancelled, or failed: the host stops what it may still be doing."""
        if waiting.cancelled() or not waiting.done():
            self._mux.post(HttpAbort(number))
        elif not waiting.exception():  # the answer had begun in the same moment
            self._mux.post(HttpAbort(number))
            self._mux.accept(waiting.result().body).reset("no longer wanted")

    async def aclose(self) -> None:
        self.on_closed("the client is closed")

    def finished(self, number: int, *, whole: bool) -> None:
        self._bodies.pop(number, None)
        if not whole:
            self._mux.post(HttpAbort(number))


class _Body(httpx.AsyncByteStream):
    def __init__(
        self,
        transport: WireTransport,
        number: int,
        stream: Stream,
        sending: asyncio.Task[None] | None,
        upload: Stream | None,
    ) -> None:
        self._transport = transport
        self._number = number
        self._stream = stream
        self._sending = sending
        self._upload = upload
        self._whole = False
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while data := await self._stream.read():
                yield data
        except StreamReset as error:
            raise httpx.ReadError(str(error)) from error
        self._whole = True

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.finished(self._number, whole=self._whole)
            if not self._whole:
                self._stream.reset("no longer wanted")
            _give_up(self._sending, self._upload)


async def _send_body(request: httpx.Request, upload: Stream) -> None:
    try:
        async for chunk in request.stream:  # type: ignore[union-attr]
            await upload.write(chunk)
        upload.close()
    except StreamReset:
        pass  # the host has answered, or failed, without reading it all: what it says is what counts


def _give_up(sending: asyncio.Task[None] | None, upload: Stream | None) -> None:
    if sending and not sending.done():
        sending.cancel()
    if upload:
        upload.reset("over")


class Direct(httpx.AsyncBaseTransport):
    """Connects from this process, and tells refused from unresolvable."""

    def __init__(self) -> None:
        self._by_scheme: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        scheme = request.url.scheme
        if scheme not in self._by_scheme:
            # plain HTTP has nothing to verify, and reading the certificates costs 30 ms
            self._by_scheme[scheme] = httpx.AsyncHTTPTransport(verify=scheme == "https", trust_env=False)
        try:
            return await self._by_scheme[scheme].handle_async_request(request)
        except httpx.ConnectTimeout:
            raise
        except httpx.ConnectError as error:
            causes = list(_causes(error))
            if any(isinstance(cause, socket.gaierror) for cause in causes):
                raise Unresolvable(str(error)) from error
            if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
                raise Refused(str(error)) from error
            raise

    async def aclose(self) -> None:
        for transport in self._by_scheme.values():
            await transport.aclose()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it came from; the connection library groups one error for each address."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__


class Routes(httpx.AsyncBaseTransport):
    """Chooses how a request travels.

    Args:
        wire: for loopback names, and for everything while the container has no network.
        network: `none`, `proxy`, or the container's network; with the last, other names are connected to from there.
    """

    def __init__(self, wire: httpx.AsyncBaseTransport, network: str) -> None:
        self._wire = wire
        self._has_network = network not in ("none", CLOSED, PROXIED)
        self._direct = Direct()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        direct = self._has_network and not is_loopback(request.url.host)
        return await (self._direct if direct else self._wire).handle_async_request(request)

    async def aclose(self) -> None:
        await self._wire.aclose()
        await self._direct.aclose()


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine by name or number."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def client(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """The client for the model: nothing from the environment, no redirects; the timers are the caller's own."""
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
        headers={"user-agent": "sbx", "accept-encoding": "identity"},
    )


def connection_failure(error: httpx.HTTPError, url: str, *, begun: bool = False) -> ModelFailure:
    """What a failed connection means.

    Args:
        begun: the server had begun to answer.
    """
    match error:
        case Denied():
            return ModelFailure("refused", f"{url}: refused by the gateway: {error}")
        case Unresolvable():
            return ModelFailure("unreachable", f"{url}: the name cannot be resolved")
        case Refused():
            return ModelFailure("unreachable", f"{url}: nobody listens there (connection refused)")
        case httpx.ConnectTimeout():
            return ModelFailure("unreachable", f"{url}: no connection within its time limit")
        case httpx.ConnectError():
            return ModelFailure("unreachable", f"{url}: no connection: {error}")
        case httpx.TimeoutException():
            return ModelFailure("timeout", f"{url}: no answer within its time limit")
    what = "the connection was cut in mid-answer" if begun else "the connection was cut before an answer"
    return ModelFailure("broken", f"{url}: {what} ({error or type(error).__name__})")
