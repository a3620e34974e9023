"""The command itself, run as a user runs it, against a real engine. Each test has folders of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runner.engine import Engine, connect

REPO = Path(__file__).resolve().parents[3]
TIMEOUT = 120.0
"""Seconds for one command, once its image is there."""
BUILD_TIMEOUT = 900.0


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        return self.stdout + self.stderr


@dataclass
class Sbx:
    """Runs `sbx` with folders of its own."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def sessions(self) -> Path:
        return self.root / "state" / "sbx" / "sessions"

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "runner", *map(str, arguments)]

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            **os.environ,
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "PYTHONPATH": str(REPO),
            **self.environ,
            **(more or {}),
        }

    def __call__(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        cwd: Path | None = None,
        timeout: float = TIMEOUT,
        env: Mapping[str, str] | None = None,
    ) -> Done:
        run = subprocess.run(
            self.command(*arguments),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            cwd=cwd or self.root,
            timeout=timeout,
            env=self.env(env),
            check=False,
        )
        return Done(run.returncode, run.stdout, run.stderr)

    def record(self) -> list[dict[str, Any]]:
        """The last session's record."""
        last = max(self.sessions.iterdir())
        return [json.loads(line) for line in (last / "record.jsonl").read_text().splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line["data"] for line in self.record() if line["name"] == name]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return connect()


@pytest.fixture
def sbx(tmp_path: Path) -> Sbx:
    return Sbx(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all of these tests, nothing that they made is in the engine."""
    yield
    assert ours(engine, tmp_path_factory.getbasetemp()) == set()


def ours(engine: Engine, under: Path) -> set[str]:
    """Ids and names of everything of ours in the engine whose workspace lies under a folder."""
    query = "filters=" + "%7B%22label%22%3A%5B%22dev.sbx.owner%22%5D%7D"
    containers = engine.get(f"/containers/json?all=1&{query}", doing="listing")
    volumes = engine.get(f"/volumes?{query}", doing="listing")["Volumes"] or []
    networks = engine.get(f"/networks?{query}", doing="listing")
    return {
        thing.get("Name") or thing["Id"]
        for thing in [*containers, *volumes, *networks]
        if thing["Labels"].get("dev.sbx.workspace", "").startswith(str(under))
    }


@pytest.fixture(scope="session")
def demo_image(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The demo's image, built once for all tests."""
    root = tmp_path_factory.mktemp("build")
    done = Sbx(root)("run", "hooks-demo", root, "--demo", "-p", "hello", timeout=BUILD_TIMEOUT)
    assert done.code == 0, done.said


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    """A copy of the demo's workspace."""
    folder = tmp_path / "playground"
    shutil.copytree(REPO / "sbx" / "hooks-demo" / "playground", folder, ignore=shutil.ignore_patterns(".mm"))
    return folder


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A kit that is an agent alone, on the base image, with an empty workspace `work` beside it."""
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    (tmp_path / "work").mkdir()
    return folder
