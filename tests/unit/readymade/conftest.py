"""The ready-made hooks as they lie in an image, and a way to run one as the guest does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
HOOKS = REPOSITORY / "hooks"
PLAYGROUND = REPOSITORY / "sbx" / "hooks-demo" / "playground"
SECONDS = 30.0
"""Bound of one hook's run; far above what any needs, the machine may be busy."""


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def answer(self) -> dict[str, Any]:
        """The one object on stdout; `{}` when there is none."""
        text = self.stdout.decode("utf-8")
        value = json.loads(text) if text else {}
        assert isinstance(value, dict)
        return value


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`/opt/sbx` of an image: the hooks, and beside them the libraries copied from this machine's installation."""
    program = tmp_path_factory.mktemp("opt") / "sbx"
    shutil.copytree(HOOKS, program / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    spec = importlib.util.find_spec("bashlex")
    assert spec is not None and spec.submodule_search_locations
    shutil.copytree(spec.submodule_search_locations[0], program / "lib" / "bashlex")
    return program


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the demo's playground."""
    folder = tmp_path / "workspace"
    shutil.copytree(PLAYGROUND, folder, ignore=shutil.ignore_patterns(".mm"))
    return folder


Run = Callable[..., Outcome]


@pytest.fixture
def run(installed: Path, workspace: Path, tmp_path: Path) -> Run:
    """Runs a hook: `run("audit.js", event, args=[…])`; an event is a dict or the bytes themselves."""
    home = tmp_path / "home"
    temporary = tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()

    def run(hook: str, event: dict[str, Any] | bytes, *, args: Sequence[str] = (), cwd: Path = workspace) -> Outcome:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        process = subprocess.run(
            [*program(hook), str(installed / "hooks" / hook), *args],
            input=data,
            capture_output=True,
            timeout=SECONDS,
            cwd=cwd,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": str(home),
                "TMPDIR": str(temporary),
                "PYTHONNOUSERSITE": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "MM_HOOK_EVENT": str(event.get("event", "")) if isinstance(event, dict) else "",
                "MM_CONFIG_DIR": str(tmp_path),
                "SBX_HOOKS_DIR": str(installed / "hooks"),
                "CLAUDE_PROJECT_DIR": str(workspace),
            },
        )
        return Outcome(process.returncode, process.stdout, process.stderr)

    return run


Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ask(run: Run) -> Ask:
    """Answers of one process to many events, as `persistent: true` runs a hook: `ask("audit.js", events, args=[…])`."""

    def ask(hook: str, events: Sequence[dict[str, Any]], *, args: Sequence[str] = ()) -> list[dict[str, Any]]:
        outcome = run(hook, b"".join(json.dumps(event).encode() + b"\n" for event in events), args=args)
        answers = [json.loads(line) for line in outcome.stdout.splitlines()]
        assert len(answers) == len(events)
        return answers

    return ask


def program(hook: str) -> list[str]:
    """What runs a hook. Python sees no site-packages, as in an image: what a hook needs must lie beside it."""
    if hook.endswith(".py"):
        return [sys.executable, "-S"]
    name = {".js": "node", ".sh": "sh"}[Path(hook).suffix]
    found = shutil.which(name)
    assert found, f"{name} is needed to test {hook}"
    return [os.path.realpath(found)] if name == "node" else [found]
