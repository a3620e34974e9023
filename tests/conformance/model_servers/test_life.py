"""A request's life: cancel, a reader that stops, a server that dies and comes back, large answers."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest

from runner.guest.model.answer import MAX_ANSWER
from runner.guest.model.client import Model, Retry
from runner.guest.model.failure import ModelFailure
from runner.guest.model.history import user_message
from runner.guest.model.items import Answer, Retrying, TextDelta
from runner.guest.model.transport import client
from runner.scripted import Answer as Scripted
from runner.scripted import Chunks, Pause, Raw, Request, Say, ScriptedServer
from runner.scripted.answers import CUT
from runner.wire.mux import MAX_STREAMS
from tests.conformance.model_servers.conftest import client_for, wired
from tests.conformance.model_servers.forms import chunk

HISTORY = [user_message("go")]
CLOSES_WITHIN = 1.0
"""Seconds from a cancel until the server has seen the connection close."""


def endless(request: Request) -> Scripted:
    return Chunks([item for _ in range(3000) for item in (chunk({"content": "x"}), Pause(0.01))])


@pytest.mark.parametrize("answer", [endless, lambda request: Say("late", wait=30)], ids=["mid-answer", "before a byte"])
async def test_cancelling_closes_the_connection_at_once(route: str, answer: object) -> None:
    with ScriptedServer(answer) as server:  # type: ignore[arg-type]
        async with client_for(route, [server.url]) as http:
            model = Model(http, server.url, "m")

            async def turn() -> None:
                async with aclosing(model.stream(HISTORY)) as items:
                    async for _ in items:
                        pass

            task = asyncio.create_task(turn())
            async with asyncio.timeout(5):
                while not server.chats:
                    await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.chats[0].gone.wait, CLOSES_WITHIN)


async def test_a_reader_that_stops_early_closes_the_connection(route: str) -> None:
    with ScriptedServer(endless) as server:
        async with client_for(route, [server.url]) as http:
            async with aclosing(Model(http, server.url, "m").stream(HISTORY)) as items:
                async for item in items:
                    if isinstance(item, TextDelta):
                        break
            assert await asyncio.to_thread(server.chats[0].gone.wait, CLOSES_WITHIN)


async def test_a_cancelled_request_leaves_the_client_usable(route: str) -> None:
    answers = iter([endless, lambda request: Say("fine")])
    with ScriptedServer(lambda request: next(answers)(request)) as server:
        async with client_for(route, [server.url]) as http:
            model = Model(http, server.url, "m")
            async with aclosing(model.stream(HISTORY)) as items:
                await anext(items)
            assert [i async for i in model.stream(HISTORY)][-1] == Answer(
                "fine",
                finish="stop",
                usage=pytest.approx(
                    {
                        "prompt_tokens": len(server.chats[1].body) // 4,
                        "completion_tokens": 2,
                        "total_tokens": len(server.chats[1].body) // 4 + 2,
                    }
                ),
            )


async def test_a_server_that_dies_in_mid_stream_and_comes_back_answers_the_next_question(route: str) -> None:
    answers = iter([Chunks([chunk({"content": "so far"}), Pause(0.05), CUT]), Say("back again")])
    server = ScriptedServer(lambda request: next(answers)).start()
    try:
        async with client_for(route, [server.url]) as http:
            model = Model(http, server.url, "m", retry=Retry(attempts=8, first=0.05, longest=0.2, total=5.0))
            with pytest.raises(ModelFailure) as caught:
                async for _ in model.stream(HISTORY):
                    pass
            assert caught.value.kind == "broken" and caught.value.partial is not None
            server.stop()
            items = []
            async for item in model.stream(HISTORY):
                items.append(item)
                if isinstance(item, Retrying) and item.attempt == 2:
                    server.start()
            assert isinstance(items[-1], Answer) and items[-1].text == "back again"
    finally:
        server.stop()


async def test_a_server_that_stays_away_is_an_error_that_names_the_url(route: str) -> None:
    server = ScriptedServer(lambda request: Say("x")).start()
    server.stop()
    async with client_for(route, [server.url]) as http:
        model = Model(http, server.url, "m", retry=Retry(attempts=2, first=0.01))
        with pytest.raises(ModelFailure, match="refused") as caught:
            async for _ in model.stream(HISTORY):
                pass
    assert caught.value.kind == "unreachable" and server.url in caught.value.message


async def test_a_slow_reader_runs_no_timer_out(route: str) -> None:
    deltas = [item for n in range(4) for item in (chunk({"content": str(n)}), Pause(0.01))]
    with ScriptedServer(lambda request: Chunks([*deltas, chunk({}, "stop")])) as server:
        async with client_for(route, [server.url]) as http:
            model = Model(http, server.url, "m", watchdog_timeout=0.2, first_token_timeout=0.5)
            items = []
            async for item in model.stream(HISTORY):
                items.append(item)
                await asyncio.sleep(0.25)  # the reader's own slowness, longer than the timer
    assert items[-1].text == "0123"


async def test_an_answer_of_200_000_deltas_of_one_byte_comes_through() -> None:
    line = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
    with ScriptedServer(lambda request: Chunks([line * 1000] * 200 + [chunk({}, "stop")])) as server:
        async with client_for("wire", [server.url]) as http:
            began = time.monotonic()
            async for item in Model(http, server.url, "m").stream(HISTORY):
                last = item
            took = time.monotonic() - began
    assert isinstance(last, Answer) and len(last.text) == 200_000
    assert took / 200_000 < 0.0001, f"{took / 200_000 * 1e6:.0f} µs a delta"


async def test_an_answer_of_100_mib_is_cut_at_the_cap_with_what_had_arrived() -> None:
    big = chunk({"content": "x" * 1024 * 1024})
    with ScriptedServer(lambda request: Chunks([big] * 100)) as server:
        async with client_for("direct", [server.url]) as http:
            with pytest.raises(ModelFailure) as caught:
                async for _ in Model(http, server.url, "m").stream(HISTORY):
                    pass
            assert await asyncio.to_thread(server.chats[0].gone.wait, CLOSES_WITHIN)
    assert caught.value.kind == "too-large" and caught.value.partial is not None
    assert MAX_ANSWER - 1024 * 1024 <= len(caught.value.partial.text) <= MAX_ANSWER


async def test_nothing_of_the_environment_decides_where_a_request_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with ScriptedServer(lambda request: Say("hi")) as server:
        async with client_for("direct", [server.url]) as http:
            assert [i async for i in Model(http, server.url, "m").stream(HISTORY)][-1].text == "hi"


async def test_a_header_that_is_not_ascii_is_no_matter(route: str) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nx-motd: caf\xe9\r\nconnection: close\r\n\r\n"
        + b'{"choices": [{"message": {"content": "hi"}}]}'
    )
    with ScriptedServer(lambda request: Raw([answer])) as server:
        async with client_for(route, [server.url]) as http:
            assert [i async for i in Model(http, server.url, "m").stream(HISTORY)][-1].text == "hi"


async def test_a_server_that_answers_without_reading_a_large_request_is_understood(route: str) -> None:
    head = b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 9\r\nconnection: close\r\n\r\ntoo large"
    with ScriptedServer(lambda request: Raw([head])) as server:
        async with client_for(route, [server.url]) as http:
            with pytest.raises(ModelFailure) as caught:
                async for _ in Model(http, server.url, "m").stream([user_message("x" * 4 * 1024 * 1024)]):
                    pass
    assert caught.value.kind == "overflow"


async def test_many_requests_leave_no_stream_of_the_wire_behind() -> None:
    with ScriptedServer(lambda request: Say("hi")) as server:
        async with wired([server.url]) as transport, client(transport) as http:
            model = Model(http, server.url, "m")
            for _ in range(MAX_STREAMS // 2 + 10):  # two streams a request
                assert [i async for i in model.stream(HISTORY)][-1].text == "hi"
