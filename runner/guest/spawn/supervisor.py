"""A supervisor: one call at a time, start to end.

It keeps a child forked ahead that becomes the call's program (`child`). It is a child subreaper, so what the call's
processes orphan becomes its child, `setsid` and double forks too. When it has no child left, nothing of the call is
left. It waits, ahead of need, for an order on its socket; after a call it waits for the next.

    guest says   start {argv env cwd fallback uid gid tty call limits grace quiet} with stdin, stdout, stderr
                 signal {number}; kill
    it says      terminal (from the child, with the descriptor); started {pid}, unless `quiet`; exit {…}

`quiet` spares the supervisor and the guest one waking each, between exec and end, when they are needed least: on a busy
machine each waking waits its turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from typing import NamedTuple, NoReturn

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


class Prepared(NamedTuple):
    """A child that waits for its order."""

    pid: int
    orders: socket.socket


class Supervisor:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._receiver = channel.Receiver(connection)
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._oom = OomCounter()
        self._bounding = privileges.bounding_set()
        self._prepared: Prepared | None = None

    def run(self) -> None:
        """Call after call until the guest is gone."""
        while True:
            with contextlib.suppress(OSError):  # the limit of processes: tried again when there is an order
                self._prepare()
            order = self._next()
            if order is None:
                return
            if order["op"] == "start":
                Call(order["grace"], order["quiet"], self._receiver.frame, self._receiver.take_fds(), self).run()
            # A signal or kill for a call that has just ended needs no answer.

    def _prepare(self) -> Prepared:
        """The child that waits for an order, forked now if there is none. Raises OSError."""
        if self._prepared:
            return self._prepared
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            child.serve(self._connection, theirs, self._bounding)
        theirs.close()
        self._prepared = Prepared(pid, ours)
        return self._prepared

    def give_order(self, frame: bytes, fds: list[int]) -> Prepared:
        """Hands the order to the child that waits. Raises OSError when none can be forked."""
        for pid, _ in tree.reap():
            if self._prepared and pid == self._prepared.pid:  # killed while it waited
                self._prepared.orders.close()
                self._prepared = None
        prepared = self._prepare()
        self._prepared = None
        try:
            channel.send_frame(prepared.orders, frame, fds)
        except OSError:
            prepared.orders.close()
            raise
        return prepared

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
        """Sleeps until something happens: (the guest has said something, the child has)."""
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

    def __init__(self, grace: float, quiet: bool, frame: bytes, fds: list[int], supervisor: Supervisor) -> None:
        self._grace = grace
        self._quiet = quiet
        self._frame = frame
        self._fds = fds
        self._supervisor = supervisor
        self._pid = 0
        self._wait_status: int | None = None
        self._killed = False
        self._error = ""
        self._number = 0

    def run(self) -> None:
        oom_before = self._supervisor.oom_kills()
        guest_is_there = True
        try:
            prepared = self._supervisor.give_order(self._frame, self._fds)
        except OSError as error:
            self._number = error.errno or errno.EIO
        else:
            self._pid = prepared.pid
            self._close_fds()
            guest_is_there = self._watch(prepared.orders)
            prepared.orders.close()
        self._close_fds()
        done = tree.end(os.getpid()) if tree.has_children() else tree.Ended()
        self._note(done.reaped)
        if not guest_is_there:
            os._exit(0)
        oom_after = self._supervisor.oom_kills()
        oom = None if oom_before is None or oom_after is None else oom_after > oom_before
        self._tell(len(done.processes), done.stuck, oom)

    def _watch(self, orders: socket.socket) -> bool:
        """Until the process is over or is to be killed, and its orphans had their grace. False: the guest is gone."""
        status = orders.fileno()
        failure = b""
        grace_ends: float | None = None
        for message in self._supervisor.pending():  # came together with the order
            self._obey(message)
        while not self._killed:
            if self._wait_status is not None:
                if self._quiet and status >= 0:  # its end is closed: what it had to report is there
                    while part := os.read(status, 4096):
                        failure += part
                    status = -1
                    self._started(failure)
                if grace_ends is None:
                    grace_ends = time.monotonic() + self._grace
                if status < 0 and (not tree.has_children() or time.monotonic() >= grace_ends):
                    return True
            seconds = None if grace_ends is None else grace_ends - time.monotonic()
            arrived, reported = self._supervisor.wait(-1 if self._quiet else status, seconds)
            self._note(tree.reap())
            if reported:
                part = os.read(status, 4096)
                failure += part
                if not part:
                    status = -1
                    self._started(failure)
            if arrived:
                messages = self._supervisor.messages()
                if messages is None:
                    return False
                for message in messages:
                    self._obey(message)
        return True

    def _started(self, failure: bytes) -> None:
        if failure:
            number, _, where = failure.decode("utf-8", "surrogateescape").partition(" ")
            self._number, self._error = int(number), where
        elif not self._quiet:
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
