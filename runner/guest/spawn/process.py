"""A started command, and the guest's end of the supervisor that looks after it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from typing import Protocol

from runner.guest.spawn import channel, command
from runner.guest.spawn.command import Exit

KILL_SECONDS = 10.0
"""Longest wait for a supervisor to report after it was told to end its call: its own two bounds and a margin."""


class Owner(Protocol):
    """Who keeps the supervisors: the spawner."""

    server: int

    def idle(self, supervisor: Link) -> None: ...

    def lost(self, supervisor: Link) -> None: ...


class Process:
    """A started command. It is over when its own process is; what it left behind is ended then."""

    def __init__(self, supervisor: Link) -> None:
        self._supervisor = supervisor
        self.pid = 0
        """0 when it could not be started; `wait` then tells why."""
        self.terminal = -1
        """With `tty`: the terminal's other end, non-blocking, close-on-exec, the caller's to close."""
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.started = asyncio.Event()

    async def wait(self) -> Exit:
        """How it ended. Cancelling the wait leaves the command alone."""
        return await asyncio.shield(self.exit)

    async def kill(self) -> None:
        """Ends the command and everything it started, wherever that went, and waits until it is gone."""
        if not self.exit.done():
            self._supervisor.send({"op": "kill"})
            await asyncio.wait([self.exit], timeout=KILL_SECONDS)
            if not self.exit.done():
                self._supervisor.give_up("its supervisor does not answer")

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group."""
        if not self.exit.done():
            self._supervisor.send({"op": "signal", "number": number})

    def resize(self, rows: int, columns: int) -> None:
        """Tells the terminal its new size."""
        if self.terminal >= 0:
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Link:
    """The guest's end of one supervisor's socket."""

    def __init__(self, owner: Owner, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.server = owner.server
        self._owner = owner
        self._connection = connection
        self._receiver = channel.Receiver(connection)
        self._loop = asyncio.get_running_loop()
        self.process: Process | None = None
        self.broken = False
        connection.setblocking(False)
        self._loop.add_reader(connection.fileno(), self._readable)

    async def start(self, order: channel.Message, fds: list[int]) -> Process:
        process = self.process = Process(self)
        data = channel.encode(order)
        try:
            sent = self._connection.sendmsg([data], channel.ancillary(fds))
            if sent < len(data):
                await self._loop.sock_sendall(self._connection, memoryview(data)[sent:])
        except OSError:
            self._lost()
        except asyncio.CancelledError:
            self.give_up("cancelled while it was started")  # half an order: this supervisor is of no more use
            raise
        return process

    def send(self, message: channel.Message) -> None:
        """A small message, which always fits the socket's buffer."""
        try:
            self._connection.sendall(channel.encode(message))
        except OSError:
            self._lost()

    def _readable(self) -> None:
        try:
            alive = self._receiver.read()
        except BlockingIOError:
            return
        except OSError:
            alive = False
        while (message := self._receiver.take()) is not None:
            self._obey(message)
        if not alive:
            self._lost()

    def _obey(self, message: channel.Message) -> None:
        process = self.process
        if process is None:
            return
        if message["op"] == "started":
            process.pid = message["pid"]
            process.started.set()
        elif message["op"] == "terminal":
            (process.terminal,) = self._receiver.take_fds()
            os.set_blocking(process.terminal, False)
        elif message["op"] == "exit":
            error = command.reason(message["errno"]) if message["errno"] else ""
            if error and message["where"]:
                error = f"{message['where']}: {error}"
            self._finish(
                Exit(
                    code=message["code"],
                    signal=message["signal"],
                    ended=message["ended"],
                    oom=bool(message["oom"]),
                    oom_counted=message["oom"] is not None,
                    error=error,
                    killed=message["killed"],
                    stuck=message["stuck"],
                )
            )
            if message["stuck"]:
                self.close()
            self._owner.idle(self)

    def _finish(self, end: Exit) -> None:
        process, self.process = self.process, None
        if process and not process.exit.done():
            process.exit.set_result(end)
            process.started.set()

    def _lost(self) -> None:
        if not self.broken:
            self.close()
            self._owner.lost(self)

    def give_up(self, why: str) -> None:
        """Lets the supervisor end its call by itself: the end of its socket tells it to."""
        self.close()
        self._finish(Exit(error=why, killed=True))
        self._owner.idle(self)

    def finish_lost(self, ended: int) -> None:
        self._finish(Exit(error="its supervisor was killed", ended=ended))

    def close(self) -> None:
        if not self.broken:
            self.broken = True
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
