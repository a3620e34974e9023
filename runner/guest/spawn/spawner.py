"""The guest's end: start a process, wait for it, end it and all it started; or run it and keep its output."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections import deque

from runner.guest.spawn import channel, command, server, tree
from runner.guest.spawn.capture import Capture
from runner.guest.spawn.command import Captured, Command, Exit, Result, Spill
from runner.guest.spawn.process import Link, Process

__all__ = ["Process", "Spawner", "open_pipe"]

SPARE = 2
"""Supervisors that wait, forked ahead."""
MAX_IDLE = 8
"""Supervisors kept after a burst of calls."""
MAX_ARGUMENTS = 4 * 1024 * 1024
"""Characters of arguments and environment together; the kernel's own limit is lower and is told in the same words."""
MAX_RUNNING = 128
"""Most commands at once."""
FORK_SECONDS = 5.0
"""Longest wait for a supervisor when none waits."""
DRAIN_SECONDS = 0.5
"""Longest wait for the end of the output after the exit: a descriptor that went to another call's process holds it."""
LOST_SECONDS = 8.0
"""Longest wait for the server to end what a dead supervisor left."""


def open_pipe() -> tuple[int, int]:
    """A pipe for a command: (read, write), mode 0666, or its `echo > /dev/stderr` would fail."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.fchmod(write, 0o666)
    return read, write


class Spawner:
    """Starts commands. Make it in the running loop, over what `server.launch` gave before the guest grew.

    As PID 1 it also waits for every orphan of the container, so nothing else in the guest may start processes.

    Args:
        connection, pid: what `server.launch` returned.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: deque[Link] = deque()
        self._all: dict[int, Link] = {}
        self._lost: dict[int, tuple[Link, asyncio.TimerHandle]] = {}
        self._waiting: deque[asyncio.Future[Link]] = deque()
        self._asked = 0
        self._closed = False
        self._adopt(connection, pid)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._top_up()

    # ---- for the guest

    async def start(
        self,
        order: Command,
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        tty: tuple[int, int] | None = None,
        quiet: bool = False,
    ) -> Process:
        """Starts a command with the given descriptors, which stay the caller's.

        Args:
            tty: (rows, columns): the command gets a terminal of its own instead of the descriptors, `Process.terminal`.
            quiet: nobody wants to know when it is executed, or its pid; returns as soon as the order is sent.

        Returns:
            The process, executed or failed to (then `pid` is 0 and `wait` returns at once).
        """
        if sum(map(len, order.argv)) + sum(len(k) + len(v) for k, v in order.env.items()) > MAX_ARGUMENTS:
            return self._failed(command.reason(errno.E2BIG))
        supervisor = await self._supervisor()
        if isinstance(supervisor, str):
            return self._failed(supervisor)
        message: channel.Message = {
            "op": "start",
            "argv": list(order.argv),
            "env": dict(order.env),
            "cwd": order.cwd,
            "fallback": order.fallback_cwd,
            "uid": order.identity.uid,
            "gid": order.identity.gid,
            "tty": list(tty) if tty else None,
            "call": order.call,
            "limits": dict(order.limits),
            "grace": order.grace,
            "quiet": quiet,
        }
        process = await supervisor.start(message, [] if tty else [stdin, stdout, stderr])
        self._top_up()
        if quiet:
            return process
        try:
            await process.started.wait()
        except asyncio.CancelledError:
            await asyncio.shield(process.kill())
            raise
        return process

    async def run(
        self,
        order: Command,
        *,
        input: bytes = b"",
        timeout: float | None,  # noqa: ASYNC109 - being late is a result here, not an exception
        limit: int,
        spill: Spill | None = None,
    ) -> Result:
        """Runs a command to its end. Cancelling ends it and all it started.

        Args:
            input: its stdin; without any, stdin is empty and at its end.
            timeout: seconds until it is ended; None for no bound.
            limit: bytes of each stream that are kept.
            spill: keeps the whole of a stream that does not fit.
        """
        began = time.monotonic()
        captures: list[Capture] = []
        given: list[int] = []
        feeder: asyncio.Task[None] | None = None
        process: Process | None = None
        timed_out = False
        try:
            if input:
                read, write = open_pipe()
                given.append(read)
                os.set_blocking(write, False)
                with contextlib.suppress(BlockingIOError):
                    input = input[os.write(write, input) :]
                if input:
                    feeder = asyncio.create_task(_feed(write, input))
                else:
                    os.close(write)
            else:
                given.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            for suffix in (".stdout", ".stderr"):
                read, write = open_pipe()
                given.append(write)
                captures.append(Capture(read, limit, spill, suffix))
            try:
                async with asyncio.timeout(timeout):
                    process = await self.start(order, stdin=given[0], stdout=given[1], stderr=given[2], quiet=True)
                    _close(given)
                    end = await process.wait()
            except TimeoutError:
                timed_out = True
                if process is None:
                    end = Exit(error="timed out before it was started", killed=True)
                else:
                    await process.kill()
                    end = await process.wait()
            _close(given)
            await _all_ended(captures)
        except OSError as error:
            end = Exit(error=command.reason(error.errno or 0))
        finally:
            _close(given)
            if feeder:
                feeder.cancel()
            if process and not process.exit.done():
                await asyncio.shield(process.kill())
            for capture in captures:
                capture.drain()
        none = Captured(b"", 0, False, 0)
        streams = [capture.captured() for capture in captures] + [none, none]
        return Result(end, streams[0], streams[1], timed_out, time.monotonic() - began)

    async def close(self) -> None:
        """Ends every command and the server."""
        self._closed = True
        busy = [s.process for s in self._all.values() if s.process]
        await asyncio.gather(*(process.kill() for process in busy))
        for supervisor in list(self._all.values()):
            supervisor.close()
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        if os.getpid() == 1:
            tree.end(1)

    # ---- supervisors

    async def _supervisor(self) -> Link | str:
        while self._idle:
            supervisor = self._idle.popleft()
            if not supervisor.broken:
                return supervisor
        if self._closed:
            return "the sandbox is closing"
        if len(self._all) >= MAX_RUNNING:
            return f"more than {MAX_RUNNING} commands at once"
        future: asyncio.Future[Link] = self._loop.create_future()
        self._waiting.append(future)
        self._top_up()
        try:
            async with asyncio.timeout(FORK_SECONDS):
                return await asyncio.shield(future)
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.exception():  # it came in the same moment
                self.idle(future.result())
            future.cancel()
            if isinstance(error, asyncio.CancelledError):
                raise
            return "no process could be started in time"
        except OSError as error:
            return command.reason(error.errno or 0)

    def _failed(self, why: str) -> Process:
        process = Process.__new__(Process)
        process.pid, process.terminal = 0, -1
        process.exit = self._loop.create_future()
        process.exit.set_result(Exit(error=why))
        process.started = asyncio.Event()
        return process

    def _top_up(self) -> None:
        """Asks for as many supervisors as are waited for, and some ahead."""
        want = len(self._waiting) + SPARE - len(self._idle) - self._asked
        for _ in range(want):
            try:
                self._connection.sendall(channel.encode({"op": "fork"}))
            except OSError:
                return
            self._asked += 1

    def idle(self, supervisor: Link) -> None:
        """A supervisor has finished its call."""
        if supervisor.broken:
            self._all.pop(supervisor.pid, None)
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(supervisor)
                return
        if len(self._idle) < MAX_IDLE:
            self._idle.append(supervisor)
        else:
            supervisor.close()
            self._all.pop(supervisor.pid, None)

    def lost(self, supervisor: Link) -> None:
        """A supervisor's socket has ended. What it left is ended by the server, which tells when that is done."""
        self._all.pop(supervisor.pid, None)
        if supervisor.server != self.server and os.getpid() == 1:
            # Its server is dead too, so what it left has come to us.
            done = tree.end(1, frozenset({self.server, *self._all}))
            supervisor.finish_lost(len(done.processes))
            return
        timer = self._loop.call_later(LOST_SECONDS, self._ended_lost, supervisor.pid, 0)
        self._lost[supervisor.pid] = (supervisor, timer)

    def _ended_lost(self, pid: int, ended: int) -> None:
        found = self._lost.pop(pid, None)
        if found:
            found[1].cancel()
            found[0].finish_lost(ended)

    # ---- the server

    def _adopt(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._receiver = channel.Receiver(connection)
        self.server = pid
        connection.setblocking(False)
        self._loop.add_reader(connection.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            alive = self._receiver.read()
        except BlockingIOError:
            return
        except OSError:
            alive = False
        while (message := self._receiver.take()) is not None:
            if message["op"] == "supervisor":
                self._asked -= 1
                fd = self._receiver.fds.pop(0)
                supervisor = Link(self, message["pid"], socket.socket(fileno=fd))
                self._all[supervisor.pid] = supervisor
                self.idle(supervisor)
            elif message["op"] == "refused":
                self._asked -= 1
                if self._waiting and not (future := self._waiting.popleft()).done():
                    future.set_exception(OSError(message["errno"], ""))
            elif message["op"] == "lost":
                self._ended_lost(message["pid"], message["ended"])
        if not alive:
            self._server_died()

    def _server_died(self) -> None:
        """Starts another. The supervisors live on, now as children of PID 1, with their calls."""
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._asked = 0
        if self._closed:
            return
        try:
            self._adopt(*server.launch())
        except OSError:
            self._loop.call_later(1.0, self._server_died)
            return
        self._top_up()

    def _reap(self) -> None:
        """Waits for what PID 1 has adopted; for the server only, where the guest is not PID 1 (tests)."""
        if os.getpid() == 1:
            tree.reap()
            return
        try:
            os.waitpid(self.server, os.WNOHANG)
        except ChildProcessError:
            return


async def _feed(fd: int, data: bytes) -> None:
    """Writes stdin. A command that reads no more of it is its own affair."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    view = memoryview(data)
    try:
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                ready = asyncio.Event()
                loop.add_writer(fd, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_writer(fd)
    except BrokenPipeError:
        return
    finally:
        os.close(fd)


async def _all_ended(captures: list[Capture]) -> None:
    for capture in captures:
        capture.catch_up()
    if all(capture.ended.is_set() for capture in captures):
        return
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            for capture in captures:
                await capture.ended.wait()
    except TimeoutError:
        return


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
