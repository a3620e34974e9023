"""Starts `sbx` with a clock that another process can set: SBX_SOAK_CLOCK names a file with seconds to add.

A jump of the machine's own clock would hit everything else on it. What `sbx` reads is `time.time`, so that is moved.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_real = time.time


def _jumping() -> float:
    try:
        return _real() + float(Path(os.environ["SBX_SOAK_CLOCK"]).read_text() or 0)
    except (KeyError, OSError, ValueError):
        return _real()


if __name__ == "__main__":
    time.time = _jumping
    from runner.cli.app import run

    sys.exit(run(sys.argv[1:]))
