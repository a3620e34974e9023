"""A whole run against what the engine needs for any container.

Prints, measured in turn in one process, medians and their ratio:

    run       `sbx run KIT --rm --demo -p …` (one tool call, one answer), image present, against `docker run --rm`
    help      `sbx --help` against `python -c pass`
    nothing   deciding "nothing to build" against the whole process of `docker image ls`

Usage: python bench/run.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 7
PYTHON = sys.executable
SBX = str(Path(PYTHON).with_name("sbx"))


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def compare(name: str, ours: Callable[[], float], theirs: Callable[[], float], bound: float, rounds: int) -> None:
    """Alternates the two, so that a busy machine slows both."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = f"ratio {mine / other:6.2f}   (at most {bound})"
    print(f"{name:<8} {mine * 1000:8.1f} ms   against {other * 1000:8.1f} ms   {ratio}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as folder:
        kit, work = Path(folder, "bench-kit"), Path(folder, "work")
        kit.mkdir()
        work.mkdir()
        (kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        (work / "todo.txt").write_text("nothing\n")
        run = [SBX, "run", str(kit), str(work), "--rm", "--demo", "-p", "What is in todo.txt?"]
        subprocess.run(run, check=True, capture_output=True)
        from runner.engine import connect
        from runner.images.build import ensure, tag
        from runner.launch.options import Options
        from runner.launch.prepared import prepare

        image = tag(prepare(Options(sandbox=str(kit), workspace=work)).what.plan)
        compare("run", lambda: timed(run), lambda: timed(["docker", "run", "--rm", image, "true"]), 3.5, rounds)
        compare("help", lambda: timed([SBX, "--help"]), lambda: timed([PYTHON, "-c", "pass"]), 8, rounds * 3)

        def decide() -> float:
            started = time.perf_counter()
            ensure(connect(), prepare(Options(sandbox=str(kit), workspace=work)).what.plan)
            return time.perf_counter() - started

        compare("nothing", decide, lambda: timed(["docker", "image", "ls"]), 0.33, rounds * 3)


if __name__ == "__main__":
    main()
