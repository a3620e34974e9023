"""A transport over two file descriptors, for the end of the wire that is a program's own stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os

PIPE_SIZE = 1024 * 1024
"""Bytes that a pipe may hold, what Linux lets anyone ask for: the usual 64 KiB cost a wake-up of both ends each."""


class PipeTransport:
    """Reads one descriptor and writes another, both made non-blocking; pipes, sockets and terminals work.

    Args:
        source: the descriptor that is read.
        sink: the descriptor that is written; may be the same one.
    """

    def __init__(self, source: int, sink: int) -> None:
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        for descriptor in (source, sink):
            with contextlib.suppress(OSError, AttributeError):  # no pipe, or a system without it
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self._source = source
        self._sink = sink

    async def read(self, size: int) -> bytes:
        while True:
            try:
                return os.read(self._source, size)
            except BlockingIOError:
                await self._ready(self._source, writing=False)

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._sink, view) :]
            except BlockingIOError:
                await self._ready(self._sink, writing=True)

    async def _ready(self, fd: int, *, writing: bool) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        add(fd, wake)
        try:
            await future
        finally:
            remove(fd)
