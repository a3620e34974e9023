"""Batches through the command itself; fixtures are those of whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.engine import Engine
from runner.scripted.answers import Answer, Say
from runner.scripted.request import Call, Request
from runner.scripted.server import ScriptedServer
from tests.conformance.batch.socket_proxy import SocketProxy
from tests.conformance.main.conftest import Done, Sbx, engine, kit, nothing_is_left, ours, sbx

__all__ = ["engine", "kit", "nothing_is_left", "sbx"]


@dataclass
class Batches:
    """Writes and runs batches with the plain kit."""

    sbx: Sbx
    kit: Path
    engine: Engine

    @property
    def root(self) -> Path:
        return self.sbx.root

    def file(self, *lines: dict[str, Any], own: bool = True) -> Path:
        """A batch of these lines; with `own`, each has a workspace of its own."""
        path = self.root / "batch.jsonl"
        for index, line in enumerate(lines):
            if own and "workspace" not in line:
                folder = self.root / "ws" / str(index)
                folder.mkdir(parents=True, exist_ok=True)
                line["workspace"] = str(folder)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def __call__(self, file: Path, *options: str | Path, server: ScriptedServer | None = None, **more: Any) -> Done:
        return self.sbx(*self.arguments(file, *options, server=server), **more)

    def arguments(self, file: Path, *options: str | Path, server: ScriptedServer | None = None) -> list[str | Path]:
        model: list[str | Path] = ["--base-url", server.url, "--model", "m"] if server else ["--demo"]
        return ["batch", file, "--sandbox", self.kit, *model, *options]

    def left(self) -> set[str]:
        """What is in the engine of these batches."""
        return ours(self.engine, self.root)


@pytest.fixture
def batches(sbx: Sbx, kit: Path, engine: Engine) -> Batches:
    return Batches(sbx, kit, engine)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[SocketProxy]:
    """Stands between `sbx` and the engine, and can refuse."""
    with SocketProxy(tmp_path / "engine.sock") as running:
        yield running


def parsed(done: Done) -> dict[str, dict[str, Any]]:
    """Results by id; every line of stdout is one, and none comes twice."""
    results = [json.loads(line) for line in done.stdout.splitlines()]
    by_id = {result["id"]: result for result in results}
    assert len(by_id) == len(results)
    return by_id


def says(text: str) -> Callable[[Request], Answer]:
    return lambda request: Say(text)


def runs(command: str) -> Callable[[Request], Answer]:
    """A model that runs one command and answers with its output."""

    def answer(request: Request) -> Answer:
        return Say(request.outputs[-1]) if request.outputs else Say(calls=[Call("bash", {"command": command})])

    return answer
