"""Reads the server name from a TLS ClientHello, without taking part in the handshake.

What is settled: a tunnel to an allowed name must not carry TLS for another name, which one address of a large host
serves as well. Not seen, and not claimed: the `Host` header inside the TLS, and an encrypted inner name (ECH). An ECH
extension is no ground for refusal, since browsers always send a random one; the outer name must be right all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

HANDSHAKE = 0x16
MAX_HELLO = 64 * 1024
"""Most bytes of a ClientHello; with post-quantum key shares one has about 2 KiB."""
ACCESS_DENIED = bytes((0x15, 3, 1, 0, 2, 2, 49))
"""A fatal TLS alert `access_denied`, which clients show as such."""


@dataclass(frozen=True)
class Hello:
    """What a ClientHello says."""

    server_name: str
    """Empty when it names none."""
    ech: bool = False


class NotHello(ValueError):
    """The bytes are no ClientHello."""


def read(data: bytes) -> Hello | None:
    """The ClientHello at the start of `data`; None when more bytes are needed.

    Raises:
        NotHello: this is not TLS, or a hello over `MAX_HELLO`.
    """
    message = bytearray()
    position = 0
    while True:
        if len(message) >= 4:
            size = int.from_bytes(message[1:4], "big")
            if message[0] != 1 or size > MAX_HELLO:
                raise NotHello("the first TLS message is not a ClientHello")
            if len(message) >= 4 + size:
                return _parse(bytes(message[4 : 4 + size]))
        header = data[position : position + 5]
        if (header and header[0] != HANDSHAKE) or (len(header) > 1 and header[1] != 3):
            raise NotHello("not a TLS handshake")
        if len(header) < 5:
            return None
        length = int.from_bytes(header[3:5], "big")
        if not 0 < length <= 1 << 14:
            raise NotHello("a TLS record of an impossible length")
        piece = data[position + 5 : position + 5 + length]
        message += piece
        if len(piece) < length and len(message) < 4:
            return None
        if len(piece) < length:
            size = int.from_bytes(message[1:4], "big")
            if message[0] != 1 or size > MAX_HELLO:
                raise NotHello("the first TLS message is not a ClientHello")
            if len(message) < 4 + size:
                return None
        position += 5 + length


def _parse(body: bytes) -> Hello:
    cursor = _Cursor(body)
    cursor.take(2 + 32)
    cursor.vector(1)
    cursor.vector(2)
    cursor.vector(1)
    names: list[str] = []
    ech = False
    if cursor.left:
        extensions = _Cursor(cursor.vector(2))
        while extensions.left:
            kind = int.from_bytes(extensions.take(2), "big")
            value = extensions.vector(2)
            if kind == 0:
                entries = _Cursor(_Cursor(value).vector(2))
                while entries.left:
                    if entries.take(1) != b"\0":
                        raise NotHello("a server name of an unknown type")
                    names.append(entries.vector(2).decode("latin-1"))
            ech |= kind == 0xFE0D
    if len(names) > 1:
        raise NotHello("more than one server name")
    return Hello(names[0] if names else "", ech)


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if self.left < size:
            raise NotHello("a ClientHello that is cut off inside")
        self._at += size
        return self._data[self._at - size : self._at]

    def vector(self, width: int) -> bytes:
        """A length of `width` bytes, and that many bytes."""
        return self.take(int.from_bytes(self.take(width), "big"))
