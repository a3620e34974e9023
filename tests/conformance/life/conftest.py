"""Sandboxes by name, through the command, against a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx, engine, kit, nothing_is_left, sbx

__all__ = ["engine", "kit", "nothing_is_left", "sbx"]

SCRIPT = """
answers:
  - question: ^cat (?P<file>\\S+)
    round: 1
    call: {name: bash, input: {command: "cat {file}"}}
  - question: ^run (?P<command>.+)
    round: 1
    call: {name: bash, input: {command: "{command}"}}
  - question: ^hang
    wait: 600
    text: too late
  - question: ^break
    status: 400
    body: {error: {message: the model is ill}}
  - round: 2
    text: "it said: {output}"
  - text: "you said: {question}"
"""
"""What the kit's scripted model answers."""


@pytest.fixture
def work(kit: Path) -> Path:
    """The workspace beside the kit, whose model does what it is told."""
    (kit / "demo.yaml").write_text(SCRIPT)
    folder = kit.parent / "work"
    (folder / "todo.txt").write_text("buy milk\n")
    return folder


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """The command, with a sandbox `up-…` that runs; its name is `up.name`, its workspace `root / "work"`."""
    root = tmp_path_factory.mktemp("up")
    (root / "kit").mkdir()
    (root / "kit" / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    (root / "work").mkdir()
    command = Sbx(root)
    made = command("create", root / "kit", root / "work", "--name", NAME, timeout=900)
    assert made.code == 0, made.said
    try:
        started = command("start", NAME)
        assert started.code == 0, started.said
        yield command
    finally:
        assert command("rm", "-f", NAME).code == 0


NAME = "life-tests-up"
