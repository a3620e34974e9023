"""The fork server: forks supervisors ahead, and ends what a dead one leaves.

It is forked from PID 1 before the guest imports anything large, so that each supervisor is small and each fork quick.
It is a child subreaper too: when a supervisor dies (out of memory), the call's processes become the server's children
and are ended.

    guest says   fork {}
    it says      supervisor {pid} with its socket; refused {errno}; lost {pid, ended}
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import select
import signal
import socket
from typing import NoReturn

from runner.guest.spawn import channel, privileges, supervisor, tree

PRELOADED = ("runner.guest.tools.worker", "runner.guest.tools.documents")
"""Modules whose functions may be called in a child in place of a program."""


def launch() -> tuple[socket.socket, int]:
    """Forks the server from this process: the guest's end of its socket, and its pid."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = os.fork()
    if pid == 0:
        try:
            _serve(_keep_only(theirs))
        finally:
            os._exit(1)
    theirs.close()
    return ours, pid


def _keep_only(connection: socket.socket) -> socket.socket:
    """Closes all else but stderr. The guest's stdin and stdout are the wire to the host: no tool may ever hold them."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    descriptor = connection.detach()
    if descriptor != 3:
        os.dup2(descriptor, 3, inheritable=False)
    privileges.close_from(4)
    return socket.socket(fileno=3)


def _serve(connection: socket.socket) -> NoReturn:
    for name in PRELOADED:
        importlib.import_module(name)
    privileges.become_subreaper()
    privileges.name_process("sbx-spawn")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # every command inherits it
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, every page after a fork
    server = Server(connection)
    try:
        server.run()
    finally:
        tree.end(os.getpid())
        os._exit(0)


class Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._receiver = channel.Receiver(connection)
        self._wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._woken = woken
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._supervisors: set[int] = set()

    def run(self) -> None:
        """Until the guest closes its end."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if self._connection.fileno() in ready:
                if not self._receiver.read():
                    return
                while self._receiver.take() is not None:
                    self._fork()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            channel.send(self._connection, {"op": "refused", "errno": error.errno or errno.EAGAIN})
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for fd in (self._wake, self._woken):
                os.close(fd)
            self._connection.close()
            ours.close()
            supervisor.serve(theirs)
        theirs.close()
        self._supervisors.add(pid)
        channel.send(self._connection, {"op": "supervisor", "pid": pid}, [ours.fileno()])
        ours.close()

    def _reap(self) -> None:
        lost = []
        for pid, _ in tree.reap():
            if pid in self._supervisors:
                self._supervisors.discard(pid)
                lost.append(pid)
        if not lost:
            return
        # What is not a supervisor and is below us, was below one that died.
        done = tree.end(os.getpid(), frozenset(self._supervisors))
        for pid, _ in done.reaped:
            if pid in self._supervisors:
                self._supervisors.discard(pid)
                lost.append(pid)
        for pid in lost:
            channel.send(self._connection, {"op": "lost", "pid": pid, "ended": len(done.processes)})
