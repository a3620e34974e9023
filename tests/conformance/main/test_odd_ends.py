"""Moments and disks that nobody plans for: a full disk, a cancel at once, a process that was killed earlier."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
from pathlib import Path

import pytest

from runner import launch
from runner.engine import Engine
from runner.images.events import ignore
from runner.sandbox.sweep import sweep
from runner.wire.messages import Event
from tests.conformance.main.conftest import TIMEOUT, Done, Sbx

pytestmark = pytest.mark.engine


def test_a_result_that_cannot_be_written_is_one_message_and_a_failure(sbx: Sbx, kit: Path) -> None:
    command = sbx.command("run", "-q", kit, sbx.root / "work", "--demo", "-p", "What is in todo.txt?")
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=sbx.env(), timeout=TIMEOUT, check=False
        )
    assert (run.returncode, run.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_what_is_said_beside_the_answer_may_go_nowhere(sbx: Sbx, kit: Path) -> None:
    command = sbx.command("run", kit, sbx.root / "work", "--demo", "-p", "hello")
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=full, text=True, env=sbx.env(), timeout=TIMEOUT, check=False
        )
    assert run.returncode == 0
    assert "(scripted answer)" in run.stdout


@pytest.mark.parametrize("command", [("log", "--json"), ("run", "no-such-kit", "--json", "-p", "x")])
def test_not_even_an_error_that_cannot_be_written_ends_in_a_trace(sbx: Sbx, command: tuple[str, ...]) -> None:
    session = sbx.sessions / "20261130-200000000-00000000"
    session.mkdir(parents=True)
    line = {"t": "2026-11-30T20:00:00.000Z", "n": 1, "name": "session.start", "data": {}}
    (session / "record.jsonl").write_text(json.dumps(line) + "\n")
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            sbx.command(*command),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=sbx.env(),
            timeout=TIMEOUT,
            check=False,
        )
    assert run.returncode in (1, 3)
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr


def test_a_record_that_the_disk_refused_is_told_and_the_answer_still_comes(sbx: Sbx, kit: Path) -> None:
    run = subprocess.run(
        sbx.command("run", "-q", kit, sbx.root / "work", "--demo", "-p", "hello"),
        capture_output=True,
        text=True,
        env=sbx.env({"PYTHONDONTWRITEBYTECODE": "1"}),
        timeout=TIMEOUT,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert run.returncode == 0, run.stderr
    assert "(scripted answer)" in run.stdout
    assert run.stderr == "warning: the record of this session is not whole: File too large\n"


async def test_a_cancel_right_behind_the_question_ends_it(sbx: Sbx, kit: Path) -> None:
    options = launch.Options(str(kit), sbx.root / "work", demo=True, quiet=True, environ=sbx.env())
    prepared = launch.prepare(options)
    engine = launch.connect(prepared)
    image = launch.find_image(engine, prepared, ignore)
    async with launch.open_session(engine, prepared, image) as session, asyncio.timeout(30):

        async def ask() -> list[Event]:
            return [event async for event in session.ask("hello")]

        for turn in (1, 2):
            asking = asyncio.create_task(ask())
            await asyncio.sleep(0)  # the question is said, and has not left this process
            await session.cancel()
            last = (await asking)[-1]
            assert (last.name, last.data["turn"], last.data["status"]) == ("turn.end", turn, "cancelled")

        compacting = session.compact()
        asked = asyncio.ensure_future(anext(compacting, None))
        await asyncio.sleep(0)
        await session.cancel()
        while await asked is not None:
            asked = asyncio.ensure_future(anext(compacting, None))
        assert (await ask())[-1].data["status"] == "completed"


def test_sockets_of_processes_that_were_killed_go_with_the_next_sweep(engine: Engine, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        dead.bind(str(tmp_path / "000000000000.sock"))
        alive.bind(str(tmp_path / "111111111111.sock"))
        alive.listen()
        dead.close()
        sweep(engine, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["111111111111.sock"]


def test_two_runs_in_one_workspace_at_once_both_answer(sbx: Sbx, kit: Path) -> None:
    (sbx.root / "work" / "todo.txt").write_text("water the plants\n")
    command = sbx.command("run", "-q", kit, sbx.root / "work", "--demo", "-p", "What is in todo.txt?")
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=sbx.env())
        for _ in range(2)
    ]
    for run in runs:
        out, err = run.communicate(timeout=TIMEOUT)
        done = Done(run.returncode, out, err)
        assert done.code == 0, done.said
        assert "water the plants" in done.stdout
