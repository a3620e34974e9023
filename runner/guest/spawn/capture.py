"""Reading a pipe to its end: exact up to a limit, then the head and the tail, the whole in a file."""

from __future__ import annotations

import asyncio
import os

from runner.guest.spawn.command import Captured, Spill

_READ = 256 * 1024
_ROUNDS = 16
_READS_A_TURN = 8
"""Reads before other work of the loop has its turn."""


class Capture:
    """One stream. Reads as soon as made; `ended` is set at the end of the stream.

    Args:
        fd: reading end of a pipe; owned from here on.
        limit: bytes kept in memory, half of them the head.
        spill: where the whole goes once it does not fit, or None.
        suffix: added to the file's name.
    """

    def __init__(self, fd: int, limit: int, spill: Spill | None, suffix: str) -> None:
        self._fd = fd
        self._limit = limit
        self._spill = spill
        self._suffix = suffix
        self._data = bytearray()  # all while it fits, then the head
        self._tail: bytearray | None = None
        self._size = 0
        self._file = -1
        self._path = ""
        self._kept = 0
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        for _ in range(_READS_A_TURN):
            try:
                data = os.read(self._fd, _READ)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._take(data)
            if len(data) < 4096:
                return

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._tail is None:
            self._data += data
            if len(self._data) <= self._limit:
                return
            self._overflow()
            return
        self._write(data)
        self._tail += data
        self._trim()

    def _overflow(self) -> None:
        if self._spill:
            self._open(self._spill)
            self._write(self._data)
        head = self._limit - self._limit // 2
        self._tail = self._data[head:]
        del self._data[head:]
        self._trim()

    def _trim(self) -> None:
        room = self._limit // 2
        if self._tail is not None and len(self._tail) > room + _READ:
            del self._tail[: len(self._tail) - room]

    def _open(self, spill: Spill) -> None:
        path = f"{spill.folder}/{spill.name}{self._suffix}"
        try:
            # U cannot write the folder; were that ever not so, a link or file planted there is refused here.
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            self._path = path
        except OSError:
            self._file = -1

    def _write(self, data: bytes | bytearray) -> None:
        if self._file < 0 or self._spill is None:
            return
        view = memoryview(data)[: self._spill.limit - self._kept]
        try:
            while view:
                written = os.write(self._file, view)
                self._kept += written
                view = view[written:]
        except OSError:  # the disk is full: what is there stays, and `kept` tells
            self._close_file()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def catch_up(self) -> None:
        """Takes what is there now, so that an end that has come is seen without another round of the loop."""
        for _ in range(_ROUNDS):
            before = self._size
            if self._fd >= 0:
                self._readable()
            if self._fd < 0 or self._size == before:
                return

    def close(self) -> None:
        """Stops reading; what arrived stays."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._close_file()
            self.ended.set()

    def drain(self) -> None:
        """Takes what is in the pipe at this moment and stops reading."""
        if self._fd >= 0:
            self._readable()
        self.close()

    def captured(self) -> Captured:
        if self._tail is None:
            return Captured(bytes(self._data), self._size, False, len(self._data))
        room = self._limit // 2
        tail = bytes(self._tail[-room:]) if room else b""
        return Captured(bytes(self._data) + tail, self._size, True, len(self._data), self._path, self._kept)
