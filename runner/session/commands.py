"""A command in a sandbox, joined to this process's own stdin, stdout and stderr, byte for byte.

Three ends look alike to a caller that only sees a number: the command's own code, the code for a signal that ended it
(128 and its number, as shells say it), and our failure to run it at all. The first two are passed on; the third is an
SbxError, which `sbx exec` turns into 125, as `docker exec` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.errors import UsageError
from runner.wire import messages as m
from runner.wire.mux import Mux, MuxClosed, Stream, StreamReset

PIECE = 64 * 1024
AHEAD = 4
"""Pieces of stdin that are read before the command has taken them."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell, and `docker exec`, answers for a command that could not be started."""


class Commander(Protocol):
    """Starts commands in a sandbox: a `Session`, or the control connection to somebody else's."""

    def exec(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[m.Exited], Mux[m.ToHost]]: ...

    def open(self) -> Stream: ...


@dataclass(frozen=True)
class Order:
    """What to run."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    """Empty: the workspace."""
    terminal: bool = False


async def run_joined(commander: Commander, order: Order) -> int:
    """Runs the command with this process's standard streams. Returns the code to exit with.

    Signals that reach this process go to the command; with a terminal, the window's size does too.

    Raises:
        UsageError: a terminal is asked for and stdin is none.
        SbxError: the sandbox or the engine failed.
    """
    if order.terminal and not os.isatty(0):
        raise UsageError("-t wants a terminal, and stdin is none", hint="leave -t out")
    stdin, stdout = commander.open(), commander.open()
    stderr = None if order.terminal else commander.open()
    rows, columns = window() if order.terminal else (24, 80)
    with _signals() as signals, _raw() if order.terminal else contextlib.nullcontext():
        exec_id, ended, mux = commander.exec(
            order.argv,
            env=dict(order.env),
            cwd=order.cwd,
            tty=order.terminal,
            rows=rows,
            columns=columns,
            stdin=stdin.channel,
            stdout=stdout.channel,
            stderr=stderr.channel if stderr else 0,
        )
        side = [
            asyncio.create_task(_feed(stdin)),
            asyncio.create_task(_forward(signals, mux, exec_id, terminal=order.terminal)),
        ]
        outputs = [asyncio.create_task(_drain(stdout, 1))]
        if stderr:
            outputs.append(asyncio.create_task(_drain(stderr, 2)))
        try:
            exited = await ended
            await asyncio.gather(*outputs)
        finally:
            for task in (*side, *outputs):
                task.cancel()
            await asyncio.gather(*side, *outputs, return_exceptions=True)
    if exited.error:
        os.write(2, f"sbx: {exited.error}\n".encode("utf-8", "surrogateescape"))
    return code_of(exited)


def code_of(exited: m.Exited) -> int:
    """The exit code that stands for how a command ended."""
    if exited.signal is not None:
        return 128 + exited.signal
    if exited.code is not None and not exited.error:
        return exited.code
    return NOT_FOUND if "not found" in exited.error else NOT_EXECUTABLE


def window() -> tuple[int, int]:
    """Rows and columns of the terminal on stdin; 24 by 80 where it tells none."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:
        return 24, 80
    return rows or 24, columns or 80


async def _feed(stream: Stream) -> None:
    """Stdin, until its end. It may be a file, a pipe or a terminal, shared with the caller's shell: so it is read by a
    thread and never made non-blocking."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(AHEAD)

    def read() -> None:
        while True:
            room.acquire()
            try:
                data = os.read(0, PIECE)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, data)
            except RuntimeError:
                return  # the loop is over, and with it the command
            if not data:
                return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    with contextlib.suppress(StreamReset):
        while data := await pieces.get():
            await stream.write(data)
            room.release()
        stream.close()


async def _drain(stream: Stream, fd: int) -> None:
    """One output, to its end. A reader that goes away ends the command's output, as a pipe would."""
    with contextlib.suppress(StreamReset):
        async for data in stream:
            try:
                await asyncio.to_thread(_write, fd, data)
            except OSError:
                stream.reset("nobody reads it any more")
                return


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody else made the caller's pipe non-blocking
            import select

            select.select([], [fd], [])


async def _forward(signals: asyncio.Queue[int], mux: Mux[m.ToHost], exec_id: int, *, terminal: bool) -> None:
    while True:
        number = await signals.get()
        with contextlib.suppress(MuxClosed):
            if number != signal.SIGWINCH:
                mux.post(m.Signal(exec_id, number))
            elif terminal:
                mux.post(m.Resize(exec_id, *window()))


@contextmanager
def _signals() -> Iterator[asyncio.Queue[int]]:
    """The signals that come from now on, instead of what they would do to this process."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue()
    numbers = (*FORWARDED, signal.SIGWINCH)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, queue.put_nowait, int(number))
    try:
        yield queue
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)


@contextmanager
def _raw() -> Iterator[None]:
    """The terminal hands every key on, and is as it was afterwards."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
