"""Sandboxes have names; a kept one is gone on with, one session at a time, and never by mistake."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Sbx
from tests.conformance.plain import plain_image

pytestmark = pytest.mark.engine


@pytest.fixture
def sbx_kept(sbx: Sbx) -> Iterator[Sbx]:
    """The command; the sandboxes that it kept are removed at the end."""
    yield sbx
    rows = json.loads(sbx("ls", "--json").stdout)
    names = [row["name"] for row in rows if row["workspace"].startswith(str(sbx.root))]
    assert not names or sbx("rm", "-f", *names).code == 0


def mine(sbx: Sbx) -> list[str]:
    rows = json.loads(sbx("ls", "--json").stdout)
    return [row["name"] for row in rows if row["workspace"].startswith(str(sbx.root))]


def keep(sbx: Sbx, kit: Path, work: Path, command: str, *more: str) -> str:
    """Runs a command in a kept sandbox through the agent; what stderr says."""
    done = sbx("run", kit, work, "--keep", "--demo", "-p", f"run {command}", *more)
    assert done.code == 0, done.said
    return done.said


def test_a_rerun_goes_on_in_the_same_sandbox_with_its_home_and_says_so(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    assert "taken up again" not in keep(sbx_kept, kit, work, "echo kept > ~/note; sleep 999 &")
    (name,) = mine(sbx_kept)
    assert name.startswith("kit-work-")
    said = keep(sbx_kept, kit, work, "cat ~/note /proc/[0-9]*/comm")
    assert f"{name} (taken up again)" in said
    assert "kept" in said and "python3" in said and "sleep" not in said
    keep(sbx_kept, kit, work, "true", "--new")
    assert len(mine(sbx_kept)) == 2


@pytest.mark.slow
def test_other_controls_never_take_up_a_sandbox_unseen(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    keep(sbx_kept, kit, work, "true", "--network", "bridge", "--name", "life-tests-wide")
    done = sbx_kept("run", kit, work, "--keep", "--demo", "-p", "hi", "--name", "life-tests-wide")
    assert (done.code, "made with other controls" in done.stderr) == (2, True)
    elsewhere = sbx_kept("run", kit, kit, "--keep", "--demo", "-p", "hi", "--name", "life-tests-wide")
    assert (elsewhere.code, "another workspace" in elsewhere.stderr) == (2, True)
    said = keep(sbx_kept, kit, work, "true")
    assert "taken up again" not in said


def test_a_sandbox_is_gone_on_with_by_its_name_alone(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    made = sbx_kept("create", kit, work, "--name", "life-tests-byname", "--memory", "1g")
    assert (made.code, made.stdout) == (0, "life-tests-byname\n")
    done = sbx_kept("run", "life-tests-byname", "--demo", "-p", "cat todo.txt", "--json")
    assert "buy milk" in json.loads(done.stdout)["answer"]
    assert mine(sbx_kept) == ["life-tests-byname"]
    wider = sbx_kept("run", "life-tests-byname", "--demo", "-p", "hi", "--network", "bridge")
    assert (wider.code, "--network belongs to the container" in wider.stderr) == (2, True)
    shown = json.loads(sbx_kept("inspect", "life-tests-byname", "--json").stdout)
    assert (shown["differs"], shown["workspace"]) == (["memory"], str(work))
    table = sbx_kept("inspect", "life-tests-byname").stdout
    assert "! memory           1024 MiB, no swap   (default: 4096 MiB, no swap)" in table


def test_a_sandbox_in_use_is_code_3_and_can_still_be_entered(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    arguments = ("run", kit, work, "--keep", "--demo", "--events", "-p", "run echo on > up; sleep 600")
    command = sbx_kept.command(*arguments, "--name", "life-tests-busy")
    with subprocess.Popen(command, env=sbx_kept.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        for line in busy.stdout:
            if json.loads(line)["name"] == "tool.start":
                break
        try:
            second = sbx_kept("run", kit, work, "--keep", "--demo", "-p", "hi", "--name", "life-tests-busy")
            assert (second.code, "in use" in second.stderr) == (3, True)
            assert sbx_kept("rm", "life-tests-busy").code == 3
            assert sbx_kept("start", "life-tests-busy").code == 3
            assert sbx_kept("exec", "life-tests-busy", "echo", "inside").stdout == "inside\n"
            (row,) = json.loads(sbx_kept("stats", "life-tests-busy", "--json").stdout)
            assert row["pids"] > 1 and row["memory_mib"] > 1
        finally:
            busy.terminate()
            busy.communicate(timeout=60)
    assert busy.returncode == 143
    assert sbx_kept("rm", "life-tests-busy").code == 0


def test_of_two_runs_with_one_name_one_works(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    arguments = ("run", kit, work, "--keep", "--demo", "-p", "run sleep 2", "--name", "life-tests-twice")
    command = sbx_kept.command(*arguments)
    both = [
        subprocess.Popen(command, env=sbx_kept.env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert sorted(each.wait(120) for each in both) == [0, 3]


@pytest.mark.slow
def test_a_started_sandbox_is_let_go_for_a_run(sbx_kept: Sbx, kit: Path, work: Path) -> None:
    assert sbx_kept("create", kit, work, "--name", "life-tests-held").code == 0
    assert sbx_kept("start", "life-tests-held").code == 0
    assert sbx_kept("ls", "--running", "-q").stdout.splitlines().count("life-tests-held") == 1
    done = sbx_kept("run", "life-tests-held", "--demo", "-p", "cat todo.txt")
    assert (done.code, "buy milk" in done.stdout) == (0, True)
    assert sbx_kept("stop", "life-tests-held").stdout == "life-tests-held\n"


def test_one_broken_container_spoils_no_listing(sbx_kept: Sbx, engine: Engine, kit: Path, work: Path) -> None:
    image = engine.get(f"/images/{plain_image()}/json", doing="looking")["Id"]
    labels = {"dev.sbx.sandbox": "../evil\x1b[2J", "dev.sbx.owner": "nonsense", "dev.sbx.workspace": "x"}
    made = engine.request(
        "POST", "/containers/create", {"Image": image, "Cmd": ["true"], "Labels": labels}, doing="making"
    )
    try:
        listed = sbx_kept("ls")
        assert listed.code == 0
        assert "\\x1b[2J" in listed.stdout and "\x1b" not in listed.stdout
        rows = json.loads(sbx_kept("ls", "--json").stdout)
        assert rows == sorted(rows, key=lambda row: (row["name"], row["container"]))
        (broken,) = [row for row in rows if row["container"] == made["Id"]]
        assert broken["problem"] == "its labels name no owner"
        assert sbx_kept("exec", "../evil\x1b[2J", "true").code == 125
        assert sbx_kept("rm", "../evil\x1b[2J").code == 3
    finally:
        engine.request("DELETE", f"/containers/{made['Id']}?force=1", doing="removing")


def test_prune_takes_what_a_dead_process_left_and_nothing_else(
    sbx_kept: Sbx, engine: Engine, kit: Path, work: Path
) -> None:
    from runner.sandbox import owner

    assert sbx_kept("create", kit, work, "--name", "life-tests-stays").code == 0
    here = owner.current()
    dead = owner.Owner(here.host, here.boot, here.namespace, 2**22 - 3, 1).label()
    labels = {"dev.sbx.sandbox": "life-tests-dead", "dev.sbx.owner": dead, "dev.sbx.keep": "1"}
    volume = {"Name": "sbx-life-tests-dead-home", "Labels": labels}
    engine.request("POST", "/volumes/create", volume, doing="making a volume")
    listed = json.loads(sbx_kept("prune", "--dry-run", "--json").stdout)
    assert {"kind": "volume", "name": "sbx-life-tests-dead-home", "id": "sbx-life-tests-dead-home"} in listed["found"]
    assert "life-tests-stays" not in json.dumps(listed)
    done = sbx_kept("prune", "--json")
    assert "sbx-life-tests-dead-home" in json.loads(done.stdout)["removed"]
    assert mine(sbx_kept) == ["life-tests-stays"]
