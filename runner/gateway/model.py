"""The model server's requests: the guest asks over the wire, the host checks, adds the key and sends.

The guest is untrusted. What it may reach is a closed list made from the agent's own URLs: the list of models, chat
completions, and the three probes that tell a server's context window. A request is looked up in that list after
normalisation and then built anew from the list's own text, so nothing that the guest wrote becomes part of a URL.

Two outcomes look alike and must be told apart. *No answer* (`HttpFail`) may make the guest try its next URL; *an answer
that ends too soon* (a reset of the body's stream) must not, because the model may have begun to speak.

`host.docker.internal` means this host, as it would in a container on the engine's bridge; the connection then goes to
127.0.0.1, since it is the host process itself that connects. That is said once by `notice`.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError
from runner.gateway.model_urls import PLAIN_URL, Target, allowed, cut
from runner.gateway.names import HOST_ALIAS
from runner.gateway.redaction import Redactor
from runner.wire.messages import HttpAbort, HttpFail, HttpHead, HttpRequest
from runner.wire.mux import Mux, MuxClosed, Stream, StreamReset

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 5.0
"""Seconds for name, connection and TLS."""
READ_TIMEOUT = 3600.0
"""Seconds of silence from the server. The guest's own timers are shorter; this one ends what it forgot."""
TOTAL_TIMEOUT = 6 * 3600.0
"""Seconds from a request to the end of its answer."""
KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept; common servers close theirs after 5."""
MAX_REQUEST = 64 * 1024 * 1024
"""Most bytes of a request's body."""
MAX_RESPONSE = 512 * 1024 * 1024
"""Most bytes of an answer's body."""
MAX_PARALLEL = 16
"""Most requests at once."""
MAX_URL = 4096
MAX_HEADERS = 64
REMEMBERED_ABORTS = 64
"""An abort may overtake the start of its own request's task; that many are remembered."""

PASSED_ON = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
"""Request headers of the guest's that reach the server. `Content-Length` is checked and set by the host."""
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Answer headers that are about the connection to the server, not about the answer."""

_VALUE = re.compile(r"[ -~\x80-\xff\t]*")


class _Denied(Exception):
    """The guest asked for what it may not have; the text says what."""


def read_key(variable: str, environ: Mapping[str, str]) -> str:
    """The model server's key from the host's environment.

    Args:
        variable: the variable's name; empty means that the server wants no key.
        environ: the host's environment.

    Raises:
        ConfigError: the variable is not set, or holds what cannot stand in a header.
    """
    if not variable:
        return ""
    key = environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"the model server's key is to come from {variable}, which is not set",
            hint=f"export {variable}=… and run again",
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"the key in {variable} holds characters that cannot stand in a header")
    return key


class ModelRelay:
    """Carries the guest's requests to the model server.

    Args:
        urls: the agent's URLs (`baseUrl`, `fallback`) as they stand in the agent that the guest was told.
        key: sent as `Authorization: Bearer …` on each request; empty for none.
        notice: called with a line for the user, when there is something to say.
        masks: takes secrets out of what travels, both ways; the key's own header aside.
        proxy: URL of an HTTP proxy for what is not on this host; empty for none. The environment is not asked.
        connect_timeout, read_timeout, total_timeout: seconds.

    Raises:
        ConfigError: one of the URLs is not an http or https URL.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key: str = "",
        *,
        notice: Callable[[str], None] | None = None,
        proxy: str = "",
        masks: Redactor | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
        total_timeout: float = TOTAL_TIMEOUT,
    ) -> None:
        self._key = key
        self._notice = notice or (lambda text: None)
        self._proxy = proxy
        self._masks = masks or Redactor()
        self._total = total_timeout
        self._timeout = {
            "connect": connect_timeout,
            "read": read_timeout,
            "write": read_timeout,
            "pool": connect_timeout,
        }
        self._allowed: dict[tuple[str, str, str], Target] = {}
        for url in urls:
            self._allowed |= allowed(url)
        self._transports: dict[bool, httpx.AsyncHTTPTransport] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._aborted: deque[int] = deque(maxlen=REMEMBERED_ABORTS)
        self._said: set[str] = set()

    async def handle(self, request: HttpRequest, mux: Mux[Any]) -> None:
        """Answers one request; returns when its answer is over, failed or aborted. Run it as a task of its own."""
        if request.id in self._aborted:
            self._aborted.remove(request.id)
            _give_up(request, mux, "aborted")
            return
        if request.id in self._running or len(self._running) >= MAX_PARALLEL:
            _give_up(request, mux, "denied")
            reason = "this id is in use" if request.id in self._running else f"{MAX_PARALLEL} requests are under way"
            mux.post(HttpFail(request.id, "denied", f"the gateway refuses: {reason}"))
            return
        task = asyncio.create_task(self._exchange(request, mux))
        self._running[request.id] = task
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del self._running[request.id]

    def abort(self, message: HttpAbort) -> None:
        """The guest wants no more of it: the connection to the server is closed at once."""
        if task := self._running.get(message.id):
            task.cancel()
        else:
            self._aborted.append(message.id)

    async def close(self) -> None:
        """Ends what is under way and closes idle connections."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()

    async def _exchange(self, request: HttpRequest, mux: Mux[Any]) -> None:
        body: _Body | None = None
        try:
            body = _Body(mux.accept(request.body) if request.body else None)
            target = self._check(request)
            if target.local and target.moved:
                self._say_once(target)
            await self._send(request, target, body, mux)
        except _Denied as denied:
            mux.post(HttpFail(request.id, "denied", f"the gateway refuses: {denied}"))
        except MuxClosed as error:
            mux.post(HttpFail(request.id, "denied", f"the gateway refuses: {error}"))
        finally:
            if body:
                body.over()

    def _check(self, request: HttpRequest) -> Target:
        if len(request.url) > MAX_URL or not PLAIN_URL.fullmatch(request.url):
            raise _Denied(f"{request.url[:200]!r} is not a plain URL of the model server")
        try:
            origin, path = cut(request.url)
        except ValueError as error:
            raise _Denied(f"{request.url[:200]!r}: {error}") from None
        target = self._allowed.get((request.method, origin, path))
        if target is None:
            raise _Denied(f"{request.method[:16]!r} {request.url[:200]} is not a request to this agent's model server")
        return target

    async def _send(self, request: HttpRequest, target: Target, body: _Body, mux: Mux[Any]) -> None:
        import httpx

        headers = _headers(request.headers)
        length = headers.pop("content-length", "")
        headers["host"] = target.host_header
        if self._masks:
            headers["accept-encoding"] = "identity"  # what is compressed cannot be masked
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        deadline = asyncio.get_running_loop().time() + self._total
        try:
            async with asyncio.timeout_at(deadline):
                content: bytes | AsyncIterator[bytes] | None = None
                if length:
                    headers["content-length"] = length
                    content = _masked(body.pieces(int(length)), self._masks)
                elif body.stream:
                    content = self._masks.data(
                        await body.collect(), same_length=True
                    )  # many local servers do not read a chunked body
                outgoing = httpx.Request(
                    request.method, target.url, headers=headers, content=content, extensions={"timeout": self._timeout}
                )
                response = await self._transport(target).handle_async_request(outgoing)
        except StreamReset:
            mux.post(HttpFail(request.id, "broken", "the request's body ended too soon"))
        except TimeoutError:
            mux.post(HttpFail(request.id, "timeout", f"{target.said} gave no answer within {self._total:.0f} s"))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            mux.post(HttpFail(request.id, *_reason(error, target.said)))
        else:
            await self._answer(request, response, mux, target, deadline)

    async def _answer(
        self, request: HttpRequest, response: httpx.Response, mux: Mux[Any], target: Target, deadline: float
    ) -> None:
        import httpx

        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        outgoing: Stream | None = None
        why = "aborted"
        size = 0
        try:
            outgoing = mux.open()
            mux.post(HttpHead(request.id, response.status_code, _answer_headers(response), outgoing.channel))
            masked = self._masks.stream(same_length=True)
            async with asyncio.timeout_at(deadline):
                async for chunk in stream:
                    size += len(chunk)
                    if size > MAX_RESPONSE:
                        why = f"broken: the answer of {target.said} is over {MAX_RESPONSE} bytes"
                        return
                    await outgoing.write(masked.feed(chunk))
                await outgoing.write(masked.flush())
            outgoing.close()
            why = ""
        except StreamReset:
            why = ""  # the guest gave the answer up, or the wire is gone
        except TimeoutError:
            why = f"timeout: the answer of {target.said} took longer than {self._total:.0f} s"
        except (httpx.HTTPError, OSError) as error:
            why = ": ".join(_reason(error, target.said))
        finally:
            if outgoing and why:
                outgoing.reset(why)
            await stream.aclose()

    def _transport(self, target: Target) -> httpx.AsyncHTTPTransport:
        """One pool for what is on this host, which no proxy ever sees, and one for the rest."""
        import httpx

        if (transport := self._transports.get(target.local)) is None:
            secure = any(t.url.startswith("https:") for t in self._allowed.values() if t.local == target.local)
            transport = self._transports[target.local] = httpx.AsyncHTTPTransport(
                verify=ssl.create_default_context() if secure else False,
                trust_env=False,
                retries=0,
                proxy=self._proxy if self._proxy and not target.local else None,
                limits=httpx.Limits(
                    max_connections=MAX_PARALLEL,
                    max_keepalive_connections=MAX_PARALLEL,
                    keepalive_expiry=KEEP_ALIVE,
                ),
            )
        return transport

    def _say_once(self, target: Target) -> None:
        if target.said not in self._said:
            self._said.add(target.said)
            self._notice(f"{target.said}: {HOST_ALIAS} is this machine; connecting to its own 127.0.0.1")


class _Body:
    """A request's body as it comes from the guest."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._whole = False

    async def collect(self) -> bytes:
        """All of it, when the guest did not say how long it is."""
        assert self.stream
        try:
            data = await self.stream.read_all(MAX_REQUEST)
        except ValueError:
            raise _Denied(f"the request's body is over {MAX_REQUEST} bytes") from None
        self._whole = True
        return data

    async def pieces(self, length: int) -> AsyncIterator[bytes]:
        """Piece by piece, and exactly as long as was said: a longer one would be a second request."""
        size = 0
        if self.stream:
            while data := await self.stream.read():
                size += len(data)
                if size > length:
                    break
                yield data
        if size != length:
            raise _Denied(f"the request's body is not the {length} bytes that its Content-Length says")
        self._whole = True

    def over(self) -> None:
        if self.stream and self._whole:
            self.stream.close()
        elif self.stream:
            self.stream.reset("the request is over")


def _headers(pairs: list[list[str]]) -> dict[str, str]:
    """The guest's headers that are passed on, lower case. Raises _Denied for what could split a request in two."""
    if len(pairs) > MAX_HEADERS:
        raise _Denied(f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for pair in pairs:
        if len(pair) != 2 or not all(_VALUE.fullmatch(text) for text in pair):
            raise _Denied("a header with a line break or other control character")
        name, value = pair[0].lower(), pair[1].strip()
        if name == "content-length":
            if name in headers or not re.fullmatch(r"[0-9]{1,12}", value) or int(value) > MAX_REQUEST:
                raise _Denied(f"Content-Length {value[:40]!r}; it must be one number up to {MAX_REQUEST}")
            headers[name] = value
        elif name in PASSED_ON:
            headers.setdefault(name, value)
    return headers


def _answer_headers(response: httpx.Response) -> list[list[str]]:
    named = {name.strip().lower() for name in response.headers.get("connection", "").split(",")}
    return [
        [name.decode("latin-1"), value.decode("latin-1")]
        for name, value in response.headers.raw
        if name.decode("latin-1").lower() not in HOP_BY_HOP | named
    ]


async def _masked(pieces: AsyncIterator[bytes], masks: Redactor) -> AsyncIterator[bytes]:
    """The same bytes, as many, with each secret masked."""
    stream = masks.stream(same_length=True)
    async for piece in pieces:
        if data := stream.feed(piece):
            yield data
    if rest := stream.flush():
        yield rest


def _give_up(request: HttpRequest, mux: Mux[Any], reason: str) -> None:
    if request.body:
        mux.accept(request.body).reset(reason)


def _reason(error: BaseException, said: str) -> tuple[str, str]:
    """An `HttpFail`'s reason and message for what the HTTP client raised."""
    import httpx

    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return "unresolvable", f"{said}: the host's name does not resolve ({cause.strerror})"
        if isinstance(cause, ssl.SSLError):
            return "broken", f"{said}: TLS failed: {cause}"
    if isinstance(error, httpx.ConnectTimeout):
        return "connect-timeout", f"{said}: no connection in time"
    if isinstance(error, httpx.PoolTimeout):
        return "timeout", f"{said}: too many requests are under way"
    if isinstance(error, httpx.TimeoutException):
        return "timeout", f"{said}: the server is silent"
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if errno.ECONNREFUSED in numbers:
        return "refused", f"{said}: connection refused; nothing listens there"
    if isinstance(error, httpx.ConnectError):
        words = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), str(error))
        return "refused", f"{said}: no connection: {words}"
    return "broken", f"{said}: the connection broke: {str(error) or type(error).__name__}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it was raised from."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [e for e in (current.__cause__, current.__context__) if e]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
