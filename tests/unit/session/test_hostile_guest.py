"""A guest that is the host's enemy: it ends its own session with an error, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runner.errors import SbxError, WireError
from runner.gateway.redaction import EventMask, Redactor
from runner.sandbox.container import Order
from runner.sandbox.profile import Profile
from runner.session.record import Record
from runner.session.session import KEPT_EVENTS, MAX_TASKS, Session, Setup
from runner.session.state import Folders
from runner.wire import VERSION, frames
from runner.wire import messages as m
from runner.wire.agent import Agent
from runner.wire.mux import MAX_UNCLAIMED
from runner.wire.pipes import PipeTransport

SECONDS = 20.0


class Wire(PipeTransport):
    """The host's end of the attach connection."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.fileno(), sock.fileno())
        self._sock = sock

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class Enemy:
    """In the place of a sandbox: its guest says what a test wants."""

    container = "c" * 64
    ended = False

    def __init__(self) -> None:
        self.host, self.guest = socket.socketpair()
        self.order = Order("enemy", "s", "sha256:0", "plan", Profile(workspace="none"), "/nowhere", "/workspace")
        self.end_: PipeTransport | None = None

    async def start(self, on_log: Callable[[bytes], None]) -> Wire:
        self.end_ = PipeTransport(self.guest.fileno(), self.guest.fileno())
        await self.say(m.Ready(VERSION, "0", 1000, 1000, "3.11.0"), m.Event("guest.started", {}))
        return Wire(self.host)

    async def say(self, *messages: m.Message) -> None:
        for message in messages:
            await self.send(frames.encode(frames.CONTROL, m.encode(message)))

    async def send(self, data: bytes) -> None:
        """Bytes as they are. A host that has hung up is what an enemy must expect."""
        assert self.end_
        with contextlib.suppress(ConnectionError):
            await self.end_.write(data)

    async def state(self) -> dict[str, Any]:
        return {"ExitCode": 0}

    async def end(self, attached: Wire | None) -> None:
        if attached:
            attached.close()
        self.ended = True


class NoRelay:
    async def handle(self, request: m.HttpRequest, mux: Any) -> None:
        await asyncio.Event().wait()

    def abort(self, message: m.HttpAbort) -> None: ...

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def opened(tmp_path: Path, **more: Any) -> AsyncIterator[tuple[Session, Enemy]]:
    enemy = Enemy()
    record = Record.create(Folders(tmp_path / "state", tmp_path / "config", tmp_path / "cache"))
    session = Session(enemy, Setup(Agent("demo", "x", ())), record, NoRelay(), **more)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(SECONDS):
            await session.__aenter__()
            yield session, enemy
            enemy.guest.shutdown(socket.SHUT_RDWR)
            await session.close()
        assert enemy.ended
    finally:
        record.close()
        enemy.guest.close()
        enemy.host.close()


async def asked(session: Session) -> list[m.Event]:
    return [event async for event in session.ask("hello")]


async def recorded(session: Session, text: str) -> None:
    while text not in session.record.path.read_text():
        await asyncio.sleep(0.01)


def control(text: str) -> bytes:
    return frames.encode(frames.CONTROL, text.encode())


DEEP = '{"type":"Event","name":"notice","data":{"text":' + "[" * 900 + "]" * 900 + "}}"

BROKEN = {
    "no frames at all": b"\xff" * 4096,
    "text": b"Traceback (most recent call last):\n" * 100,
    "a frame of 4 GiB": struct.pack(">II", 2**32 - 1, 0),
    "a chunk over the cap": struct.pack(">II", frames.MAX_CHUNK + 1, 1),
    "no JSON": control("{"),
    "no object": control("[1]"),
    "an unknown message": control('{"type":"Turn","id":1,"prompt":"rm"}'),
    "a number with 4000 digits": control('{"type":"Event","name":"x","data":[' + "9" * 4000 + "]}"),
    "a time with 4000 digits": control(
        '{"type":"Trace","channel":1,"method":"","url":"","status":1,"request_bytes":0,"ms":' + "9" * 4000 + "}"
    ),
    "nested 100,000 deep": control("[" * 100_000),
    "a credit for nobody and then a stream of ours": control('{"type":"Credit","channel":9,"bytes":-5}')
    + control('{"type":"Dial","channel":2,"host":"h","port":1,"service":"proxy"}'),
    "more streams than there may be": b"".join(frames.encode(2 * i + 1, b"x") for i in range(1100)),
    "more than its credit": frames.encode(1, b"x" * frames.MAX_CHUNK) * 5,
}


@pytest.mark.parametrize("what", BROKEN)
async def test_garbage_ends_the_turn_with_an_error(tmp_path: Path, what: str) -> None:
    async with opened(tmp_path) as (session, enemy):
        turn = asyncio.create_task(asked(session))
        await enemy.send(BROKEN[what])
        with pytest.raises(WireError):
            await turn


async def test_what_breaks_the_host_itself_ends_the_turn_too(tmp_path: Path) -> None:
    async with opened(tmp_path, mask=EventMask(Redactor(["a-secret-of-the-host"]))) as (session, enemy):
        turn = asyncio.create_task(asked(session))
        await asyncio.sleep(0)
        await enemy.send(control(DEEP))
        await enemy.say(m.TurnDone(1, "completed"))
        with contextlib.suppress(SbxError):
            await turn


async def test_a_flood_of_questions_ends_the_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as (session, enemy):
        never = asyncio.Event()

        async def person(ask: m.Ask) -> dict[str, Any]:
            await never.wait()
            return {}

        session.on_ask = person
        turn = asyncio.create_task(asked(session))
        await enemy.say(*(m.Ask(i, "consent", {}) for i in range(MAX_TASKS + 10)))
        with pytest.raises(WireError, match="at once"):
            await turn


async def test_a_flood_between_turns_is_kept_within_bounds(tmp_path: Path) -> None:
    async with opened(tmp_path) as (session, enemy):
        tracemalloc.start()
        try:
            await enemy.say(*(m.Event("model.delta", {"text": "x" * 100_000}) for _ in range(400)))
            await enemy.say(*(m.Event("notice", {"text": "y" * 100_000}) for _ in range(100)))
            await enemy.say(*(m.Event("notice", {"text": str(i)}) for i in range(KEPT_EVENTS + 50)))
            await recorded(session, f'"text":"{KEPT_EVENTS + 49}"')
            assert tracemalloc.get_traced_memory()[0] < 10_000_000
        finally:
            tracemalloc.stop()
        waiting = [event.data["text"] for event in session.waiting()]
        assert waiting == [str(i) for i in range(50, KEPT_EVENTS + 50)]


async def test_a_turn_that_never_stops_talking_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.session.session.MAX_SAID", 1_000_000)
    async with opened(tmp_path) as (session, enemy):
        for turn in (1, 2):  # each turn has all of it
            asking = asyncio.create_task(asked(session))
            await asyncio.sleep(0)
            await enemy.say(*(m.Event("hook", {"reason": "x" * 100_000}) for _ in range(7)), m.TurnDone(turn, "failed"))
            assert len(await asking) == 7
        asking = asyncio.create_task(asked(session))
        await asyncio.sleep(0)
        await enemy.say(*(m.Event("tool.end", {"output": "x" * 200_000}) for _ in range(7)))
        with pytest.raises(WireError, match="in one turn"):
            await asking


async def test_a_forged_end_is_not_the_turns_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as (session, enemy):
        await enemy.say(m.TurnDone(1, "completed"), m.Event("mark", {}))
        await recorded(session, '"name":"mark"')
        turn = asyncio.create_task(asked(session))
        await enemy.say(m.Event("turn.end", {"answer": "one"}), m.TurnDone(9, "completed"))
        await enemy.say(m.Event("turn.end", {"answer": "two"}), m.TurnDone(1, "completed"))
        answers = [event.data["answer"] for event in await turn if event.name == "turn.end"]
        assert answers == ["one", "two"]


async def test_bytes_that_no_message_names_are_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as (session, enemy):
        turn = asyncio.create_task(asked(session))
        chunk = b"x" * frames.MAX_CHUNK
        count, times = MAX_UNCLAIMED // frames.WINDOW + 2, frames.WINDOW // frames.MAX_CHUNK
        flood = b"".join(frames.encode(2 * stream + 1, chunk) * times for stream in range(count))
        sending = asyncio.create_task(enemy.send(flood))  # never done: nobody reads on
        with pytest.raises(WireError, match="no message named"):
            await turn
        sending.cancel()


async def test_the_record_stays_json_whatever_is_said(tmp_path: Path) -> None:
    odd = '{"type":"Event","name":"\\u001b[2J","data":{"a":NaN,"b":1e999,"c":"\\ud800","\\n":[[]]}}'
    async with opened(tmp_path) as (session, enemy):
        turn = asyncio.create_task(asked(session))
        await enemy.send(control(odd) + control(DEEP))
        await enemy.say(m.TurnDone(1, "completed"))
        await turn
    lines = [json.loads(line) for line in session.record.path.read_text().splitlines()]
    [data] = [line["data"] for line in lines if line["name"] == "\x1b[2J"]
    assert data == {"a": "nan", "b": "inf", "c": "\ud800", "\n": [[]]}
