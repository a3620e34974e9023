"""A frame is a length, a channel and a payload.

    0        4         8
    | length | channel | payload, `length` bytes |

Both numbers are unsigned and big-endian. Channel 0 carries one JSON message a frame; any other channel carries a
piece of a byte stream. A length over the channel's cap is a broken peer, never a reason to allocate.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER = struct.Struct(">II")

MAX_MESSAGE = 64 * 1024 * 1024
"""Most bytes of one JSON message. A hook's payload of 32 MiB, escaped, still fits."""

MAX_CHUNK = 256 * 1024
"""Most bytes of a byte stream in one frame."""

WINDOW = 1024 * 1024
"""Bytes that a sender may have under way on one byte stream before the receiver gives credit."""

CONTROL = 0
"""The channel of the messages."""


class FrameError(Exception):
    """The bytes are not frames of this wire."""


def encode(channel: int, payload: bytes | memoryview) -> bytes:
    """One frame as bytes."""
    return HEADER.pack(len(payload), channel) + payload


class Decoder:
    """Cuts a stream of bytes into frames, whatever the pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Takes `data` and yields each (channel, payload) that is now whole.

        Raises:
            FrameError: a frame's length is over its channel's cap.
        """
        whole: bytes | bytearray = data  # mostly a piece holds whole frames, and none is left of the piece before it
        if self._buffer:
            self._buffer += data
            whole = self._buffer
        start = 0
        try:
            while len(whole) - start >= HEADER.size:
                length, channel = HEADER.unpack_from(whole, start)
                if length > (MAX_MESSAGE if channel == CONTROL else MAX_CHUNK):
                    raise FrameError(f"a frame of {length} bytes on channel {channel} is over the cap")
                end = start + HEADER.size + length
                if len(whole) < end:
                    break
                payload = bytes(memoryview(whole)[start + HEADER.size : end])
                start = end
                yield channel, payload
        finally:
            if whole is self._buffer:
                del self._buffer[:start]
            else:
                self._buffer += memoryview(whole)[start:]
