"""One connection of a program in the container: its requests are read, judged, passed on and written down.

A plain request is built anew from what was read; what a tunnel may carry is in `tunnel`. A tunnel that is opened for a
credential holds a connection like this one again, whose every request must be to the tunnel's host.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

from runner.gateway import hello
from runner.gateway.decisions import Entry, now
from runner.gateway.http import Refused, answer, authority, end_to_end, page, port_number
from runner.gateway.names import Address, BadName, Host, HostPort, normalise, split_port
from runner.gateway.policy import Policy, Resolve, Verdict, judge
from runner.gateway.redaction import Redactor
from runner.gateway.tunnel import READ_SIZE, Duplex, Early, Mismatch, OverLimit, carry
from runner.gateway.upstream import ConnectFailed, Link, Upstream
from runner.wire.mux import StreamReset

MAX_HEAD = 64 * 1024
"""Most bytes of a request's head."""
_METHOD = re.compile(rb"[A-Z]{1,20}")


@dataclass(frozen=True)
class Limits:
    """Bounds of one session's traffic."""

    connections: int = 512
    """Most connections at once."""
    connect: float = 15.0
    """Seconds for a connection to a server."""
    hello: float = 15.0
    """Seconds for a request's head, and for a tunnel's ClientHello."""
    idle: float = 600.0
    """Seconds of silence in both directions, after which a connection is ended."""
    total: float = 6 * 3600.0
    """Seconds of one connection."""
    bytes: int = 64 * 1024**3
    """Most bytes in both directions, all connections together."""


@dataclass(frozen=True)
class Interception:
    """A tunnel that the gateway opens, because a credential is to be set on the requests in it."""

    service: str
    headers: Callable[[], Sequence[tuple[bytes, bytes]]]
    """The headers to set, with their values; raises `OSError` when the credential cannot be had."""
    accept: Callable[[Duplex], Any]
    """An async context that takes the sandbox's TLS and gives a `Duplex` of what is inside."""
    connect: Callable[[Link, str], Any]
    """Starts TLS towards the server on a link; returns the link to use."""
    mask: Callable[[], Redactor] = Redactor
    """Masks the credential in the answers: a server may say what it was sent, and the sandbox must not learn it."""


Intercept = Callable[[Host, int], Interception | None]
"""Whether a tunnel to a host is to be opened."""


@dataclass(frozen=True)
class Way:
    """What every connection of a sandbox shares."""

    policy: Policy
    log: Callable[[Entry], None]
    lookup: Resolve
    upstream: Upstream
    limits: Limits
    intercept: Intercept
    count: Callable[[int], None]
    """Adds to the session's bytes; raises OverLimit."""


@dataclass(frozen=True)
class Inside:
    """The connection is what was inside an opened tunnel."""

    verdict: Verdict
    interception: Interception


class Connection:
    """One connection of a program in the container."""

    def __init__(self, way: Way, client: Duplex, call: str, inside: Inside | None = None) -> None:
        self.way = way
        self.limits = way.limits
        self.client = client
        self.call = call
        self.inside = inside
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self.link: Link | None = None
        self.server: h11.Connection | None = None
        self.place: HostPort | None = None
        self.method = b""

    async def serve(self) -> bool:
        """Answers requests until one end has enough. True when all was said, and the stream ends in order."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self.limits.idle if self.link else self.limits.hello):
                        event = await self._next()
                except h11.RemoteProtocolError as error:
                    await self._refuse(Refused(400, "Bad request", f"this is not HTTP: {error}"))
                    return True
                if not isinstance(event, h11.Request):
                    return True
                entry = Entry(now(), "", 0, event.method.decode("latin-1")[:20], "denied", "", "", call=self.call)
                self.method = event.method
                started = time.monotonic()
                try:
                    if event.method == b"CONNECT" and self.inside is None:
                        await self._connect(event, entry)
                        return True
                    await self._request(event, entry)
                except Refused as refused:
                    entry.reason = entry.reason or refused.text
                    await self._refuse(refused)
                    return True
                except OSError as error:
                    entry.reason = entry.reason or str(error)[:300]
                    raise
                finally:
                    entry.seconds = round(time.monotonic() - started, 4)
                    self.way.log(entry)
                if not self._next_cycle():
                    return True
        finally:
            await self._drop_link()

    # ---- deciding

    async def _judge(self, host: str, port: int, entry: Entry) -> Verdict:
        entry.host, entry.port = host[:260], port
        via = None
        with contextlib.suppress(BadName):
            place = normalise(host)
            entry.host = str(place)
            tunnel = entry.method == "CONNECT" or self.inside is not None
            via = self.way.upstream.proxy_for(place, port, plain=not tunnel)
        if via:
            verdict = await judge(self.way.policy, host, port, _elsewhere)
        else:
            verdict = await judge(self.way.policy, host, port, self.way.lookup)
        decision = verdict.decision
        entry.rule, entry.source = decision.rule, decision.source
        if not decision.allowed:
            entry.reason = decision.reason
            raise Refused(403, f"Refused by sbx policy: {decision.rule}", page(decision))
        entry.outcome = "allowed"
        if verdict.unresolved and not via:
            entry.outcome, entry.reason = "failed", verdict.unresolved
            raise Refused(502, "Name does not resolve", f"sbx gateway: {verdict.unresolved}.\n")
        return verdict

    async def _reach(self, verdict: Verdict, entry: Entry, *, plain: bool) -> Link:
        assert verdict.host is not None
        try:
            link = await self.way.upstream.connect(
                verdict.host, verdict.port, verdict.addresses, plain=plain, within=self.limits.connect
            )
        except ConnectFailed as error:
            entry.outcome, entry.reason = "failed", str(error)
            raise Refused(502, "No connection", f"sbx gateway: {error}.\n") from None
        self.link = link
        entry.address, entry.via = link.address, str(link.via) if link.via else ""
        return link

    # ---- tunnels

    async def _connect(self, request: h11.Request, entry: Entry) -> None:
        if not isinstance(await self._next(), h11.EndOfMessage):
            raise Refused(400, "Bad request", "sbx gateway: a CONNECT has no body.\n")
        host, port = authority(request.target)
        verdict = await self._judge(host, port, entry)
        assert verdict.host is not None
        interception = self.way.intercept(verdict.host, port)
        if interception is not None:
            await self._opened(verdict, interception, entry)
            return
        link = await self._reach(verdict, entry, plain=False)
        early = await self._accept_tunnel()
        try:
            await carry(
                Early(self.client, early),
                link,
                verdict.host,
                port,
                entry,
                count=self.way.count,
                hello_seconds=self.limits.hello,
                idle_seconds=self.limits.idle,
            )
        except Mismatch as error:
            entry.outcome, entry.rule, entry.source = "denied", "TLS server name", "built in"
            entry.reason = f"a tunnel to {entry.host}:{port} carries TLS for that name and nothing else: {error}"
            await self.client.write(hello.ACCESS_DENIED)
            self.client.close()

    async def _accept_tunnel(self) -> bytes:
        """Tells the program that its tunnel stands; returns what it sent already."""
        await self.client.write(self._bytes_of(h11.Response(status_code=200, headers=[], reason=b"Connected")))
        early, _ = self.http.trailing_data
        return early

    async def _opened(self, verdict: Verdict, interception: Interception, entry: Entry) -> None:
        """A tunnel whose TLS ends here: its requests are read, the credential is set, and TLS begins anew."""
        entry.credential = interception.service
        async with interception.accept(Early(self.client, await self._accept_tunnel())) as clear:
            await Connection(self.way, clear, self.call, Inside(verdict, interception)).serve()

    # ---- plain requests

    async def _request(self, request: h11.Request, entry: Entry) -> None:
        if not _METHOD.fullmatch(request.method):
            raise Refused(400, "Bad request", "sbx gateway: not a method.\n")
        host, port, path = self._target(request)
        verdict = await self._judge(host, port, entry)
        assert verdict.host is not None
        place = HostPort(verdict.host, port)
        extra: Sequence[tuple[bytes, bytes]] = ()
        if self.inside:
            entry.credential = self.inside.interception.service
            try:
                extra = self.inside.interception.headers()
            except OSError as error:
                entry.outcome, entry.reason = "failed", str(error)
                raise Refused(502, "No credential", f"sbx gateway: {error}.\n") from None
        link = await self._server(verdict, place, entry)
        target = f"http://{place}{path}" if link.absolute else path
        default = 443 if self.inside else 80
        header = str(place) if port != default else str(place).rpartition(":")[0]
        await self._exchange(link, request, target.encode("ascii"), header.encode("ascii"), extra, entry)

    def _target(self, request: h11.Request) -> tuple[str, int, str]:
        try:
            text = request.target.decode("ascii")
        except UnicodeDecodeError:
            raise Refused(400, "Bad request", "sbx gateway: a URL is ASCII.\n") from None
        if self.inside:
            verdict = self.inside.verdict
            said = next((value for name, value in request.headers if name == b"host"), b"").decode("latin-1")
            try:
                host, port = split_port(said)
                same = normalise(host) == verdict.host and int(port or 443) == verdict.port
            except ValueError:
                same = False
            if not same or not text.startswith("/"):
                raise Refused(421, "Misdirected", "sbx gateway: the request names another host than its tunnel.\n")
            return str(verdict.host), verdict.port, text
        try:
            parts = urlsplit(text)
            if parts.scheme.lower() != "http":
                hint = "use CONNECT for https" if parts.scheme.lower() == "https" else "this is a proxy"
                raise Refused(400, "Bad request", f"sbx gateway: a request here names a whole http:// URL; {hint}.\n")
            if "@" in parts.netloc:
                raise ValueError("a user name in the URL")
            host, port = split_port(parts.netloc)
            if not host or parts.netloc.endswith(":"):
                raise ValueError("no host")
            number = port_number(port, 80)
        except ValueError as error:
            raise Refused(400, "Bad request", f"sbx gateway: not a URL: {error}.\n") from None
        path = (parts.path or ("*" if request.method == b"OPTIONS" else "/")) + (
            f"?{parts.query}" if parts.query else ""
        )
        return host, number, path

    async def _server(self, verdict: Verdict, place: HostPort, entry: Entry) -> Link:
        """The connection to the server: the last one again, if to the same place and an address still allowed."""
        link = self.link
        if link and self.place == place and self.server and self.server.our_state is h11.IDLE:
            allowed = {str(address) for address in verdict.addresses}
            if not link.reader.at_eof() and (link.via or link.address in allowed):
                entry.address, entry.via = link.address, str(link.via) if link.via else ""
                return link
        await self._drop_link()
        link = await self._reach(verdict, entry, plain=self.inside is None)
        if self.inside:
            try:
                async with asyncio.timeout(self.limits.connect):
                    link = self.link = await self.inside.interception.connect(link, str(verdict.host))
            except (OSError, TimeoutError) as error:
                entry.outcome, entry.reason = "failed", f"TLS with {place} failed: {error}"
                raise Refused(502, "TLS failed", f"sbx gateway: {entry.reason}.\n") from None
        self.server = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self.place = place
        return link

    async def _exchange(
        self,
        link: Link,
        request: h11.Request,
        target: bytes,
        host: bytes,
        extra: Sequence[tuple[bytes, bytes]],
        entry: Entry,
    ) -> None:
        server = self.server
        assert server
        mask = self.inside.interception.mask() if self.inside else Redactor()
        body = mask.stream(same_length=True)
        if mask:
            extra = (*extra, (b"Accept-Encoding", b"identity"))  # what is compressed cannot be masked
        headers = [(b"Host", host), *end_to_end(request.headers, {name.lower() for name, _ in extra}), *extra]
        if link.via and link.absolute and link.via.authorization:
            headers.append((b"Proxy-Authorization", link.via.authorization.encode("ascii")))
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" in names:
            headers.append((b"Transfer-Encoding", b"chunked"))
        outgoing = h11.Request(method=request.method, target=target, headers=headers)

        async def send(event: h11.Event) -> None:
            data = server.send(event) or b""
            entry.sent += len(data)
            self.way.count(len(data))
            link.writer.write(data)
            await link.writer.drain()

        async def upload() -> None:
            try:
                await send(outgoing)
            except OSError:
                return  # the server's answer, if there is one, tells more
            try:
                while not isinstance(event := await self._next(), h11.EndOfMessage):
                    if not isinstance(event, h11.Data):
                        raise OSError("the program in the sandbox went away")
                    piece = h11.Data(data=bytes(event.data))
                    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                        await send(piece)
                await send(h11.EndOfMessage())
            except (OSError, h11.ProtocolError):
                link.writer.transport.abort()  # half a request must not look like a whole one

        sending = asyncio.create_task(upload())
        started = False
        try:
            while True:
                event = await self._from_server(link, server, entry)
                if isinstance(event, h11.Response):
                    started = True
                    await self.client.write(self._bytes_of(answer(event, mask)))
                elif isinstance(event, h11.Data):
                    if piece := body.feed(bytes(event.data)):
                        await self.client.write(self._bytes_of(h11.Data(data=piece)))
                elif isinstance(event, h11.EndOfMessage):
                    rest = body.flush()
                    last = self._bytes_of(h11.Data(data=rest)) if rest else b""
                    await self.client.write(last + self._bytes_of(h11.EndOfMessage()))
                    break
                elif not isinstance(event, h11.InformationalResponse):
                    raise h11.RemoteProtocolError("the server closed the connection without an answer")
        except (OSError, h11.RemoteProtocolError, TimeoutError) as error:
            if isinstance(error, StreamReset | OverLimit):
                raise
            entry.outcome, entry.reason = "failed", f"{self.place}: {error or 'silent for too long'}"[:300]
            if started:
                raise OSError(entry.reason) from None
            raise Refused(502, "Bad gateway", f"sbx gateway: {entry.reason}.\n") from None
        finally:
            if not sending.done():
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _from_server(self, link: Link, server: h11.Connection, entry: Entry) -> Any:
        while True:
            event = server.next_event()
            if event is not h11.NEED_DATA:
                return event
            async with asyncio.timeout(self.limits.idle):
                data = await link.reader.read(READ_SIZE)
            entry.received += len(data)
            self.way.count(len(data))
            server.receive_data(data)

    # ---- the program in the container

    async def _next(self) -> Any:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self.http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                await self.client.write(self._bytes_of(go_on))
            self.http.receive_data(await self.client.read())

    def _bytes_of(self, event: h11.Event) -> bytes:
        return self.http.send(event) or b""

    async def _refuse(self, refused: Refused) -> None:
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = refused.text.encode("utf-8")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("Proxy-Agent", "sbx"),
        ]
        reason = refused.reason.encode("ascii", "replace")
        with contextlib.suppress(StreamReset):
            head = h11.Response(status_code=refused.status, headers=headers, reason=reason)
            data = self._bytes_of(head)
            if self.method != b"HEAD":
                data += self._bytes_of(h11.Data(data=body))
            await self.client.write(data + self._bytes_of(h11.EndOfMessage()))

    def _next_cycle(self) -> bool:
        """Whether another request may follow on this connection."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        if self.server and self.server.our_state is h11.DONE and self.server.their_state is h11.DONE:
            self.server.start_next_cycle()
        else:
            self.server = None
        return True

    async def _drop_link(self) -> None:
        link, self.link, self.server, self.place = self.link, None, None, None
        if link:
            await link.close()


async def _elsewhere(name: str) -> Sequence[Address]:
    """Stands for the look-up when a company's proxy makes it."""
    raise OSError("resolved by the company's proxy")
