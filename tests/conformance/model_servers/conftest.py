"""Every row runs against a real server, streamed and whole, directly and over the wire through the gateway's relay."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from runner.gateway.model import ModelRelay
from runner.guest.model.client import Model, Retry
from runner.guest.model.failure import ModelFailure
from runner.guest.model.history import user_message
from runner.guest.model.items import Answer, Item, Notice, Retrying, TextDelta, Waiting
from runner.guest.model.transport import Direct, WireTransport, client
from runner.scripted import Answer as Scripted
from runner.scripted import Request, Script, ScriptedServer
from runner.wire import messages as m
from runner.wire.mux import Mux

QUICK = Retry(attempts=3, first=0.01, longest=0.05, total=2.0)


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: Mapping[str, Any]
    description: str = "for tests"


BASH = Tool(
    "bash",
    {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
        "additionalProperties": False,
    },
)
CLOCK = Tool("clock", {"type": "object", "properties": {}})


@dataclass
class Outcome:
    """What came of one request."""

    items: list[Item] = field(default_factory=list)
    failure: ModelFailure | None = None
    requests: list[Request] = field(default_factory=list)

    @property
    def answer(self) -> Answer:
        assert self.failure is None, self.failure
        last = self.items[-1]
        assert isinstance(last, Answer)
        return last

    @property
    def failed(self) -> ModelFailure:
        assert self.failure is not None, self.items
        return self.failure

    def of(self, kind: type) -> list[Any]:
        return [item for item in self.items if isinstance(item, kind)]

    @property
    def streamed(self) -> str:
        return "".join(item.text for item in self.of(TextDelta))


class Bytes:
    """The bytes below a mux, over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, size: int) -> bytes:
        return await self._reader.read(size)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


@contextlib.asynccontextmanager
async def wired(urls: Sequence[str]) -> AsyncIterator[WireTransport]:
    """The guest's transport, joined by a real wire to the host's relay."""
    ours, theirs = socket.socketpair()
    host_reader, host_writer = await asyncio.open_connection(sock=ours)
    guest_reader, guest_writer = await asyncio.open_connection(sock=theirs)
    host: Mux[Any] = Mux(Bytes(host_reader, host_writer), m.decode_for_host, even=True)
    guest: Mux[Any] = Mux(Bytes(guest_reader, guest_writer), m.decode_for_guest, even=False)
    transport = WireTransport(guest)
    relay = ModelRelay(urls)

    async def serve_host() -> None:
        async with asyncio.TaskGroup() as group:
            async for message in host.run():
                if isinstance(message, m.HttpRequest):
                    group.create_task(relay.handle(message, host))
                elif isinstance(message, m.HttpAbort):
                    relay.abort(message)

    async def serve_guest() -> None:
        async for message in guest.run():
            if isinstance(message, m.HttpHead):
                transport.on_head(message)
            elif isinstance(message, m.HttpFail):
                transport.on_fail(message)

    tasks = [asyncio.create_task(serve_host()), asyncio.create_task(serve_guest())]
    try:
        yield transport
    finally:
        await transport.aclose()
        await relay.close()
        for writer in (guest_writer, host_writer):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(params=["stream", "whole"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return request.param == "stream"


@pytest.fixture(params=["direct", "wire"])
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def client_for(route: str, urls: Sequence[str]) -> AsyncIterator[httpx.AsyncClient]:
    if route == "direct":
        async with client(Direct()) as direct:
            yield direct
    else:
        async with wired(urls) as transport, client(transport) as over_wire:
            yield over_wire


Ask = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def ask(streaming: bool, route: str) -> Ask:
    """Asks a server that gives these answers, one after the other, the last for ever."""

    async def run(
        *answers: Scripted,
        tools: Sequence[Tool] = (BASH, CLOCK),
        history: Sequence[Mapping[str, Any]] = (user_message("go on"),),
        sampling: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Outcome:
        given = iter(answers)
        last = [answers[-1]]

        def answer(request: Request) -> Scripted:
            return next(given, last[0])

        outcome = Outcome()
        with ScriptedServer(Script(answer)) as server:
            async with client_for(route, [server.url]) as http:
                model = Model(
                    http,
                    server.url,
                    "scripted",
                    sampling={**(sampling or {}), **({} if streaming else {"stream": False})},
                    **{"retry": QUICK, "first_token_timeout": 5.0, "watchdog_timeout": 5.0, **options},
                )
                try:
                    async with asyncio.timeout(20), aclosing(model.stream(history, tools)) as items:
                        async for item in items:
                            outcome.items.append(item)
                except ModelFailure as failure:
                    outcome.failure = failure
        outcome.requests = server.chats
        return outcome

    return run


__all__ = ["BASH", "CLOCK", "Ask", "Notice", "Outcome", "Retrying", "Tool", "Waiting"]
