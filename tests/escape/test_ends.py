"""Whatever ends a throwaway run, nothing of it is left 15 s later; a kept sandbox is stopped and whole."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.engine import Engine, connect
from tests.escape.kills import PATIENCE, Kills

pytestmark = pytest.mark.engine
RUNS = 8
STARTED = 60.0
"""Seconds until a run's sandbox runs, on a busy machine."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return connect()


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kit's image is there, so that no run builds it."""
    Kills(tmp_path_factory.mktemp("kills") / "first", engine).whole()


@pytest.fixture
def kills(engine: Engine, image: None, tmp_path: Path) -> Iterator[Kills]:
    made = Kills(tmp_path / "kills", engine)
    yield made
    for container in made.left().containers:
        engine.request("DELETE", f"/containers/{container}?force=1&v=1", doing="cleaning up")
    for volume in made.left().volumes:
        engine.request("DELETE", f"/volumes/{volume}?force=1", doing="cleaning up")


def until(condition: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.05)
    return value


def states(kills: Kills, engine: Engine) -> list[str]:
    found = []
    for container in kills.left().containers:
        found.append(str(engine.get(f"/containers/{container}/json", doing="looking")["State"]["Status"]))
    return found


def running(kills: Kills, *more: str) -> subprocess.Popen[bytes]:
    """A run whose tool call is at work."""
    process = kills.start(1, *more)
    until(lambda: process.poll() is not None or kills.at_work(1), STARTED)
    assert process.poll() is None
    return process


def test_a_host_killed_at_any_moment_leaves_nothing(kills: Kills) -> None:
    chance = random.Random()
    for number in range(RUNS):
        kills.kill_one(number, chance.uniform(0.2, 3.5))
    left, _ = kills.settled()
    assert left.total() == 0, left


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_its_own_code_and_leaves_nothing(
    kills: Kills, number: signal.Signals, code: int
) -> None:
    process = running(kills)
    process.send_signal(number)
    assert process.wait(30) == code
    left, _ = kills.settled()
    assert left.total() == 0, left


def test_a_terminal_that_goes_away_leaves_nothing(kills: Kills) -> None:
    process = running(kills)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) != 0
    left, _ = kills.settled()
    assert left.total() == 0, left


def test_a_run_whose_time_is_up_leaves_nothing(kills: Kills) -> None:
    assert kills.start(1, "--timeout", "0.5").wait(60) == 124
    left, _ = kills.settled()
    assert left.total() == 0, left


def test_a_frozen_container_does_not_hold_up_the_end_of_its_run(kills: Kills, engine: Engine) -> None:
    process = running(kills)
    container = kills.left().containers[0]
    engine.request("POST", f"/containers/{container}/pause", doing="freezing it")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    left, _ = kills.settled()
    assert left.total() == 0, left


def test_what_a_host_and_its_janitor_leave_is_swept_by_the_next_run(kills: Kills, engine: Engine) -> None:
    process = running(kills)
    janitors = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "janitor.py"], capture_output=True, text=True, check=True
    )
    subprocess.run(["kill", "-KILL", *janitors.stdout.split()], check=True)
    process.kill()
    process.wait()
    until(lambda: states(kills, engine) == ["exited"], PATIENCE)  # the guest ended with its wire
    assert kills.start(2).wait(60) == 0
    left, _ = kills.settled()
    assert left.total() == 0, left


def test_a_kept_sandbox_whose_host_is_killed_is_stopped_and_whole(kills: Kills, engine: Engine) -> None:
    process = running(kills, "--keep")
    process.kill()
    process.wait()
    until(lambda: states(kills, engine) == ["exited"] and not kills.left().processes, PATIENCE)
    left = kills.left()
    assert (len(left.containers), len(left.volumes), left.processes) == (1, 1, [])
    assert kills.start(1, "--keep").wait(60) == 0  # and it can be taken up again
    assert kills.left().containers == left.containers


def test_a_sandbox_that_runs_out_of_memory_leaves_nothing(kills: Kills) -> None:
    hungry = '- round: 1\n    call: {name: bash, input: {command: "tail /dev/zero"}}\n  - text: done\n'
    (kills.kit / "demo.yaml").write_text(f"models: [scripted]\nanswers:\n  {hungry}")
    assert kills.start(1, "--memory", "96m").wait(60) in (0, 137)
    left, _ = kills.settled()
    assert left.total() == 0, left
