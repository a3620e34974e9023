"""The profile as it is in the engine and as it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine import connect
from runner.errors import UsageError
from runner.sandbox.container import check_runtime
from runner.sandbox.profile import MASKED, Profile
from tests.conformance.main.conftest import Sbx

CONTROLS = (
    "privileged capabilities privileges network cpus memory processes devices mounts runtime home /dev/shm".split()
)


@pytest.fixture
def sbx(tmp_path: Path) -> Sbx:
    return Sbx(tmp_path)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    (tmp_path / "work").mkdir()
    return folder


def test_a_dry_run_shows_every_control_and_starts_nothing(sbx: Sbx, kit: Path, tmp_path: Path) -> None:
    done = sbx("run", kit, tmp_path / "work", "--dry-run", env={"DOCKER_HOST": "unix:///nonexistent.sock"})
    assert done.code == 0, done.said
    shown = [line for line in done.stdout.splitlines() if line]
    for control, value, _ in Profile().table():
        assert any(line.startswith(control) and value in line for line in shown), control
    assert {row[0] for row in Profile().table()} >= set(CONTROLS)


def test_the_engine_is_told_no_swap_no_device_and_the_masked_paths() -> None:
    host = Profile().host_config()
    assert host["MemorySwap"] == host["Memory"] == 4 * 1024**3
    assert "Devices" not in host
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(host["MaskedPaths"]) == set(MASKED)
    assert host["OomScoreAdj"] > 0
    assert all("nosuid" in options and "nodev" in options for options in host["Tmpfs"].values())
    assert all("size=" in options for options in host["Tmpfs"].values())


def test_a_privileged_profile_says_so_and_masks_nothing() -> None:
    profile = Profile(privileged=True)
    assert profile.host_config()["Privileged"] is True
    assert profile.host_config()["MaskedPaths"] == []
    rows = {control: value for control, value, _ in profile.table()}
    assert (rows["privileged"], rows["masked paths"], rows["system calls"]) == ("yes", "none", "all")


@pytest.mark.engine
def test_a_runtime_that_the_engine_lacks_is_named_with_those_it_has() -> None:
    engine = connect()
    check_runtime(engine, "")
    check_runtime(engine, "runc")
    with pytest.raises(UsageError) as caught:
        check_runtime(engine, "kata-qemu")
    assert "kata-qemu" in caught.value.message and "runc" in str(caught.value.hint)
    engine.close()
