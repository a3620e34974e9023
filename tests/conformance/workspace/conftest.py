"""How a sandbox has its workspace, through the command, against a real engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx, engine, kit, nothing_is_left, sbx

__all__ = ["engine", "kit", "nothing_is_left", "sbx"]

SCRIPT = """
answers:
  - question: (?s)^run (?P<command>.+)
    round: 1
    call: {name: bash, input: {command: "{command}"}}
  - round: 2
    text: "{output}"
"""
"""What the kit's scripted model answers: it runs what it is told."""


@pytest.fixture
def work(kit: Path) -> Path:
    """The workspace beside the kit: three files, of another user than root."""
    (kit / "demo.yaml").write_text(SCRIPT)
    folder = kit.parent / "work"
    (folder / "todo.txt").write_text("buy milk\n")
    (folder / "Makefile").write_text("all:\n\ttrue\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.txt").write_text("deep\n")
    own(folder)
    return folder


@pytest.fixture
def repo(work: Path) -> Path:
    """The same as a git repository: one commit, one changed, one untracked and one ignored file."""
    (work / ".gitignore").write_text("*.log\n")
    own(work)
    git(work, "init", "-q")
    git(work, "config", "user.name", "n")
    git(work, "config", "user.email", "n@example.invalid")
    git(work, "config", "remote.origin.url", "https://user:token-in-config@example.invalid/x")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "first")
    (work / "todo.txt").write_text("buy milk\nand bread\n")
    (work / "new.txt").write_text("untracked\n")
    (work / "x.log").write_text("ignored\n")
    own(work)
    return work


def own(folder: Path, uid: int = 1001) -> None:
    """Gives a folder and all in it to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def git(folder: Path, *arguments: str) -> str:
    """Git in a folder whose owner is another; what it makes is the owner's too."""
    owner = folder.stat().st_uid
    settings = folder.parent / "gitconfig"
    settings.write_text("[safe]\n\tdirectory = *\n")
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    own(folder, owner)
    return done.stdout


def ask(sbx: Sbx, kit: Path, command: str, *options: str | Path, workspace: Path | None = None) -> tuple[str, str, int]:
    """Lets the agent run a command. Its output, what was said beside it, and the code."""
    places = [workspace] if workspace else []
    done = sbx("run", kit, *places, "--demo", "-p", f"run {command}", *options)
    return done.stdout, done.stderr, done.code
