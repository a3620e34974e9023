"""Hooks through the command itself: kits on the base image, whose hooks need no more than sh and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.main.conftest import engine, nothing_is_left, sbx  # noqa: F401 - fixtures

MakeKit = Callable[..., Path]


@pytest.fixture
def make_kit(tmp_path: Path) -> MakeKit:
    """A kit on the base image with the given hooks and model script, and an empty workspace `work` beside it."""
    (tmp_path / "work").mkdir()

    def make(
        hooks: Mapping[str, Any],
        answers: list[Mapping[str, Any]],
        *,
        files: Mapping[str, str] | None = None,
        name: str = "kit",
        **agent: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        document = {"provider": "llmman", "model": "scripted", "hooks": hooks, **agent}
        (folder / "agent.yaml").write_text(yaml.safe_dump(document))
        (folder / "demo.yaml").write_text(yaml.safe_dump({"models": ["scripted"], "answers": answers}))
        for file, text in (files or {}).items():
            (folder / file).write_text(text)
            (folder / file).chmod(0o755)
        return folder

    return make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def everything_under(folder: Path) -> bytes:
    """The content of every file below a folder."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
