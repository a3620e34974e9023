"""Attacks on the host's disk through the home, which is a volume without a quota."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, replace

from runner.errors import LimitError
from runner.sandbox.profile import GIB, MIB
from tests.escape.attack import Outcome
from tests.escape.stage import SMALL, Box, Stage, Variant

WRITES = 20
"""Files of 16 MiB each; 320 MiB in all."""
PATIENCE = 10.0
"""Seconds in which the run must be ended."""
_numbers = itertools.count(1)

PIECE = """
import mmap
held = []
def piece(path):
    with open(path, "wb") as file:
        for _ in range(16):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
os.chdir("/home/agent")
"""
END = """
reached("320 MiB in the home")
time.sleep(30)
"""


@dataclass(frozen=True)
class FillTheHome:
    """The tool writes to its home until somebody stops it. It has a sandbox of its own, which is the price."""

    name: str
    script: str
    control: str = "guest watches the home and ends the run"
    off: str = "limits"
    owners: tuple[int, ...] = (1000,)
    slow: bool = False

    def run(self, stage: Stage, where: str) -> Outcome:
        size = GIB if where == self.off else 48 * MIB
        name = f"disk {next(_numbers)}"
        box = Box(stage, name, Variant(replace(SMALL, home=size)))
        stage.boxes[name] = box
        stage.do(box.open())
        try:
            box.start(PIECE + self.script % WRITES + END)
            end = time.monotonic() + (1.0 if where == self.off else PATIENCE)
            return stage.do(_outlives(box, end))
        finally:
            stage.do(box.close())
            del stage.boxes[name]


async def _outlives(box: Box, end: float) -> Outcome:
    assert box.session
    while True:
        try:
            said = await box.session.run(["du", "-sm", "/home/agent"], seconds=10, limit=100)
        except LimitError as error:
            return Outcome(False, True, f"refused the run was ended: {error.message}"[:120])
        held = int(said.stdout.split()[0]) if said.stdout.strip() else 0
        if time.monotonic() > end and held >= 0:
            return Outcome(True, True, f"REACHED the run goes on, {held} MiB by name in the home")
        await asyncio.sleep(0.1)


ATTACKS = [
    FillTheHome("a full disk by the home", "for n in range(%d): piece(f'fill-{n}')"),
    FillTheHome(
        "a full disk by files without a name",
        """
for n in range(%d):
    piece("fill")
    held.append(open("fill", "rb"))
    os.unlink("fill")
""",
    ),
    FillTheHome(
        "a full disk by files in a closed folder",
        """
os.mkdir("closed")
os.chmod("closed", 0o300)
for n in range(%d): piece(f"closed/fill-{n}")
""",
        slow=True,
    ),
    FillTheHome(
        "a full disk by a hidden process",
        """
libc.prctl(4, 0)
for n in range(%d):
    piece("fill")
    held.append(open("fill", "rb"))
    os.unlink("fill")
""",
        slow=True,
    ),
    FillTheHome(
        "a full disk by mapped files without a name",
        """
for n in range(%d):
    piece("fill")
    with open("fill", "rb") as file:
        held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    os.unlink("fill")
""",
        slow=True,
    ),
]
