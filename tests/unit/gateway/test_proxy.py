"""The egress proxy from a program's socket to a server's: tunnels, plain requests, limits, the log."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigError
from runner.gateway.connection import Limits
from runner.gateway.decisions import DecisionLog, Entry, learned, read_log
from runner.gateway.environment import proxy_environment
from runner.gateway.interception import Authority
from runner.gateway.names import Address
from runner.gateway.proxy import EgressProxy, resolve
from runner.gateway.rules import build
from runner.gateway.upstream import Upstream
from runner.guest import proxy as door
from runner.wire.messages import Dial
from tests.unit.gateway.ends import PATIENCE, HttpServer, Wire, free_port, http_server, wire


async def here(name: str) -> Sequence[Address]:
    """Every name under `.test` is this machine."""
    if not name.endswith(".test"):
        raise OSError("no such name")
    return (ipaddress.ip_address("127.0.0.1"),)


class Sandbox:
    """A program's view: the proxy's port. And the test's: the log."""

    def __init__(self, ends: Wire, port: int, log: list[Entry]) -> None:
        self.ends, self.port, self.log = ends, port, log

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """Everything that comes back until the end."""
        reader, writer = await self.open()
        writer.write(request)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        await close(writer)
        return answer

    async def tunnel(self, place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await self.open()
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            return reader, writer, await reader.readuntil(b"\r\n\r\n")

    async def logged(self, count: int = 1) -> list[Entry]:
        """The log once it has that many entries."""
        async with asyncio.timeout(PATIENCE):
            while len(self.log) < count:
                await asyncio.sleep(0)
        return self.log


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def sandbox(*allow: str, call: str = "", preset: str = "none", **options: Any) -> AsyncIterator[Sandbox]:
    log: list[Entry] = []
    policy = build(preset, allow=["127.0.0.1:*", *allow])
    proxy = EgressProxy(policy, log.append, lookup=options.pop("lookup", here), **options)
    async with wire() as ends:
        ends.on_host = lambda message: proxy.handle(message, ends.host)
        async with door.serve(ends.guest, port=0, call=lambda: call) as port:
            yield Sandbox(ends, port, log)


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with http_server() as running:
        yield running


AUTHORITY = Authority("test servers")


def client_tls(authority: Authority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem.decode())
    return context


@pytest.fixture
async def tls_server() -> AsyncIterator[HttpServer]:
    async with http_server(ssl=AUTHORITY.context("secure.test")) as running:
        yield running


async def test_a_plain_request_is_passed_on_and_its_answer_comes_back(server: HttpServer) -> None:
    async with sandbox("web.test:*") as box:
        answer = await box.ask(
            f"GET http://web.test:{server.port}/a/b?c=d HTTP/1.1\r\nHost: lie.test\r\nX-Own: 1\r\n"
            "Proxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\n"
            "Connection: close, X-Hop\r\nX-Hop: 1\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b'{"data":[]}')
        head = server.requests[0].lower()
        assert head.startswith(b"get /a/b?c=d http/1.1\r\n")
        assert f"host: web.test:{server.port}\r\n".encode() in head
        assert b"x-own: 1" in head
        assert not any(word in head for word in (b"lie.test", b"proxy-", b"x-hop"))


async def test_a_body_is_passed_on_whole_with_either_framing(server: HttpServer) -> None:
    seen: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"chunked" in head.lower():
            seen.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    server.answer = answer
    async with sandbox("web.test:*") as box:
        url = f"http://web.test:{server.port}/"
        start = f"POST {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        sized = start + "Content-Length: 5\r\n\r\nhello"
        chunked = start + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        for request in (sized, chunked):
            assert (await box.ask(request.encode())).startswith(b"HTTP/1.1 204")
        assert server.requests[0].endswith(b"\r\n\r\nhello")
        assert b"hello" in seen[0]


async def test_two_framings_at_once_never_reach_a_server(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    server.answer = answer
    async with sandbox("web.test:*") as box:
        await box.ask(
            f"POST http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n".encode()
        )
        assert all(b"content-length" not in request.lower() for request in server.requests)


async def test_one_connection_serves_many_requests_and_each_is_decided(server: HttpServer) -> None:
    async with sandbox("web.test:*") as box:
        reader, writer = await box.open()
        for _ in range(3):
            writer.write(f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await reader.readuntil(b'{"data":[]}')
        writer.write(b"GET http://other.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
        await close(writer)
        assert [entry.outcome for entry in await box.logged(4)] == ["allowed"] * 3 + ["denied"]


async def test_a_refusal_is_a_403_whose_status_and_body_name_the_rule(server: HttpServer) -> None:
    async with sandbox() as box:
        answer = await box.ask(b"GET http://web.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 Refused by sbx policy: default\r\n")
        assert b"rule: default\nfrom: preset none\n" in answer
        assert b"--allow web.test:80" in answer
        _, writer, head = await box.tunnel("web.test:443")
        await close(writer)
        assert head.startswith(b"HTTP/1.1 403 Refused by sbx policy: default\r\n")
        assert server.requests == []


async def test_a_refused_head_request_has_no_body() -> None:
    async with sandbox() as box:
        answer = await box.ask(b"HEAD http://web.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n",
        b"GET https://web.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET ftp://web.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://user@web.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://web.test:99999/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT web.test HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT web.test:https HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"\x05\x01\x00\r\n\r\n",
        b"GET http://web.test/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET http://web.test/ HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_proxy_request_is_a_400(request_: bytes) -> None:
    async with sandbox("web.test:*") as box:
        assert (await box.ask(request_)).startswith(b"HTTP/1.1 400 ")


async def test_a_tunnel_carries_tls_to_the_server_it_names(tls_server: HttpServer) -> None:
    async with sandbox("secure.test:*", call="call-7") as box:
        reader, writer, head = await box.tunnel(f"secure.test:{tls_server.port}")
        assert head.startswith(b"HTTP/1.1 200 ")
        await writer.start_tls(client_tls(), server_hostname="secure.test")
        writer.write(b"GET / HTTP/1.1\r\nHost: secure.test\r\n\r\n")
        assert (await reader.readuntil(b'{"data":[]}')).startswith(b"HTTP/1.1 200 ")
        await close(writer)
        entry = (await box.logged())[0]
        assert (entry.outcome, entry.host, entry.method, entry.call) == ("allowed", "secure.test", "CONNECT", "call-7")
        assert (entry.rule, entry.source, entry.address) == ("secure.test:*", "--allow", "127.0.0.1")
        assert entry.sent > 300
        assert entry.received > 500


@pytest.mark.parametrize("name", ["other.test", "secure.test.evil.invalid", None])
async def test_tls_for_another_name_or_none_gets_an_alert_and_reaches_nobody(
    tls_server: HttpServer, name: str | None
) -> None:
    async with sandbox("secure.test:*") as box:
        _, writer, _ = await box.tunnel(f"secure.test:{tls_server.port}")
        context = client_tls()
        context.check_hostname = False
        with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
            if name:
                await writer.start_tls(context, server_hostname=name)
            else:
                await writer.start_tls(context, server_hostname="127.0.0.1")  # an address is sent as no name
        await close(writer)
        entry = (await box.logged())[0]
        assert (entry.outcome, entry.rule, entry.sent) == ("denied", "TLS server name", 0)


async def test_a_client_hello_in_many_small_pieces_is_read_all_the_same(tls_server: HttpServer) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_tls().wrap_bio(incoming, outgoing, server_hostname="secure.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    async with sandbox("secure.test:*") as box:
        reader, writer, _ = await box.tunnel(f"secure.test:{tls_server.port}")
        for byte in outgoing.read():
            writer.write(bytes([byte]))
            await writer.drain()
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readexactly(1)) == b"\x16"  # the server's own handshake
        await close(writer)


async def test_a_server_that_speaks_first_is_heard_on_a_port_of_its_own() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-server\r\n")
        writer.write(b"got " + await reader.readline())
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listener, sandbox("git.test:*") as box:
        reader, writer, _ = await box.tunnel(f"git.test:{listener.sockets[0].getsockname()[1]}")
        assert await reader.readline() == b"SSH-2.0-server\r\n"
        writer.write(b"SSH-2.0-client\r\n")
        assert await reader.read() == b"got SSH-2.0-client\r\n"
        await close(writer)


async def test_a_closed_port_and_an_unknown_name_are_a_502_that_says_so() -> None:
    async with sandbox("web.test:*", "unknown.example:*") as box:
        answer = await box.ask(f"GET http://web.test:{free_port()}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 502 No connection")
        answer = await box.ask(b"GET http://unknown.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 Name does not resolve")
        assert [entry.outcome for entry in box.log] == ["failed", "failed"]


async def test_the_connection_goes_to_the_address_that_was_checked(server: HttpServer) -> None:
    answers = iter(["127.0.0.1", "127.0.0.2"])
    asked: list[str] = []

    async def rebinding(name: str) -> Sequence[Address]:
        asked.append(name)
        return (ipaddress.ip_address(next(answers)),)

    async with sandbox("web.test:*", lookup=rebinding) as box:
        answer = await box.ask(
            f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 200")
        assert asked == ["web.test"]
        assert box.log[0].address == "127.0.0.1"


async def test_host_docker_internal_is_a_port_of_the_hosts_when_it_is_named(server: HttpServer) -> None:
    request = (
        f"GET http://host.docker.internal:{server.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    async with sandbox() as box:
        assert (await box.ask(request)).startswith(b"HTTP/1.1 403")
    async with sandbox(f"host.docker.internal:{server.port}") as box:
        assert (await box.ask(request)).startswith(b"HTTP/1.1 200")


async def test_a_large_download_arrives_whole(server: HttpServer) -> None:
    body = bytes(range(256)) * 40_000  # 10 MB

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    server.answer = answer
    async with sandbox("web.test:*") as box:
        answer_ = await box.ask(
            f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer_.partition(b"\r\n\r\n")[2] == body
        assert box.log[0].received > len(body)


async def test_two_hundred_connections_at_once_all_get_their_answer(server: HttpServer) -> None:
    request = f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    async with sandbox("web.test:*") as box:
        answers = await asyncio.gather(*(box.ask(request) for _ in range(200)))
        assert {answer[:15] for answer in answers} == {b"HTTP/1.1 200 OK"}


async def test_connections_over_the_limit_are_refused_and_the_rest_go_on(tls_server: HttpServer) -> None:
    async with sandbox("secure.test:*", limits=Limits(connections=1)) as box:
        _, first, head = await box.tunnel(f"secure.test:{tls_server.port}")
        assert b" 200 " in head
        reader, second = await box.open()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await close(second)
        await first.start_tls(client_tls(), server_hostname="secure.test")
        await close(first)


async def test_bytes_over_the_limit_end_the_connection(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000)

    server.answer = answer
    async with sandbox("web.test:*", limits=Limits(bytes=50_000)) as box:
        with contextlib.suppress(ConnectionResetError):
            got = await box.ask(f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert len(got) < 100_000
        assert "limit of 50000 bytes" in (await box.logged())[0].reason


async def test_silence_ends_a_tunnel_and_a_server_without_an_answer_is_a_502(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server.answer = answer
    async with sandbox("web.test:*", limits=Limits(idle=0.05)) as box:
        reader, writer, _ = await box.tunnel(f"web.test:{server.port}")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await close(writer)
        assert "silent" in (await box.logged())[0].reason
        answer_ = await box.ask(f"GET http://web.test:{server.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer_.startswith(b"HTTP/1.1 502 ")


async def test_a_program_that_says_nothing_does_not_hold_a_connection() -> None:
    async with sandbox(limits=Limits(hello=0.05)) as box:
        reader, writer = await box.open()
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE):
                assert await reader.read() == b""
        await close(writer)


async def test_a_dial_for_another_service_is_reset() -> None:
    async with sandbox() as box:
        stream = box.ends.guest.open()
        box.ends.guest.post(Dial(stream.channel, "shell"))
        with pytest.raises(ConnectionError):
            await stream.read()


async def test_behind_a_companys_proxy_names_are_checked_here_and_the_log_says_via(tls_server: HttpServer) -> None:
    heads: list[bytes] = []

    async def company(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if heads[-1].startswith(b"CONNECT"):
            there, back = await asyncio.open_connection("127.0.0.1", tls_server.port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

            async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    sink.write(data)
                sink.close()

            await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
            await writer.drain()
            writer.close()

    listener = await asyncio.start_server(company, "127.0.0.1", 0)
    url = f"http://me:p%40ss@127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    upstream = Upstream.from_environment({"HTTPS_PROXY": url, "http_proxy": url, "NO_PROXY": "direct.test"})
    async with listener, sandbox("secure.test:*", "plain.example:*", upstream=upstream) as box:
        reader, writer, _ = await box.tunnel(f"secure.test:{tls_server.port}")
        await writer.start_tls(client_tls(), server_hostname="secure.test")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b'{"data":[]}')
        await close(writer)
        plain = await box.ask(b"GET http://plain.example/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert plain.endswith(b"hi")
        refused = await box.ask(b"GET http://other.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 403")
        assert len(heads) == 2
        assert heads[0].startswith(f"CONNECT secure.test:{tls_server.port} HTTP/1.1\r\n".encode())
        assert heads[1].startswith(b"GET http://plain.example:80/x HTTP/1.1\r\n")
        assert all(b"Basic bWU6cEBzcw==" in head for head in heads)
        via = {entry.host: (entry.via, entry.address) for entry in await box.logged(3)}
        assert via["secure.test"] == (url.rpartition("@")[2], "")
        assert via["other.example"] == ("", "")


def test_the_companys_exceptions_go_direct_and_the_host_always_does() -> None:
    upstream = Upstream.from_environment(
        {
            "ALL_PROXY": "http://proxy:8080",
            "no_proxy": "corp.example, .intra.example,10.0.0.0/8,10.1.2.3,x.example:8443",
        }
    )
    direct = [
        ("corp.example", 443),
        ("a.corp.example", 443),
        ("a.intra.example", 443),
        (ipaddress.ip_address("10.9.9.9"), 443),
        ("x.example", 8443),
        ("host.docker.internal", 80),
        ("localhost", 80),
    ]
    for host, port in direct:
        assert upstream.proxy_for(host, port, plain=False) is None, host
    for host in ("notcorp.example", "x.example", "example.org"):
        assert str(upstream.proxy_for(host, 443, plain=False)) == "proxy:8080"


def test_a_proxy_variable_that_is_none_is_an_error_that_hides_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        Upstream.from_environment({"HTTPS_PROXY": "socks5://me:hidden@proxy:1080"})
    assert "hidden" not in str(caught.value)


async def test_the_log_is_a_private_file_of_json_lines_that_can_be_read_back(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []
    entry = Entry("2026-11-30T20:00:00.123Z", "example.com", 8080, "GET", "allowed", "example.com:*", "--allow")
    with DecisionLog(tmp_path / "log", seen.append) as log:
        log(entry)
    assert list(read_log(tmp_path / "log")) == [entry]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert seen[0]["host"] == "example.com"


def test_learning_gives_the_rules_under_which_the_same_run_passes_again() -> None:
    def entry(host: str, port: int, outcome: str = "allowed") -> Entry:
        return Entry("", host, port, "CONNECT", outcome, "open", "preset open")

    entries = [entry("b.example", 443), entry("a.example", 80), entry("b.example", 443), entry("::5", 80)]
    rules = learned([*entries, entry("10.0.0.1", 80, "denied")])
    assert rules == ["[::5]:80", "a.example:80", "b.example"]
    policy = build(allow=rules)
    assert policy.decide("a.example", 80).allowed
    assert policy.decide("b.example", 443).allowed


def test_programs_find_the_proxy_in_both_spellings_and_no_network_stands_in_no_proxy() -> None:
    variables = proxy_environment()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert variables[name] == variables[name.lower()] == "http://127.0.0.1:3128"
    assert variables["NO_PROXY"] == variables["no_proxy"]
    assert "/" not in variables["NO_PROXY"]
    assert "docker" not in variables["NO_PROXY"]


async def test_nothing_that_a_program_sends_raises_in_the_host() -> None:
    chance = random.Random(7)
    seeds = [
        b"GET http://web.test:1/a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"CONNECT web.test:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01\x00\x10\x01\x00\x00\x0cxxxxxxxxxxxx",
        b"POST http://[::1]:80/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]
    pieces = [b"", b"\0", b"\xff", b":", b"\r\n", b"/", b" ", b"["]
    async with sandbox("web.test:*", limits=Limits(hello=0.02, idle=0.05)) as box:
        for _ in range(150):
            data = bytearray(chance.choice(seeds))
            for _ in range(chance.randint(0, 6)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 2)] = chance.choice(pieces)
            with contextlib.suppress(OSError):
                reader, writer = await box.open()
                writer.write(bytes(data))
                writer.write_eof()
                async with asyncio.timeout(PATIENCE):
                    await reader.read()
            await close(writer)
        assert len(box.log) > 25


async def test_the_hosts_resolver_gives_addresses() -> None:
    assert ipaddress.ip_address("127.0.0.1") in await resolve("localhost")
    with pytest.raises(OSError, match=r"."):
        await resolve("nowhere.invalid")
