"""The tar format, as far as copying needs it. Every size is bounded before it is believed.

`tarfile` of the standard library is not used for what comes out of a sandbox: it reads a header's extension of any
size into memory, makes sparse files of any size from a few bytes, and costs six times as much a member.
"""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass

BLOCK = 512
MAX_NAME = 64 * 1024
"""Bytes of a long name or a link's target; the kernel's own limit is 4096 a path."""

FILE, HARD_LINK, LINK, FOLDER = b"0", b"1", b"2", b"5"
_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL = b"L", b"K", b"x", b"g"
_SPECIAL = {b"3": "a device", b"4": "a device", b"6": "a pipe"}


class ArchiveError(Exception):
    """What came is not the tar format, or is cut off."""


@dataclass(frozen=True)
class Member:
    """One entry. Names are bytes: a file system knows no others."""

    name: bytes
    kind: bytes
    """`FILE`, `HARD_LINK`, `LINK`, `FOLDER`."""
    mode: int
    size: int
    time: int
    target: bytes = b""
    """Of a link."""
    unwanted: str = ""
    """What it is, when it is none of the four kinds."""


class Reader:
    """Takes bytes as they come and gives them out in the pieces asked for."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._held = bytearray()

    async def exactly(self, size: int) -> bytes:
        """`size` bytes; for small ones. Raises ArchiveError at the end."""
        while len(self._held) < size:
            self._held += await self._more()
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    async def pieces(self, size: int) -> AsyncIterator[bytes]:
        """`size` bytes, in pieces as they come."""
        left = size
        while left:
            if not self._held:
                self._held += await self._more()
            data = bytes(self._held[:left])
            del self._held[: len(data)]
            left -= len(data)
            yield data

    async def _more(self) -> bytes:
        data = await anext(self._source, b"")
        if not data:
            raise ArchiveError("the archive is cut off")
        return data

    async def rest(self) -> None:
        """Reads what is left, for a writer that must not be stopped in mid-write."""
        self._held.clear()
        async for _ in self._source:
            pass


async def members(reader: Reader) -> AsyncIterator[Member]:
    """Each member; a file's content is to be read from `reader` before the next one is asked for (`content`)."""
    long_name = long_link = b""
    sizes: int | None = None
    while True:
        header = await reader.exactly(BLOCK)
        if not header.strip(b"\0"):
            return
        if int(_number(header[148:156])) != sum(header[:148]) + 256 + sum(header[156:]):
            raise ArchiveError("a header's sum is wrong")
        kind, size = header[156:157], _number(header[124:136])
        if kind in (_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL):
            if size > MAX_NAME:
                raise ArchiveError(f"a name of {size} bytes")
            data = await reader.exactly(size)
            await reader.exactly(-size % BLOCK)
            if kind == _LONG_NAME:
                long_name = data.rstrip(b"\0")
            elif kind == _LONG_LINK:
                long_link = data.rstrip(b"\0")
            elif kind == _EXTENDED:
                words = _extended(data)
                long_name, long_link = words.get(b"path", long_name), words.get(b"linkpath", long_link)
                sizes = int(words[b"size"]) if words.get(b"size", b"").isdigit() else None
            continue
        name, target = header[:100].split(b"\0", 1)[0], header[157:257].split(b"\0", 1)[0]
        if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0", 1)[0]):
            name = prefix + b"/" + name
        kind = FILE if kind in (b"\0", b"7") else kind
        size = size if sizes is None else sizes
        unwanted = "" if kind in (FILE, HARD_LINK, LINK, FOLDER) else _SPECIAL.get(kind, "of an unknown kind")
        yield Member(
            name=(long_name or name).rstrip(b"/") or b".",
            kind=kind,
            mode=_number(header[100:108]),
            size=0 if kind in (HARD_LINK, LINK, FOLDER) or kind in _SPECIAL else size,
            time=_number(header[136:148]),
            target=long_link or target,
            unwanted=unwanted,
        )
        long_name, long_link, sizes = b"", b"", None


async def content(reader: Reader, member: Member) -> AsyncIterator[bytes]:
    """The content of the member that was just yielded, with its padding read too."""
    async for piece in reader.pieces(member.size):
        yield piece
    await reader.exactly(-member.size % BLOCK)


def header(member: Member) -> bytes:
    """The member's header in GNU's form, which any `tar` reads, with a name of any length and any bytes."""
    info = tarfile.TarInfo(member.name.decode("utf-8", "surrogateescape"))
    info.type, info.mode, info.size, info.mtime = member.kind, member.mode, member.size, member.time
    info.linkname = member.target.decode("utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


END = b"\0" * BLOCK * 2


def _number(field: bytes) -> int:
    """Octal digits, or GNU's base 256 for what does not fit them. Raises ArchiveError."""
    if field[0] in (0x80, 0xFF):
        return max(int.from_bytes(field[1:], "big", signed=field[0] == 0xFF), 0)
    text = field.split(b"\0", 1)[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        raise ArchiveError("a number that is none") from None


def _extended(data: bytes) -> dict[bytes, bytes]:
    """`LENGTH KEY=VALUE\\n` records."""
    words: dict[bytes, bytes] = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not len(length) + 1 < int(length) <= len(data):
            raise ArchiveError("an extended header that is none")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        words[key] = value
        data = data[int(length) :]
    return words
