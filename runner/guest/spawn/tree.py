"""Finding everything below a process and ending it.

Two things look alike and must be told apart: a process that is over, and one that nobody has waited for yet. Both have
a `/proc` entry; its state and its count of threads tell. And a number read a moment ago may by now be another process,
so a signal goes to a pidfd whose start time was compared after opening it, never to a bare number.

Needs no new process and no thread, hence works at the pids limit. A fork bomb is first frozen, pass by pass: a stopped
process does not fork, and every child it made before is found by the next pass.
"""

from __future__ import annotations

import os
import signal
import time

FREEZE_SECONDS = 0.4
"""Longest time of freezing before killing begins anyway: another process of the same user may send SIGCONT."""
KILL_SECONDS = 5.0
"""Longest wait for killed processes to be gone; what is left then hangs in the kernel."""
_PAUSE = 0.002

Row = tuple[int, bool, int]
"""Parent, whether it still runs, start time in clock ticks."""


def table() -> dict[int, Row]:
    """Every process that can be seen."""
    found: dict[int, Row] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            row = _row(int(name))
            if row:
                found[int(name)] = row
    return found


def _row(pid: int) -> Row | None:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 1024)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # The name in parentheses is the process's own choice and may hold anything, parentheses too.
    fields = text[text.rindex(b")") + 2 :].split()
    # A process whose first thread has exited shows `Z` while its other threads run on.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    return int(fields[1]), alive, int(fields[19])


def below(root: int, processes: dict[int, Row], spare: frozenset[int] = frozenset()) -> list[int]:
    """All descendants of `root`, zombies not; `spare` and what is below it left out."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in spare:
                queue.append(pid)
                if processes[pid][1]:
                    found.append(pid)
    return found


def send(pid: int, start: int, number: int) -> bool:
    """Signals the process that has this number and this start time. False when it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        row = _row(pid)
        if row is None or row[2] != start:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def reap() -> list[tuple[int, int]]:
    """Waits for every child that is over: (pid, wait status)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def has_children() -> bool:
    """Whether this process has a child, alive or not yet waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Ended:
    """What ending a tree came to."""

    def __init__(self) -> None:
        self.processes: set[tuple[int, int]] = set()
        """(pid, start time) of each process that was sent SIGKILL."""
        self.reaped: list[tuple[int, int]] = []
        """(pid, wait status) of this process's own children among them."""
        self.stuck = 0


def end(root: int, spare: frozenset[int] = frozenset()) -> Ended:
    """Ends all that is below `root`, which must be this process, but `spare`.

    Orphans of the tree must become this process's children (child subreaper or PID 1), or some would get away.
    """
    done = Ended()
    frozen: set[tuple[int, int]] = set()
    deadline = time.monotonic() + FREEZE_SECONDS
    while time.monotonic() < deadline:
        processes = table()
        fresh = [pid for pid in below(root, processes, spare) if (pid, processes[pid][2]) not in frozen]
        if not fresh:
            break
        for pid in fresh:
            frozen.add((pid, processes[pid][2]))
            send(pid, processes[pid][2], signal.SIGSTOP)
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        processes = table()
        left = below(root, processes, spare)
        for pid in left:
            if send(pid, processes[pid][2], signal.SIGKILL):
                done.processes.add((pid, processes[pid][2]))
        done.reaped += reap()
        if not left and (spare or not has_children()):
            return done
        if time.monotonic() > deadline:
            done.stuck = len(left)
            return done
        time.sleep(_PAUSE)
