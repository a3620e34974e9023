"""One asyncio end of the wire: messages, and byte streams with credit beside them.

What it settles: a stalled byte stream must never hold up a message. So messages have a queue of their own that is
emptied first, and a stream's sender stops by itself after `WINDOW` bytes that the receiver has not consumed; the
reading side therefore never has to stop reading, and never holds more than `WINDOW` bytes a stream.

A channel is named in a message by the end that opened it, before its first byte. The host opens even channels, the
guest odd ones. Bytes, and a reset, may arrive before the program has acted on the message; they wait in the stream.

The end of a stream and its reset travel behind the stream's own bytes: what was sent before them arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar, cast

from runner.wire import frames, messages
from runner.wire.messages import Credit, Message, Reset

READ_SIZE = 1024 * 1024
MAX_STREAMS = 1024
"""Most byte streams at once; a peer that opens more is broken."""
MAX_UNCLAIMED = 64 * 1024 * 1024
"""Most bytes that wait in streams which no message has named yet; messages go first, so these are few."""
BATCH = 512 * 1024
"""Most bytes that are handed to the transport in one go, so that a message waits for no more than that."""

Incoming = TypeVar("Incoming")


class StreamReset(ConnectionError):
    """The other end gave this byte stream up, or the wire is gone."""


class MuxClosed(ConnectionError):
    """The wire is gone, or the other end broke the protocol; the text says which."""


class Transport(Protocol):
    """The bytes below the wire."""

    async def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end."""

    async def write(self, data: bytes) -> None:
        """Hands `data` on and waits until there is room for more."""


class Stream:
    """A byte stream in both directions. Each direction ends by itself; `reset` ends both."""

    def __init__(self, mux: Mux[object], channel: int) -> None:
        self.channel = channel
        self._mux = mux
        self._chunks: deque[bytes] = deque()
        self._readable = asyncio.Event()
        self._credit = frames.WINDOW
        self._writable = asyncio.Event()
        self._writable.set()
        self._owed = 0
        self._held = 0
        self._ended = False
        self._closed = False
        self._error: StreamReset | None = None
        self.accepted = False
        """Somebody holds this stream; before that, only the mux knows it."""

    @property
    def held(self) -> int:
        """Bytes that have come and were not read."""
        return self._held

    @property
    def failed(self) -> bool:
        """It was reset, by either end."""
        return self._error is not None

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises StreamReset."""
        while not self._chunks:
            if self._error:
                raise self._error
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        self._owed += len(data)
        if self._owed >= frames.WINDOW // 4 and not self._ended:
            self._mux.post(Credit(self.channel, self._owed))
            self._owed = 0
        return data

    async def read_all(self, limit: int) -> bytes:
        """Everything up to the end. Raises ValueError when there is more than `limit` bytes."""
        parts, size = [], 0
        while data := await self.read():
            size += len(data)
            if size > limit:
                self.reset("too large")
                raise ValueError(f"more than {limit} bytes")
            parts.append(data)
        return b"".join(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def write(self, data: bytes) -> None:
        """Sends all of `data`, waiting for the receiver's credit. Raises StreamReset."""
        view = memoryview(data)
        while view:
            if self._error:
                raise self._error
            if self._closed:
                raise StreamReset("the stream is closed")
            if self._credit <= 0:
                self._writable.clear()
                await self._writable.wait()
                continue
            size = min(len(view), self._credit, frames.MAX_CHUNK)
            self._credit -= size
            self._mux.post_bytes(self.channel, view[:size])
            view = view[size:]

    def close(self) -> None:
        """Ends this direction: everything is sent."""
        if not self._closed and not self._error:
            self._closed = True
            self._mux.post_bytes(self.channel, b"")
            self._forget_if_over()

    def reset(self, reason: str = "") -> None:
        """Ends both directions. What was written before still goes out; what comes in is dropped."""
        if not self._error and not (self._closed and self._ended):
            self._mux.post_reset(Reset(self.channel, reason))
            self.fail(reason or "reset")
            self._mux.forget(self.channel)

    # ---- called by the mux

    def take(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._readable.set()
            self._forget_if_over()
            return
        if self._ended or self._error:
            return
        self._held += len(data)
        if self._held > frames.WINDOW:
            raise frames.FrameError(f"channel {self.channel} sent more than its credit")
        self._chunks.append(data)
        self._readable.set()

    def give(self, credit: int) -> None:
        self._credit = min(self._credit + max(credit, 0), frames.WINDOW)
        self._writable.set()

    def fail(self, reason: str) -> None:
        self._error = self._error or StreamReset(reason)
        self._readable.set()
        self._writable.set()

    def _forget_if_over(self) -> None:
        if self._closed and self._ended:
            self._mux.forget(self.channel)


class Mux(Generic[Incoming]):
    """Sends and receives messages and byte streams over one transport.

    Args:
        transport: the bytes below.
        decode: `messages.decode_for_host` on the host, `messages.decode_for_guest` in the guest.
        even: whether this end opens even channels (the host does).
    """

    def __init__(self, transport: Transport, decode: Callable[[bytes], Incoming], *, even: bool) -> None:
        self._transport = transport
        self._decode = decode
        self._parity = 0 if even else 1
        self._next = 2 if even else 1
        self._streams: dict[int, Stream] = {}
        self._over: deque[int] = deque(maxlen=4096)
        self._unclaimed = 0
        self._messages: deque[bytes] = deque()
        self._bytes: deque[bytes | memoryview] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed: MuxClosed | None = None

    def post(self, message: Message) -> None:
        """Queues a message; it goes out before any byte stream's bytes."""
        payload = messages.encode(message)
        if len(payload) > frames.MAX_MESSAGE:
            raise ValueError(f"a {type(message).__name__} message of {len(payload)} bytes is over the cap")
        self._messages.append(frames.encode(frames.CONTROL, payload))
        self._woken()

    def post_bytes(self, channel: int, data: bytes | memoryview) -> None:
        # Header and payload lie apart, so that the bytes are copied once, into the batch. Both go out together.
        self._bytes.append(frames.HEADER.pack(len(data), channel))
        self._bytes.append(data)
        self._woken()

    def post_reset(self, message: Reset) -> None:
        payload = messages.encode(message)
        self._bytes.append(frames.HEADER.pack(len(payload), frames.CONTROL))
        self._bytes.append(payload)
        self._woken()

    def open(self) -> Stream:
        """A new byte stream. Its `channel` is to be named in a message before the first byte is written."""
        channel = self._next
        self._next += 2
        return self._add(channel)

    def accept(self, channel: int) -> Stream:
        """The byte stream that the other end named in a message."""
        if channel <= 0 or channel % 2 == self._parity:
            raise MuxClosed(f"channel {channel} is not the other end's to open")
        stream = self._streams.get(channel) or self._add(channel)
        if not stream.accepted:
            stream.accepted = True
            self._unclaimed -= stream.held
        if stream.failed:
            self.forget(channel)
        return stream

    def forget(self, channel: int) -> None:
        if self._streams.pop(channel, None):
            self._over.append(channel)

    async def flush(self) -> None:
        """Waits until everything queued has been handed to the transport."""
        await self._idle.wait()

    async def run(self) -> AsyncGenerator[Incoming, None]:
        """Reads until the end and yields each message that is not about byte streams.

        Raises:
            MuxClosed: the other end broke the protocol. A clean end of the transport just ends the iteration.
        """
        writer = asyncio.create_task(self._write_out())
        decoder = frames.Decoder()
        reason = "the wire has ended"
        try:
            while data := await self._transport.read(READ_SIZE):
                for channel, payload in decoder.feed(data):
                    if channel == frames.CONTROL:
                        message = self._decode(payload)
                        if isinstance(message, Credit):
                            if stream := self._streams.get(message.channel):
                                stream.give(message.bytes)
                        elif isinstance(message, Reset):
                            self._take_reset(message)
                        else:
                            yield message
                    else:
                        self._deliver(channel, payload)
        except (frames.FrameError, messages.MessageError) as error:
            reason = f"the other end broke the protocol: {error}"
            raise MuxClosed(reason) from None
        except OSError as error:
            reason = f"the wire broke: {error}"
            raise MuxClosed(reason) from None
        finally:
            self._close(reason)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _add(self, channel: int) -> Stream:
        if len(self._streams) >= MAX_STREAMS:
            raise MuxClosed(f"more than {MAX_STREAMS} byte streams at once")
        stream = Stream(cast("Mux[object]", self), channel)
        stream.accepted = channel % 2 == self._parity
        self._streams[channel] = stream
        if self.closed:
            stream.fail(str(self.closed))
        return stream

    def _take_reset(self, message: Reset) -> None:
        channel = message.channel
        stream = self._streams.get(channel)
        if stream is None:
            if channel <= 0 or channel % 2 == self._parity or channel in self._over:
                return
            stream = self._add(channel)
        stream.fail(message.reason or "reset by the other end")
        if stream.accepted:
            self.forget(channel)

    def _deliver(self, channel: int, payload: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is None:
            if channel % 2 == self._parity or channel in self._over:
                return  # ours and already over: bytes that crossed a reset
            if len(self._streams) >= MAX_STREAMS:
                raise frames.FrameError(f"more than {MAX_STREAMS} byte streams at once")
            stream = self._add(channel)
        held = stream.held
        stream.take(payload)
        if not stream.accepted:
            self._unclaimed += stream.held - held
            if self._unclaimed > MAX_UNCLAIMED:
                raise frames.FrameError(f"more than {MAX_UNCLAIMED} bytes on byte streams that no message named")

    def _woken(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _write_out(self) -> None:
        try:
            while True:
                batch: list[bytes | memoryview] = []
                size = 0
                while size < BATCH and (self._messages or self._bytes):
                    if self._messages:
                        batch.append(self._messages.popleft())
                    else:
                        batch += (self._bytes.popleft(), self._bytes.popleft())
                    size += len(batch[-1])
                if not batch:
                    self._idle.set()
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                await self._transport.write(b"".join(batch))
        except OSError as error:
            self._close(f"the wire broke: {error}")

    def _close(self, reason: str) -> None:
        if self.closed is None:
            self.closed = MuxClosed(reason)
        self._idle.set()
        for stream in self._streams.values():
            stream.fail(reason)
