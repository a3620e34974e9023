"""What a kit does at its sandbox's start, through the command, against a real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx, engine, nothing_is_left, sbx
from tests.conformance.workspace.conftest import SCRIPT, own

__all__ = ["engine", "nothing_is_left", "sbx"]

HEAD = """
schemaVersion: "2"
kind: sandbox
name: at-start
sandbox: {image: "debian:bookworm-slim"}
"""


class Kit:
    """A kit in a folder of its own, whose model runs what it is told, and its workspace."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "kit"
        self.work = root / "work"
        self.folder.mkdir()
        self.work.mkdir()
        (self.folder / "demo.yaml").write_text(SCRIPT)
        self.spec("")
        own(self.work, 1001)

    def spec(self, text: str, head: str = HEAD) -> None:
        """Writes the kit's spec: the head and `text`."""
        (self.folder / "spec.yaml").write_text(f"{head}{text}")

    def mixin(self, name: str, **files: str) -> Path:
        """A mixin beside the kit; `files` by name, `_` for the dot."""
        folder = self.folder.parent / name
        folder.mkdir()
        (folder / "spec.yaml").write_text(f'schemaVersion: "2"\nkind: mixin\nname: {name}\n')
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return folder

    def ask(self, sbx: Sbx, command: str, *options: str | Path) -> tuple[str, str, int]:
        """Lets the agent run a command. Its output, what was said beside it, and the code."""
        done = sbx("run", self.folder, self.work, "--demo", "-p", f"run {command}", *options)
        return done.stdout, done.stderr, done.code


@pytest.fixture
def at_start(tmp_path: Path) -> Kit:
    return Kit(tmp_path)
