import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from runner.wire import frames, messages
from runner.wire.messages import Event, HttpRequest, Turn
from runner.wire.mux import Mux, MuxClosed, StreamReset
from runner.wire.pipes import PipeTransport


@dataclass
class End:
    mux: Mux[Any]
    sock: socket.socket
    got: list[Any] = field(default_factory=list)
    error: MuxClosed | None = None
    reader: asyncio.Task[None] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        try:
            async for message in self.mux.run():
                self.got.append(message)
                self.news.set()
        except MuxClosed as error:
            self.error = error

    async def receive(self, count: int) -> list[Any]:
        async with asyncio.timeout(10):
            while len(self.got) < count:
                self.news.clear()
                await self.news.wait()
        return self.got


@contextlib.asynccontextmanager
async def wire() -> AsyncIterator[tuple[End, End]]:
    a, b = socket.socketpair()
    host = End(Mux(PipeTransport(a.fileno(), a.fileno()), messages.decode_for_host, even=True), a)
    guest = End(Mux(PipeTransport(b.fileno(), b.fileno()), messages.decode_for_guest, even=False), b)
    for end in (host, guest):
        end.reader = asyncio.create_task(end.read())
    try:
        yield host, guest
    finally:
        for end in (host, guest):
            assert end.reader
            end.reader.cancel()
        await asyncio.gather(*(end.reader for end in (host, guest) if end.reader), return_exceptions=True)
        a.close()
        b.close()


async def test_messages_go_both_ways_in_order() -> None:
    async with wire() as (host, guest):
        for number in range(100):
            host.mux.post(Turn(number, "q"))
            guest.mux.post(Event("e", {"number": number}))
        assert [t.id for t in await guest.receive(100)] == list(range(100))
        assert [e.data["number"] for e in await host.receive(100)] == list(range(100))


async def test_a_byte_stream_arrives_whole_both_ways() -> None:
    async with wire() as (host, guest):
        up = guest.mux.open()
        guest.mux.post(HttpRequest(1, "POST", "http://x", [], up.channel))
        (request,) = await host.receive(1)
        down = host.mux.accept(request.body)
        sent, answer = bytes(range(256)) * 8000, b"z" * 3_000_000

        async def send(stream: Any, data: bytes) -> None:
            await stream.write(data)
            stream.close()

        async with asyncio.timeout(20):
            received = await asyncio.gather(
                down.read_all(10**7), up.read_all(10**7), send(up, sent), send(down, answer)
            )
        assert received[0] == sent
        assert received[1] == answer


async def test_a_stream_that_nobody_reads_holds_up_neither_messages_nor_other_streams() -> None:
    async with wire() as (host, guest):
        stalled, other = host.mux.open(), host.mux.open()
        writer = asyncio.create_task(stalled.write(b"x" * 10 * frames.WINDOW))
        host.mux.post(Turn(1, "still here"))
        await guest.receive(1)
        await other.write(b"through")
        other.close()
        async with asyncio.timeout(10):
            assert await guest.mux.accept(other.channel).read_all(100) == b"through"
        assert not writer.done()
        stalled.reset("enough")
        with pytest.raises(StreamReset):
            await writer


async def test_a_reset_reaches_the_other_end_with_its_reason() -> None:
    async with wire() as (host, guest):
        stream = host.mux.open()
        await stream.write(b"a")
        theirs = guest.mux.accept(stream.channel)
        async with asyncio.timeout(10):
            assert await theirs.read() == b"a"
            stream.reset("changed my mind")
            with pytest.raises(StreamReset, match="changed my mind"):
                await theirs.read()


async def test_a_reset_that_comes_before_the_stream_is_accepted_is_not_lost() -> None:
    async with wire() as (host, guest):
        stream = host.mux.open()
        await stream.write(b"the last words")
        stream.reset("cut")
        host.mux.post(Turn(1, "sent after, arrives before"))
        await guest.receive(1)
        host.mux.post(Turn(2, "by now the reset is there"))
        await host.mux.flush()
        async with asyncio.timeout(10):
            theirs = guest.mux.accept(stream.channel)
            assert await theirs.read() == b"the last words"
            with pytest.raises(StreamReset, match="cut"):
                await theirs.read()


async def test_more_bytes_than_the_credit_are_a_broken_peer() -> None:
    async with wire() as (host, guest):
        flood = frames.encode(1, b"x" * frames.MAX_CHUNK) * (frames.WINDOW // frames.MAX_CHUNK + 1)
        assert guest.reader
        guest.reader.cancel()
        await asyncio.gather(guest.reader, return_exceptions=True)
        guest.sock.setblocking(True)
        await asyncio.to_thread(guest.sock.sendall, flood)
        assert host.reader
        async with asyncio.timeout(10):
            await host.reader
        assert "more than its credit" in str(host.error)


async def test_an_unknown_message_ends_the_wire_and_every_stream() -> None:
    async with wire() as (host, guest):
        stream = host.mux.open()
        guest.sock.send(frames.encode(0, b'{"type":"Forged"}'))
        async with asyncio.timeout(10):
            with pytest.raises(StreamReset):
                await stream.read()
            assert host.reader
            await host.reader
        assert "unknown message 'Forged'" in str(host.error)


async def test_a_channel_of_ones_own_cannot_be_accepted() -> None:
    async with wire() as (host, _):
        with pytest.raises(MuxClosed, match="not the other end's"):
            host.mux.accept(2)


async def test_the_end_of_the_other_side_is_a_clean_end() -> None:
    async with wire() as (host, guest):
        guest.sock.shutdown(socket.SHUT_RDWR)
        assert host.reader
        async with asyncio.timeout(10):
            await host.reader
        assert host.error is None
        assert host.mux.closed
