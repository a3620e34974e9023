"""`python -m tests.escape.kills [RUNS]`: the host process dies at a random moment, and nothing is left.

Each run is the real command with a plain kit, throwaway, killed by SIGKILL after a random time. 15 s after the last
death, whatever bears the label of one of these runs is counted in the engine: containers, volumes, networks; and on
the host: processes and temporary files.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from runner.engine import Engine, connect

REPO = Path(__file__).resolve().parents[2]
LONGEST = 5.0
"""Seconds after which the last of them is killed; a whole run takes three to four on two idle cores."""
PATIENCE = 15.0
"""Seconds in which everything of a dead host process must be gone."""
STARTED = "started"
"""What the tool call makes in the workspace: it is at work then."""
SCRIPT = """
models: [scripted]
answers:
  - round: 1
    call: {name: bash, input: {command: "echo x > ~/f; touch started; setsid sleep 1000 & sleep 2"}}
  - text: done
"""


@dataclass
class Left:
    """What is still there."""

    containers: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def total(self) -> int:
        return sum(map(len, self.__dict__.values()))

    def __str__(self) -> str:
        return ", ".join(f"{len(found)} {kind}" for kind, found in self.__dict__.items())


class Kills:
    """Runs of `sbx run` in folders of their own.

    Args:
        root: an empty folder.
        engine: where they run.
        address: the engine's, where it is not the usual one.
    """

    def __init__(self, root: Path, engine: Engine, address: str = "") -> None:
        self._root = root
        self._engine = engine
        self._address = {"DOCKER_HOST": address} if address else {}
        self._mark = f"SBX_KILLS={os.getpid()}-{time.monotonic_ns()}"
        self.kit = root / "kit"
        self.kit.mkdir(parents=True)
        (self.kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        (self.kit / "demo.yaml").write_text(SCRIPT)
        (root / "tmp").mkdir()

    def command(self, workspace: Path, *more: str) -> list[str]:
        start = [sys.executable, "-m", "runner", "run", "-q", str(self.kit), str(workspace)]
        return [*start, "--demo", "-p", "go", *more]

    def environ(self) -> dict[str, str]:
        name, _, value = self._mark.partition("=")
        state = {f"XDG_{kind}_HOME": str(self._root / kind.lower()) for kind in ("STATE", "CONFIG", "CACHE")}
        return {
            **os.environ,
            **state,
            **self._address,
            "TMPDIR": str(self._root / "tmp"),
            "PYTHONPATH": str(REPO),
            name: value,
        }

    def start(self, number: int, *more: str) -> subprocess.Popen[bytes]:
        workspace = self._root / f"work-{number}"
        workspace.mkdir(exist_ok=True)
        (workspace / STARTED).unlink(missing_ok=True)
        return subprocess.Popen(
            self.command(workspace, *more),
            env=self.environ(),
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def at_work(self, number: int) -> bool:
        return (self._root / f"work-{number}" / STARTED).exists()

    def whole(self) -> None:
        """One run to its end, which also builds the image."""
        code = self.start(0).wait(900)
        assert code == 0, f"a run that nobody kills ends with {code}"

    def kill_one(self, number: int, seconds: float, how: signal.Signals = signal.SIGKILL) -> bool:
        """Starts one and kills it after `seconds`. False: it was over before."""
        process = self.start(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(how)
            process.wait(60)
            return True
        return False

    def left(self) -> Left:
        """What bears the mark of one of these runs."""
        query = quote(json.dumps({"label": ["dev.sbx.owner"]}))
        left = Left()
        for path, key, name, found in (
            (f"/containers/json?all=1&filters={query}", "", "Id", left.containers),
            (f"/volumes?filters={query}", "Volumes", "Name", left.volumes),
            (f"/networks?filters={query}", "", "Name", left.networks),
        ):
            answer = self._engine.get(path, doing="counting what is left")
            for thing in (answer[key] if key else answer) or ():
                if str(thing["Labels"].get("dev.sbx.workspace", "")).startswith(str(self._root)):
                    found.append(thing[name])
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and folder.name != str(os.getpid()):
                try:
                    if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        left.processes.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
                except OSError:
                    continue
        left.files += [str(path) for path in (self._root / "tmp").rglob("*")]
        for number in self._root.glob("work-*"):
            left.files += [str(path) for path in number.iterdir() if path.name != STARTED]
        return left

    def settled(self, patience: float = PATIENCE) -> tuple[Left, float]:
        """What is left once nothing is, or after `patience` seconds; and how long that took."""
        began = time.monotonic()
        while (left := self.left()).total() and time.monotonic() - began < patience:
            time.sleep(0.1)
        return left, time.monotonic() - began


def main(runs: int) -> int:
    root = Path(tempfile.mkdtemp(prefix="sbx-kills-"))
    chance = random.Random()
    try:
        kills = Kills(root, connect())
        kills.whole()
        killed, seen = 0, 0
        for number in range(1, runs + 1):
            killed += kills.kill_one(number, chance.uniform(0.05, LONGEST))
            seen += bool(kills.left().containers)
            print(f"\r{number} of {runs}", end="", file=sys.stderr, flush=True)
        at_once = kills.left()
        left, seconds = kills.settled()
        print(f"\nruns: {runs}, killed before their end: {killed}, of these with a container just after: {seen}")
        print(f"left at once: {at_once}")
        print(f"left after {seconds:.1f} s: {left}")
        for found in left.__dict__.values():
            for each in found:
                print(f"  {each}")
        return 1 if left.total() else 0
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
