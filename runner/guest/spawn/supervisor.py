"""A supervisor: one call at a time, start to end.

It is a child subreaper, so what the call's processes orphan becomes its child, `setsid` and double forks too. When it has
no child left, nothing of the call is left. It waits, ahead of need, for an order on its socket; after a call it waits for the next.

    guest says   start {argv env cwd fallback uid gid tty call limits grace} with stdin, stdout, stderr; signal {number}; kill; resize
    it says      terminal (from the child, with the descriptor); started {pid}; exit {…}
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from runner.guest.spawn import channel, child, privileges, tree

_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where cgroup v2 and v1 count the processes that the kernel killed for memory in this container."""


def serve(connection: socket.socket) -> NoReturn:
    """Runs until the guest closes the socket. The process has no other work and no other child."""
    code = 1
    try:
        privileges.become_subreaper()
        Supervisor(connection).run()
        code = 0
    finally:
        os._exit(code)


class OomCounter:
    """Reads how many processes of the container the kernel has killed for want of memory."""

    def __init__(self) -> None:
        self._fd = -1
        for path in _OOM_COUNTERS:
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if self.read() is not None:
                break
            os.close(self._fd)
            self._fd = -1

    def read(self) -> int | None:
        """None where the counter cannot be read."""
        if self._fd < 0:
            return None
        try:
            for line in os.pread(self._fd, 4096, 0).split(b"\n"):
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        except (OSError, ValueError):
            return None
        return None


class Supervisor:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._receiver = channel.Receiver(connection)
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._oom = OomCounter()

    def run(self) -> None:
        """Call after call until the guest is gone."""
        while order := self._next():
            if order["op"] == "start":
                Call(order, self._receiver.take_fds(), self).run()
            # A signal or kill for a call that has just ended needs no answer.

    def _next(self) -> channel.Message | None:
        while True:
            message = self._receiver.take()
            if message is not None:
                return message
            if not self._receiver.read():
                return None

    # ---- for the call

    @property
    def connection(self) -> socket.socket:
        return self._connection

    def oom_kills(self) -> int | None:
        return self._oom.read()

    def wait(self, status: int, seconds: float | None) -> tuple[bool, bool]:
        """Sleeps until something happens: (a message or the end is there, the status pipe is readable)."""
        poll = select.poll()
        for fd in (self._connection.fileno(), self._wake, status):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else max(0, seconds * 1000))}
        if self._wake in ready:
            os.read(self._wake, 4096)
        return self._connection.fileno() in ready, status in ready

    def messages(self) -> list[channel.Message] | None:
        """Reads what has arrived; None when the guest is gone."""
        return self.pending() if self._receiver.read() else None

    def pending(self) -> list[channel.Message]:
        """What has been read already."""
        found = []
        while (message := self._receiver.take()) is not None:
            found.append(message)
        return found


class Call:
    """One started process and all that comes of it."""

    def __init__(self, order: dict[str, Any], fds: list[int], supervisor: Supervisor) -> None:
        self._order = order
        self._fds = fds
        self._supervisor = supervisor
        self._pid = 0
        self._wait_status: int | None = None
        self._killed = False
        self._error = ""
        self._number = 0

    def run(self) -> None:
        oom_before = self._supervisor.oom_kills()
        status = self._fork()
        guest_is_there = True
        if self._pid:
            guest_is_there = self._watch(status)
        done = tree.end(os.getpid()) if tree.has_children() else tree.Ended()
        self._note(done.reaped)
        if not guest_is_there:
            os._exit(0)
        oom_after = self._supervisor.oom_kills()
        oom = None if oom_before is None or oom_after is None else oom_after > oom_before
        self._tell(len(done.processes), done.stuck, oom)

    def _fork(self) -> int:
        """Starts the child; the status pipe's reading end, or -1."""
        try:
            read, write = os.pipe2(os.O_CLOEXEC)
            try:
                pid = os.fork()
            except OSError:
                os.close(read)
                os.close(write)
                raise
        except OSError as error:
            self._number = error.errno or errno.EIO
            self._close_fds()
            return -1
        if pid == 0:
            os.close(read)
            child.start(self._order, self._fds, self._supervisor.connection, write)
        self._pid = pid
        os.close(write)
        self._close_fds()
        return read

    def _watch(self, status: int) -> bool:
        """Until the process is over or is to be killed, and its orphans had their grace. False: the guest is gone."""
        failure = b""
        grace_ends: float | None = None
        for message in self._supervisor.pending():  # came together with the order
            self._obey(message)
        while not self._killed:
            if self._wait_status is not None:
                if grace_ends is None:
                    grace_ends = time.monotonic() + self._order["grace"]
                if status < 0 and (not tree.has_children() or time.monotonic() >= grace_ends):
                    return True
            seconds = None if grace_ends is None else grace_ends - time.monotonic()
            arrived, reported = self._supervisor.wait(status, seconds)
            self._note(tree.reap())
            if reported:
                part = os.read(status, 4096)
                failure += part
                if not part:
                    os.close(status)
                    status = -1
                    self._started(failure)
            if arrived:
                messages = self._supervisor.messages()
                if messages is None:
                    return False
                for message in messages:
                    self._obey(message)
        if status >= 0:
            os.close(status)
        return True

    def _started(self, failure: bytes) -> None:
        if failure:
            number, _, where = failure.decode("utf-8", "surrogateescape").partition(" ")
            self._number, self._error = int(number), where
        else:
            channel.send(self._supervisor.connection, {"op": "started", "pid": self._pid})

    def _obey(self, message: channel.Message) -> None:
        if message["op"] == "kill":
            self._killed = True
        elif message["op"] == "signal" and self._wait_status is None:
            try:
                os.killpg(self._pid, message["number"])
            except (ProcessLookupError, PermissionError, ValueError):
                return  # over, or not yet its own group

    def _note(self, reaped: list[tuple[int, int]]) -> None:
        for pid, status in reaped:
            if pid == self._pid and self._wait_status is None:
                self._wait_status = status

    def _close_fds(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _tell(self, ended: int, stuck: int, oom: bool | None) -> None:
        code = number = None
        if self._wait_status is not None and not self._number:
            decoded = os.waitstatus_to_exitcode(self._wait_status)
            code, number = (decoded, None) if decoded >= 0 else (None, -decoded)
        main_was_killed = self._killed and number == signal.SIGKILL
        answer = {
            "op": "exit",
            "code": code,
            "signal": number,
            "ended": max(0, ended - main_was_killed),
            "stuck": stuck,
            "killed": self._killed,
            "oom": oom and code != 0 and not self._number if oom is not None else None,
            "errno": self._number,
            "where": self._error,
        }
        try:
            channel.send(self._supervisor.connection, answer)
        except OSError:
            os._exit(0)  # the guest is gone, and nothing of the call is left
