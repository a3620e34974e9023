"""How long it takes to start a command in the sandbox, as ratios measured in one run.

    python bench/spawn.py [ROUNDS]

Each round times, one after the other: the command through `Spawner.run` as the guest calls it, the same by
`subprocess.run` in the same container, and `docker exec`. Medians of the rounds. The bounds: at most 3 times the plain
start of `bash -c true`, at most a fifteenth of `docker exec CONTAINER true`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.conformance.spawn.conftest import Sandbox, make_workspace

MOST_OF_PLAIN = 3.0
MOST_OF_EXEC = 1 / 15
CALLS = 11
"""Of each kind in a round."""


def docker_exec(name: str) -> float:
    began = time.perf_counter()
    subprocess.run(["docker", "exec", name, "true"], check=True)
    return time.perf_counter() - began


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    order = {"argv": ["bash", "-c", "true"], "times": CALLS}
    found: dict[str, list[float]] = {name: [] for name in ("spawner", "plain", "bash", "read_file", "exec")}
    with tempfile.TemporaryDirectory() as folder:
        box = Sandbox(make_workspace(Path(folder) / "w", 1000), 1000)
        try:
            box.ask("bench", **order)
            for _ in range(rounds):
                for name, seconds in (box.ask("bench", **order) | box.ask("bench_tool", times=CALLS)).items():
                    found[name].append(seconds)
                found["exec"].append(docker_exec(box.name))
        finally:
            box.close()
    took = {name: statistics.median(times) for name, times in found.items()}
    rows = (
        ("Spawner.run / subprocess.run, bash -c true", took["spawner"] / took["plain"], MOST_OF_PLAIN),
        ("Spawner.run / docker exec true", took["spawner"] / took["exec"], MOST_OF_EXEC),
        ("tool bash true / docker exec true", took["bash"] / took["exec"], MOST_OF_EXEC),
    )
    print(", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in took.items()))
    for name, ratio, bound in rows:
        print(f"{'ok  ' if ratio <= bound else 'OVER'} {name}: {ratio:.3f} (at most {bound:.3f})")
    return int(any(ratio > bound for _, ratio, bound in rows))


if __name__ == "__main__":
    sys.exit(main())
