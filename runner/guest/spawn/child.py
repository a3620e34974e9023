"""What a forked child does until it is another program: session, descriptors, the drop of every privilege, exec.

It is forked before there is an order: of the 4 ms that a call took, more than 1 went into the fork and into touching
memory for the first time after it. It does all that needs no order, then waits for one.

Between the change of uid and the exec the child belongs to U but still holds the supervisor's memory. It stays
non-dumpable for that time (the kernel sees to it at the change of uid, exec ends it), so U cannot attach to it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import importlib
import os
import resource
import signal
import socket
import struct
import sys
import termios
from typing import NoReturn

from runner.guest.spawn import channel, privileges
from runner.guest.spawn.command import HOOK_UID

OOM_SCORE = 500
"""Tools go before the guest when memory runs out. A hint only: a process may lower its own score again."""
NICE = 10
"""Added to the tools' nice value: what ends a fork bomb, and a guard, must get its share of the processor beside it."""
_UMASK = 0o022


class StartError(Exception):
    """A step before exec failed; `where` names what it was about."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(number, where)
        self.number = number
        self.where = where


def serve(connection: socket.socket, orders: socket.socket, bounding: frozenset[int]) -> NoReturn:
    """Waits for an order and becomes the program that it names.

    Args:
        connection: the guest's socket, to which a terminal's other end is sent.
        bounding: the capabilities to take out of the bounding set.
        orders: the supervisor's start message arrives here. A failure is answered as `ERRNO WHERE`; exec closes it.
    """
    status = orders.fileno()
    try:
        _detach_from_supervisor()
        _raise_oom_score()
        privileges.clear_ambient()
        privileges.drop_from_bounding_set(bounding)
        receiver = channel.Receiver(orders)
        while (order := receiver.take()) is None:
            if not receiver.read():
                os._exit(0)  # the supervisor is gone
        if fds := receiver.take_fds():
            # Out of the way first, or a target could be another's source.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in fds]
            for target, fd in enumerate(high):
                os.dup2(fd, target)
        for name, value in order["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(_UMASK)
        if order["uid"] != HOOK_UID:
            os.nice(NICE)
        drop(order["uid"], order["gid"])
        if order["tty"]:
            _open_terminal(connection, *order["tty"])
        _enter(order["cwd"], order["fallback"])
        if order["call"]:
            _call(order["call"], order["argv"], order["env"], status)
        _execute([os.fsencode(a) for a in order["argv"]], order["env"])
    except StartError as error:
        _report(status, error.number, error.where)
    except OSError as error:
        _report(status, error.errno or errno.EIO, "")
    except BaseException as error:
        _report(status, errno.EINVAL, f"{type(error).__name__}: {error}")
    os._exit(127)


def drop(uid: int, gid: int) -> None:
    """Becomes `uid` and `gid` with no group, no capability, and, the bounding set being empty, no way to get any.

    Raises:
        OSError: the kernel refused a step; the process must not go on.
    """
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # from one uid but 0 to another, capabilities stay
    privileges.set_capabilities(frozenset())
    privileges.forbid_new_privileges()


def _detach_from_supervisor() -> None:
    os.setsid()
    # Python ignores these two, which exec would pass on. By the module below `signal`, whose enumerations cost a
    # forked child 0.3 ms of memory touched for the first time.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)


def _raise_oom_score() -> None:
    # A guest that is not dumpable finds that its /proc/self is root's, so this child is dumpable for a moment.
    dumpable = privileges.is_dumpable()
    privileges.set_dumpable(True)
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % OOM_SCORE)
        finally:
            os.close(fd)
    except OSError:
        pass  # a hint
    finally:
        privileges.set_dumpable(dumpable)


def _open_terminal(connection: socket.socket, rows: int, columns: int) -> None:
    """A terminal that belongs to U, since U opens it; its other end goes to the guest."""
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for target in (0, 1, 2):
        os.dup2(slave, target)
    if slave > 2:
        os.close(slave)
    channel.send(connection, {"op": "terminal"}, [master])
    os.close(master)


def _enter(folder: str, fallback: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        if not fallback:
            raise StartError(error.errno or errno.EIO, folder) from None
        os.chdir(fallback)


def _execute(argv: list[bytes], environment: dict[str, str]) -> NoReturn:
    env = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
    name = argv[0]
    if b"/" in name:
        candidates = [name]
    else:
        folders = env.get(b"PATH", b"/usr/bin:/bin").split(b":")
        candidates = [folder + b"/" + name for folder in folders if folder.startswith(b"/")]
    worst = errno.ENOENT
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606 - that is its job
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = error.errno or errno.EIO
                if worst != errno.EACCES:  # as execvp: go on past what may not be executed
                    break
    raise StartError(worst, os.fsdecode(name))


def _call(name: str, argv: list[str], environment: dict[str, str], status: int) -> NoReturn:
    """Runs a preloaded function in place of a program; what it returns is the exit code."""
    module, _, function = name.partition(":")
    target = getattr(sys.modules.get(module) or importlib.import_module(module), function)
    signal.set_wakeup_fd(-1)  # or a signal would write into whatever has that number later
    os.environ.clear()
    os.environ.update(environment)
    os.close(status)
    privileges.close_from(3)
    code = 70
    try:
        code = target(argv)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    os._exit(code)


def _report(status: int, number: int, where: str) -> None:
    os.write(status, f"{number} {where}".encode("utf-8", "surrogateescape")[:4000])
