"""The installed package: it carries its kits, mixins, hooks and base image, and works from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conformance.main.conftest import REPO


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = str(tmp_path_factory.mktemp("wheel"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, str(REPO)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (made,) = Path(folder).glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    site = wheel.with_name("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def sbx(installed: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(home)}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        environ.pop(name, None)
    command = [sys.executable, "-m", "runner", *arguments]
    return subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_it_finds_its_ready_made_kits_and_mixins(installed: Path, tmp_path: Path) -> None:
    done = sbx(installed, tmp_path, "kit", "ls")
    assert done.returncode == 0, done.stderr
    names = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"hooks-demo", "shell", "coder", "ci", "node", "python-tools", "go-toolchain", "cli-tools"} <= names


def test_its_demo_works_on_a_copy_of_the_playground(installed: Path, tmp_path: Path) -> None:
    done = sbx(installed, tmp_path, "run", "hooks-demo", "--demo", "-p", "x", "--dry-run")
    assert done.returncode == 0, done.stderr
    copy = tmp_path / ".local" / "state" / "sbx" / "playgrounds" / "hooks-demo"
    assert str(copy) in done.stdout
    assert sorted(path.name for path in copy.iterdir()) == ["notes.md", "old-drafts", "todo.txt"]


def test_every_file_of_the_repo_is_in_it_and_scripts_keep_their_right_to_be_run(wheel: Path) -> None:
    listed = ["git", "ls-files", "-s", "images", "mixins", "hooks", "sbx"]
    lines = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True).stdout.splitlines()
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    for line in lines:
        mode, _, rest = line.partition(" ")
        found = modes[f"runner/_data/{rest.partition(chr(9))[2]}"]
        assert bool(found & 0o111) == (mode == "100755"), line
