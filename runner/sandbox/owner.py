"""Who made a thing in the engine: one process of one machine, told apart from every other by its start time.

A process id alone comes again, and means nothing on another machine or in another pid namespace (two CI jobs in
containers that share the engine's socket both have a process 7). So the label holds all four: the host's name, its
boot, the pid namespace, and the process with its start time.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LABEL = "dev.sbx.owner"


@dataclass(frozen=True)
class Owner:
    host: str
    boot: str
    namespace: str
    pid: int
    start: int
    """Clock ticks after boot."""

    def label(self) -> str:
        """The value of `dev.sbx.owner`."""
        return f"{self.host} {self.boot} {self.namespace} {self.pid} {self.start}"

    def certainly_dead(self) -> bool:
        """The process is known to be gone. A process of another machine is never known to be."""
        here = current()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and start_time(self.pid) != self.start


def parse(label: str) -> Owner | None:
    """The owner that a label names; None when it is not one of ours."""
    parts = label.split(" ")
    if len(parts) != 5 or not (parts[3].isdecimal() and parts[4].isdecimal()):
        return None
    return Owner(parts[0], parts[1], parts[2], int(parts[3]), int(parts[4]))


@cache
def _machine() -> tuple[str, str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        boot, namespace = "-", "-"
    return socket.gethostname().replace(" ", "_") or "-", boot, namespace


def current() -> Owner:
    """This process."""
    return Owner(*_machine(), os.getpid(), start_time(os.getpid()))


def start_time(pid: int) -> int:
    """Clock ticks after boot at which the process started; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])
