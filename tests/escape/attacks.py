"""All attacks."""

from __future__ import annotations

from typing import Protocol

from tests.escape import disk, guards, guest, kernel, limits, network
from tests.escape.attack import Attack, Outcome
from tests.escape.stage import Stage


class Tried(Protocol):
    """An attack that says itself how it is tried."""

    name: str
    control: str
    off: str
    owners: tuple[int, ...]
    slow: bool

    def run(self, stage: Stage, where: str) -> Outcome: ...


ATTACKS: list[Attack | Tried] = [
    *kernel.ATTACKS,
    *guest.ATTACKS,
    *guest.ENDINGS,
    *guards.ATTACKS,
    *guards.OTHERS,
    *network.ATTACKS,
    *limits.ATTACKS,
    *disk.ATTACKS,
]

UNSHOWABLE = {
    "kernel crypto socket": "a kernel without AF_ALG",
    "load a module": "a kernel without modules",
    "sysrq-trigger": "a kernel without sysrq",
    "kernel memory": "a kernel without /proc/kcore",
    "ports of the machine": "a kernel without iopl",
    "real-time scheduling": "control groups without real-time bandwidth",
    "safe from the memory killer": "an engine without CAP_SYS_RESOURCE",
    "raise one's own limits": "an engine without CAP_SYS_RESOURCE",
}
"""Where the thing itself is missing, its door cannot be shown to open: listed with what the attempt said. Where it is
there, these count as all others do."""
