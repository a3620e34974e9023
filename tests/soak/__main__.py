"""The whole soak: `python -m tests.soak [--runs 500] [-j 8] [--seed N]`. Needs root, dockerd and loop devices.

Prints its summary, and ends with 1 when something was wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.dockerd import Dockerd
from tests.soak.soak import Soak

DISK = 192 * 1024 * 1024
"""Bytes of the disk that records and results are on."""
FAULTS = {
    0.08: "kill host",
    0.18: "lose model",
    0.30: "restart engine",
    0.42: "kill host",
    0.52: "kill engine",
    0.64: "jump clock",
    0.74: "fill disk",
    0.84: "lose model",
    0.92: "kill host",
}


@contextmanager
def small_disk() -> Iterator[Path]:
    """A folder on a loop device of its own."""
    with tempfile.TemporaryDirectory(prefix="sbx-soak-disk.", dir="/var/tmp") as folder:
        image, mount = Path(folder, "image"), Path(folder, "mount")
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(DISK)
        subprocess.run(["mkfs.ext4", "-q", "-N", "65536", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        try:
            yield mount
        finally:
            subprocess.run(["umount", "-l", mount], check=True)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("-j", "--parallel", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as kits, small_disk() as root, Dockerd() as engine:
        kit = Path(kits, "soak")
        kit.mkdir()
        (kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        engine.take_image(image_of(kit))
        soak = Soak(
            root, kit, runs=asked.runs, parallel=asked.parallel, faults=FAULTS, engine=engine, seed=asked.seed,
            log=lambda text: print(text, flush=True),
        )  # fmt: skip
        summary = soak.run()
    print(summary.text())
    return 1 if summary.wrong else 0


def image_of(kit: Path) -> str:
    """The tag of the kit's image, built on the usual engine where it is not there."""
    from runner.engine import connect
    from runner.images.build import ensure
    from runner.launch.options import Options
    from runner.launch.prepared import prepare

    return ensure(connect(), prepare(Options(sandbox=str(kit), workspace=kit)).what.plan).tag


if __name__ == "__main__":
    sys.exit(main())
