"""Many throwaway runs while things break; then: every result accounted for, nothing left, nothing grown.

Faults are put in when so many results are there. A fault may change what lines become that run during it, and only
these: a line that was asked while the model server was away may end with code 1, one whose engine stayed away with 4.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.engine import connect
from runner.scripted.server import ScriptedServer
from tests.soak.dockerd import Dockerd
from tests.soak.plan import GUARD, KINDS, Model, draw, line

REPO = Path(__file__).resolve().parents[2]
GONE_WITHIN = 25.0
"""Seconds after the last host until nothing is left: 15 for the sandboxes, and the janitors' last looks."""
STUCK_AFTER = 180.0
"""Seconds without a new result or the batch's end until the soak counts as stuck."""
DESCRIPTORS = 60
"""Most descriptors of a host, beside those of its sandboxes."""
DESCRIPTORS_A_LINE = 12
SMALL_DISK = 1024**3
"""Bytes. No other disk is filled."""
GROWTH = 24 * 1024
"""KiB that a host may grow while it runs, after its first lines."""


@dataclass
class Summary:
    """What was put in and what was found."""

    runs: int = 0
    seconds: float = 0.0
    hosts: int = 0
    faults: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    retried: int = 0
    by_fault: int = 0
    """Results that a fault changed."""
    descriptors: int = 0
    memory: int = 0
    """KiB of the largest host."""
    growth: int = 0
    wrong: list[str] = field(default_factory=list)
    """Empty for a soak that passed."""

    def text(self) -> str:
        codes = ", ".join(f"{count} × {code}" for code, count in sorted(self.codes.items()))
        return "\n".join(
            [
                f"{self.runs} runs in {self.seconds:.0f} s by {self.hosts} host processes",
                f"put in: {'; '.join(self.faults) or 'nothing'}",
                f"codes: {codes}; {self.retried} lines took more than one attempt, {self.by_fault} differ by a fault",
                f"a host's most descriptors {self.descriptors}, memory {self.memory / 1024:.0f} MiB,"
                f" growth {self.growth / 1024:.1f} MiB",
                *(f"WRONG: {each}" for each in self.wrong),
            ]
        )


class Soak:
    """One soak in a folder. `run` does it; faults are methods that are called from its loop.

    Args:
        root: an empty folder, on a small disk of its own for the fault `fill disk`.
        kit: what all lines run.
        faults: part of the results that are there → what is put in then.
        engine: an engine of the soak's own, for faults of the engine; None: the usual one.
        log: is told each fault.
    """

    def __init__(
        self, root: Path, kit: Path, *, runs: int, parallel: int, faults: dict[float, str], engine: Dockerd | None,
        seed: int = 1, pool: int = 2, log: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.root = root
        self.summary = Summary(runs)
        self._kit, self._runs, self._parallel, self._pool = kit, runs, parallel, pool
        self._faults = sorted(faults.items())
        self._dockerd = engine
        self._log = log
        self._kinds = draw(runs, seed)
        self._model = Model()
        self._server = ScriptedServer(self._model)
        self._host: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._windows: list[tuple[float, float, tuple[int, ...]]] = []
        self._first_memory = self._at_start = 0
        self.output = root / "results.jsonl"
        self.state = root / "state"

    # ---- the run

    def run(self) -> Summary:
        began = time.monotonic()
        batch = self.root / "batch.jsonl"
        with batch.open("w") as file:
            for index, kind in enumerate(self._kinds):
                workspace = self.root / "ws" / str(index)
                workspace.mkdir(parents=True)
                file.write(json.dumps(line(index, kind, str(workspace))) + "\n")
        with self._server, ExitStack() as ending:
            ending.callback(self._end_host)
            faults = list(self._faults)
            changed, known = time.monotonic(), -1
            self._start_host()
            while True:
                assert self._host is not None
                code = self._host.poll()
                done = self._count()
                if done != known:
                    changed, known = time.monotonic(), done
                self._measure(done)
                if code is not None:
                    if done >= self._runs:
                        break
                    if not self._killed and code not in (0, 2, 4, 7):
                        self.summary.wrong.append(f"a host ended with code {code}: {self._said()}")
                        break
                    self._start_host()
                elif faults and done >= faults[0][0] * self._runs:
                    name = faults.pop(0)[1]
                    self.summary.faults.append(f"{name} after {done}")
                    self._log(f"{done}/{self._runs}: {name}")
                    getattr(self, name.replace(" ", "_"))()
                elif time.monotonic() - changed > STUCK_AFTER:
                    self.summary.wrong.append(f"stuck after {done} results: {self._said()}")
                    break
                else:
                    time.sleep(0.1)
            for name in (name for _, name in faults):
                self.summary.wrong.append(f"the fault {name} had no chance")
        self.summary.seconds = time.monotonic() - began
        self._judge_results()
        self._judge_leftovers()
        return self.summary

    # ---- faults

    def kill_host(self) -> None:
        """SIGKILL: no word to anybody."""
        assert self._host is not None
        self._killed = True
        self._host.kill()
        self._host.wait()

    def lose_model(self) -> None:
        """The model server dies, and is there again on the same port."""
        with self._window(1):
            self._server.stop()
            time.sleep(3)
            self._server.start()

    def restart_engine(self) -> None:
        """As an upgrade of the package does."""
        assert self._dockerd
        with self._window(4):
            self._dockerd.stop()
            self._dockerd.start()

    def kill_engine(self) -> None:
        """As a crash does."""
        assert self._dockerd
        with self._window(4):
            self._dockerd.stop(signal.SIGKILL)
            self._dockerd.start()

    def fill_disk(self) -> None:
        """The disk of the records and results is full for a while."""
        big = self.root / "big"
        disk = os.statvfs(self.root)
        assert disk.f_blocks * disk.f_frsize < SMALL_DISK, "the soak's folder is not on a small disk of its own"
        with self._window(1):
            with big.open("ab") as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * 65536)
                    file.flush()
            time.sleep(5)
            big.unlink()

    def jump_clock(self) -> None:
        """Two hours ahead, then a day back."""
        clock = self.root / "clock"
        clock.write_text("7200")
        time.sleep(3)
        clock.write_text("-86400")

    @contextmanager
    def _window(self, *codes: int) -> Iterator[None]:
        """Lines that run in this time may end with one of these codes instead."""
        start = self._now()
        yield
        self._windows.append((start, self._now() + 15, codes))

    # ---- the host process

    def _start_host(self) -> None:
        self._killed = False
        self.summary.hosts += 1
        self._first_memory, self._at_start = 0, self._count()
        how = ["--resume", self.output] if self.output.exists() else ["--output", self.output]
        command = [
            sys.executable, REPO / "tests" / "soak" / "host.py", "batch", self.root / "batch.jsonl", "-q", *how,
            "-j", self._parallel, "--pool", self._pool, "--retries", 6, "--sandbox", self._kit,
            "--base-url", self._server.url, "--model", "m", "--hook", f"preToolCall={GUARD}", "--yolo",
        ]  # fmt: skip
        with (self.root / "stderr").open("ab") as said:
            self._host = subprocess.Popen(list(map(str, command)), env=self._environ(), stderr=said)

    def _environ(self) -> dict[str, str]:
        more = {
            "XDG_STATE_HOME": str(self.state),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "PYTHONPATH": str(REPO),
            "SBX_SOAK_CLOCK": str(self.root / "clock"),
        }
        return {**os.environ, **more, **({"DOCKER_HOST": self._dockerd.url} if self._dockerd else {})}

    def _end_host(self) -> None:
        if self._host and self._host.poll() is None:
            self._host.terminate()
            try:
                self._host.wait(60)
            except subprocess.TimeoutExpired:
                self._host.kill()
                self._host.wait()

    def _measure(self, done: int) -> None:
        assert self._host is not None
        proc = Path("/proc") / str(self._host.pid)
        with contextlib.suppress(OSError, ValueError, IndexError):
            descriptors = len(list((proc / "fd").iterdir()))
            memory = int((proc / "status").read_text().split("VmRSS:")[1].split()[0])
            self.summary.descriptors = max(self.summary.descriptors, descriptors)
            self.summary.memory = max(self.summary.memory, memory)
            # Its first lines import what is needed and open their files; from then on it should stay as it is.
            if not self._first_memory and done >= self._at_start + 2 * self._parallel:
                self._first_memory = memory
            if self._first_memory:
                self.summary.growth = max(self.summary.growth, memory - self._first_memory)

    def _count(self) -> int:
        with contextlib.suppress(OSError):
            return self.output.read_bytes().count(b"\n")
        return 0

    def _said(self) -> str:
        return (self.root / "stderr").read_text("utf-8", "replace")[-2000:]

    def _now(self) -> float:
        """By the clock of the host processes."""
        with contextlib.suppress(OSError, ValueError):
            return time.time() + float((self.root / "clock").read_text())
        return time.time()

    # ---- what is found

    def _judge_results(self) -> None:
        wrong = self.summary.wrong
        found: dict[str, dict[str, Any]] = {}
        for number, raw in enumerate(self.output.read_text().splitlines(), 1):
            result = json.loads(raw)
            if result["id"] in found:
                wrong.append(f"line {number}: a second result of {result['id']}")
            found[result["id"]] = result
            self.summary.codes[result["code"]] += 1
            self.summary.retried += result["attempts"] > 1
        for index, kind in enumerate(self._kinds):
            name = f"{kind}-{index}"
            if name not in found:
                wrong.append(f"{name} has no result")
            elif problem := self._problem(found[name], kind):
                if self._excused(found[name]):
                    self.summary.by_fault += 1
                else:
                    wrong.append(f"{name}: {problem}")
        wrong += [
            f"{name} was never asked for" for name in found.keys() - {f"{k}-{i}" for i, k in enumerate(self._kinds)}
        ]

    def _problem(self, result: dict[str, Any], kind: str) -> str:
        expected = KINDS[kind]
        run = result["run"]
        if result["code"] != expected.code:
            return f"code {result['code']} ({result['message']}), not {expected.code}"
        if run.get("status") != expected.status:
            return f"status {run.get('status')}, not {expected.status}"
        if expected.said not in f"{run.get('answer')} {result['message']}":
            return f"{run.get('answer')!r}, {result['message']!r} lack {expected.said!r}"
        return ""

    def _excused(self, result: dict[str, Any]) -> bool:
        import calendar

        start = calendar.timegm(time.strptime(result["started"], "%Y-%m-%dT%H:%M:%SZ"))
        end = start + result["seconds"] + 1
        return any(start <= to and end >= since and result["code"] in codes for since, to, codes in self._windows)

    def _judge_leftovers(self) -> None:
        until = time.monotonic() + GONE_WITHIN
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.2)
        self.summary.wrong += left
        lines = self._parallel + self._pool
        if self.summary.descriptors > DESCRIPTORS + DESCRIPTORS_A_LINE * lines:
            self.summary.wrong.append(f"a host had {self.summary.descriptors} descriptors")
        if self.summary.growth > GROWTH:
            self.summary.wrong.append(f"a host grew by {self.summary.growth} KiB")

    def _left(self) -> list[str]:
        engine = connect(self._environ())
        query = "filters=" + "%7B%22label%22%3A%5B%22dev.sbx.owner%22%5D%7D"
        left = []
        for kind, path in (
            ("container", "/containers/json?all=1&"),
            ("volume", "/volumes?"),
            ("network", "/networks?"),
        ):
            answer = engine.get(f"{path}{query}", doing="looking", timeout=30.0)
            things = (answer["Volumes"] or []) if kind == "volume" else answer
            for thing in things:
                if thing["Labels"].get("dev.sbx.workspace", "").startswith(str(self.root)):
                    left.append(f"a {kind} is left: {thing.get('Name') or thing['Id'][:12]}")
        mark = f"XDG_STATE_HOME={self.state}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        left.append(f"a process is left: {entry.name} {command}")
        locks = self.state / "sbx" / "sandboxes"
        files = sorted(p.name for p in locks.iterdir()) if locks.exists() else []
        if len(files) > self._parallel * (self.summary.hosts - 1) + self._pool * (self.summary.hosts - 1):
            left.append(f"{len(files)} files are left in {locks}")
        return left
