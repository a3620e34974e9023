"""The model's requests over the wire: what passes, what does not, and how failures are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runner.errors import ConfigError
from runner.gateway.model import ModelRelay, read_key
from runner.gateway.redaction import Redactor
from runner.wire.messages import HttpAbort, HttpFail, HttpHead, HttpRequest
from runner.wire.mux import StreamReset
from tests.unit.gateway.ends import PATIENCE, HttpServer, Wire, free_port, http_server, wire


class Guest:
    """The guest's end: sends requests and reads answers."""

    def __init__(self, ends: Wire, relay: ModelRelay) -> None:
        self.ends, self.relay = ends, relay
        self.id = 0

    async def send(
        self, method: str, url: str, body: bytes | None = None, headers: list[list[str]] | None = None
    ) -> Any:
        """The HttpHead or HttpFail of one request."""
        self.id += 1
        channel = 0
        stream = None
        if body is not None:
            stream = self.ends.guest.open()
            channel = stream.channel
        self.ends.guest.post(HttpRequest(self.id, method, url, headers or [], channel))
        if stream is not None:
            with contextlib.suppress(StreamReset):
                await stream.write(body or b"")
                stream.close()
        return await self.ends.next()

    async def body(self, head: HttpHead) -> bytes:
        stream = self.ends.guest.accept(head.body)
        async with asyncio.timeout(PATIENCE):
            data = await stream.read_all(100_000_000)
        stream.close()
        return data


@contextlib.asynccontextmanager
async def guest(*urls: str, **options: Any) -> AsyncIterator[Guest]:
    relay = ModelRelay(urls, **options)
    async with wire() as ends:

        def on_host(message: Any) -> Any:
            if isinstance(message, HttpAbort):
                relay.abort(message)
                return None
            return relay.handle(message, ends.host)

        ends.on_host = on_host
        try:
            yield Guest(ends, relay)
        finally:
            await relay.close()


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with http_server() as running:
        yield running


def base(server: HttpServer, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{server.port}/v1"


async def test_the_list_of_models_is_fetched_from_the_hosts_loopback(server: HttpServer) -> None:
    async with guest(base(server)) as agent:
        head = await agent.send("GET", base(server) + "/models")
        assert (head.status, await agent.body(head)) == (200, b'{"data":[]}')
        assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/props"), ("POST", "/api/show"), ("GET", "/api/v0/models"), ("POST", "/v1/chat/completions")],
)
async def test_completions_and_context_probes_pass(server: HttpServer, method: str, path: str) -> None:
    async with guest(base(server)) as agent:
        url = f"http://127.0.0.1:{server.port}{path}"
        head = await agent.send(method, url, b"{}" if method == "POST" else None)
        assert head.status == 200
        assert server.requests[0].startswith(f"{method} {path} HTTP/1.1\r\n".encode())


async def test_the_key_is_the_hosts_and_never_the_guests(server: HttpServer) -> None:
    async with guest(base(server), key="real-key") as agent:
        headers = [["Authorization", "Bearer planted"], ["X-Api-Key", "planted"], ["Cookie", "planted=1"]]
        await agent.body(await agent.send("GET", base(server) + "/models", headers=headers))
        assert b"authorization: Bearer real-key\r\n" in server.requests[0]
        assert b"planted" not in server.requests[0]


async def test_without_a_key_no_authorization_is_sent(server: HttpServer) -> None:
    async with guest(base(server)) as agent:
        await agent.body(await agent.send("GET", base(server) + "/models", headers=[["authorization", "Bearer x"]]))
        assert b"authorization" not in server.requests[0].lower()


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("POST", "http://127.0.0.1:PORT/v1/models"),
        ("GET", "http://127.0.0.1:PORT/v1/chat/completions"),
        ("DELETE", "http://127.0.0.1:PORT/v1/models"),
        ("get", "http://127.0.0.1:PORT/v1/models"),
        ("GET\r\nX: y", "http://127.0.0.1:PORT/v1/models"),
        ("GET", "http://127.0.0.1:PORT/v1/models/"),
        ("GET", "http://127.0.0.1:PORT/v1/models?x=1"),
        ("GET", "http://127.0.0.1:PORT/v1/models#x"),
        ("GET", "http://127.0.0.1:PORT/v1/../v1/models"),
        ("GET", "http://127.0.0.1:PORT/v1/%6dodels"),
        ("GET", "http://127.0.0.1:PORT//v1/models"),
        ("GET", "http://127.0.0.1:PORT/v1/models HTTP/1.1\r\nX: y"),
        ("GET", "http://127.0.0.1:PORT/v1/files"),
        ("GET", "http://127.0.0.1:PORT/api/pull"),
        ("GET", "https://127.0.0.1:PORT/v1/models"),
        ("GET", "http://127.0.0.1:1/v1/models"),
        ("GET", "http://127.0.0.1/v1/models"),
        ("GET", "http://127.0.0.2:PORT/v1/models"),
        ("GET", "http://localhost:PORT/v1/models"),
        ("GET", "http://user@127.0.0.1:PORT/v1/models"),
        ("GET", "http://127.0.0.1:PORT@other.invalid/v1/models"),
        ("GET", "http://other.invalid/v1/models"),
        ("GET", "http://127.0.0.1:PORT:80/v1/models"),
        ("GET", "http://127.0.0.1:PORT\\@other.invalid/v1/models"),
        ("GET", "http://[::1]:PORT/v1/models"),
        ("GET", "file:///etc/passwd"),
        ("GET", "//127.0.0.1:PORT/v1/models"),
        ("GET", ""),
    ],
)
async def test_any_other_request_is_denied_and_reaches_nobody(server: HttpServer, method: str, url: str) -> None:
    async with guest(base(server), key="real-key") as agent:
        answer = await agent.send(method, url.replace("PORT", str(server.port)))
        assert isinstance(answer, HttpFail)
        assert answer.reason == "denied"
        assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "HTTP://127.0.0.1:PORT/v1/models",
        "http://2130706433:PORT/v1/models",
        "http://0x7f.1:PORT/v1/models",
        "http://[::ffff:127.0.0.1]:PORT/v1/models",
    ],
)
async def test_another_spelling_of_the_same_url_is_the_same_url(server: HttpServer, url: str) -> None:
    async with guest(base(server)) as agent:
        head = await agent.send("GET", url.replace("PORT", str(server.port)))
        assert head.status == 200
        assert f"host: 127.0.0.1:{server.port}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize(
    "headers",
    [
        [["Accept", "a\r\nX-Injected: 1"]],
        [["Acc\nept", "a"]],
        [["Accept", "a\x00"]],
        [["Accept"]],
        [["Content-Length", "1"], ["content-length", "2"]],
        [["Content-Length", "-1"]],
        [["Content-Length", "1, 1"]],
        [["Content-Length", "99999999999"]],
        [["A", "b"]] * 65,
    ],
)
async def test_headers_that_could_split_a_request_are_denied(server: HttpServer, headers: list[list[str]]) -> None:
    async with guest(base(server)) as agent:
        answer = await agent.send("POST", base(server) + "/chat/completions", b"{}", headers)
        assert answer.reason == "denied"
        assert server.requests == []


async def test_hop_by_hop_and_host_headers_of_the_guest_are_dropped(server: HttpServer) -> None:
    headers = [["Transfer-Encoding", "chunked"], ["Connection", "x"], ["Host", "evil.invalid"], ["Upgrade", "h2c"]]
    async with guest(base(server)) as agent:
        await agent.body(await agent.send("POST", base(server) + "/chat/completions", b"{}", headers))
        head = server.requests[0].lower()
        assert b"evil" not in head
        assert b"chunked" not in head
        assert b"upgrade" not in head
        assert head.endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize("body", [b"12345678901", b"123456789"])
async def test_a_body_of_another_length_than_said_is_no_second_request(server: HttpServer, body: bytes) -> None:
    async with guest(base(server)) as agent:
        answer = await agent.send("POST", base(server) + "/chat/completions", body, [["Content-Length", "10"]])
        assert answer.reason == "denied"
        assert server.requests == []


async def test_a_body_larger_than_the_credit_window_arrives_whole(server: HttpServer) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB
    async with guest(base(server)) as agent:
        head = await agent.send("POST", base(server) + "/chat/completions", body, [["Content-Length", str(len(body))]])
        assert head.status == 200
        assert server.requests[0].endswith(body)


async def test_an_answer_larger_than_the_credit_window_arrives_whole(server: HttpServer) -> None:
    body = bytes(range(256)) * 8192

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    server.answer = answer
    async with guest(base(server)) as agent:
        assert await agent.body(await agent.send("GET", base(server) + "/models")) == body


async def test_a_streamed_answer_is_passed_on_as_it_comes(server: HttpServer) -> None:
    go_on = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await go_on.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    server.answer = answer
    async with guest(base(server)) as agent:
        head = await agent.send("POST", base(server) + "/chat/completions", b"{}")
        stream = agent.ends.guest.accept(head.body)
        assert await stream.read() == b"first"
        go_on.set()
        assert await stream.read_all(100) == b"last"
        assert not any(name.lower() == "transfer-encoding" for name, _ in head.headers)


async def test_an_abort_closes_the_connection_to_the_server(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await reader.read()  # returns when the client closes
        writer.close()

    server.answer = answer
    async with guest(base(server)) as agent:
        head = await agent.send("POST", base(server) + "/chat/completions", b"{}")
        stream = agent.ends.guest.accept(head.body)
        assert await stream.read() == b"first"
        agent.ends.guest.post(HttpAbort(agent.id))
        async with asyncio.timeout(1):
            await server.client_gone.wait()
        with pytest.raises(StreamReset):
            await stream.read()


async def test_an_abort_before_the_first_byte_closes_the_connection_too(server: HttpServer) -> None:
    asked = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    server.answer = answer
    async with guest(base(server)) as agent:
        agent.ends.guest.post(HttpRequest(7, "GET", base(server) + "/models", []))
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            agent.ends.guest.post(HttpAbort(7))
            await server.client_gone.wait()


async def test_an_abort_that_overtakes_its_request_stops_it(server: HttpServer) -> None:
    async with guest(base(server)) as agent:
        agent.relay.abort(HttpAbort(1))
        agent.ends.guest.post(HttpRequest(1, "GET", base(server) + "/models", []))
        agent.ends.guest.post(HttpRequest(2, "GET", base(server) + "/models", []))
        assert (await agent.ends.next()).id == 2
        assert len(server.requests) == 1


async def test_a_redirect_is_handed_to_the_guest_and_not_followed(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")

    server.answer = answer
    async with guest(base(server)) as agent:
        head = await agent.send("GET", base(server) + "/models")
        assert head.status == 307
        assert ["location", "/elsewhere"] in head.headers
        assert len(server.requests) == 1


async def test_host_docker_internal_is_the_hosts_own_loopback_and_that_is_said(server: HttpServer) -> None:
    said: list[str] = []
    url = base(server, "host.docker.internal")
    async with guest(base(server), url, notice=said.append) as agent:
        for _ in range(2):
            head = await agent.send("GET", url + "/models")
            assert head.status == 200
            await agent.body(head)
        assert len(said) == 1
        assert "127.0.0.1" in said[0]
        assert f"host: 127.0.0.1:{server.port}\r\n".encode() in server.requests[0]


async def test_localhost_and_names_under_it_are_the_hosts_loopback(server: HttpServer) -> None:
    for name in ("localhost", "model.localhost"):
        async with guest(base(server, name)) as agent:
            assert (await agent.send("GET", base(server, name) + "/models")).status == 200


async def test_a_port_that_nobody_serves_is_refused() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    async with guest(url) as agent:
        answer = await agent.send("GET", url + "/models")
        assert (answer.reason, url in answer.message) == ("refused", True)


async def test_a_name_that_does_not_resolve_is_unresolvable() -> None:
    async with guest("http://nowhere.invalid/v1") as agent:
        assert (await agent.send("GET", "http://nowhere.invalid/v1/models")).reason == "unresolvable"


async def test_a_server_that_never_answers_is_a_timeout(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server.answer = answer
    async with guest(base(server), read_timeout=0.05) as agent:
        assert (await agent.send("GET", base(server) + "/models")).reason == "timeout"
    async with guest(base(server), total_timeout=0.05) as agent:
        assert (await agent.send("GET", base(server) + "/models")).reason == "timeout"


async def test_what_does_not_speak_http_is_broken(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-hello\r\n")
        writer.close()

    server.answer = answer
    async with guest(base(server)) as agent:
        assert (await agent.send("GET", base(server) + "/models")).reason == "broken"


async def test_an_answer_cut_in_the_middle_resets_its_stream(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
        writer.close()

    server.answer = answer
    async with guest(base(server)) as agent:
        head = await agent.send("GET", base(server) + "/models")
        with pytest.raises(StreamReset, match="broken"):
            await agent.body(head)


async def test_a_guest_that_reads_nothing_holds_up_no_other_request(server: HttpServer) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = 1_000_000 if b"completions" in head else 2
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode() + b"x" * size)

    server.answer = answer
    async with guest(base(server)) as agent:
        await agent.send("POST", base(server) + "/chat/completions", b"{}")  # not read
        head = await agent.send("GET", base(server) + "/models")
        assert await agent.body(head) == b"xx"


async def test_a_body_channel_that_is_not_the_guests_is_denied(server: HttpServer) -> None:
    async with guest(base(server)) as agent:
        agent.ends.guest.post(HttpRequest(1, "POST", base(server) + "/chat/completions", [], 2))
        assert (await agent.ends.next()).reason == "denied"


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://", "http://a b/v1", "http://x/v1?k=1", "http://u:p@x/v1"])
def test_a_model_url_that_is_none_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError):
        ModelRelay([url])


def test_a_key_comes_from_the_named_variable_or_the_run_does_not_start() -> None:
    assert read_key("", {}) == ""
    assert read_key("MODEL_KEY", {"MODEL_KEY": " abc\n"}) == "abc"
    with pytest.raises(ConfigError, match="MODEL_KEY"):
        read_key("MODEL_KEY", {})
    with pytest.raises(ConfigError):
        read_key("MODEL_KEY", {"MODEL_KEY": "a\r\nb"})


async def test_a_secret_travels_neither_to_the_model_nor_back(server: HttpServer) -> None:
    secret = "sk-planted-0123456789"

    async def repeats(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = f"bad key {secret}".encode()
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    server.answer = repeats
    body = f'{{"messages": ["the file holds {secret}"]}}'.encode()
    length = [["Content-Length", str(len(body))]]
    async with guest(base(server), key=secret, masks=Redactor([secret])) as agent:
        for headers in (length, []):
            head = await agent.send("POST", f"{base(server)}/chat/completions", body, headers)
            assert await agent.body(head) == b"bad key " + b"*" * len(secret)
    for request in server.requests:
        sent_head, _, sent_body = request.partition(b"\r\n\r\n")
        assert f"authorization: bearer {secret}".encode() in sent_head.lower()
        assert sent_body == body.replace(secret.encode(), b"*" * len(secret))
