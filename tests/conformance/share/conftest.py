"""One kit of four mixins, built once so that it can be shared; each test works on copies and tags of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.engine import Engine, connect
from tests.conformance.main.conftest import BUILD_TIMEOUT, Sbx

NAME = f"test-share-{os.getpid()}"
"""Of this run alone: its images are removed at the end, and another run may go on beside it."""
MIXINS = ("one", "two", "three", "four")

SPEC = """\
schemaVersion: "2"
kind: sandbox
name: %(kit)s
sandbox: {image: "debian:bookworm-slim"}
mixins: [./one, ./two, ./three, ./four]
"""
MIXIN = """\
schemaVersion: "2"
kind: mixin
name: %(kit)s-%(name)s
args: {word: {default: plain}}
environment: {variables: {WORD_%(name)s: "${{ kit.args.word }}"}}
setup:
  install: [{command: "echo %(name)s > /srv/%(name)s"}]
"""


@dataclass(frozen=True)
class Built:
    """The kit and its image."""

    kit: Path
    tag: str
    id: str
    lock: dict[str, Any]


def write_kit(folder: Path) -> Path:
    """A sandbox kit with four mixins in folders below it."""
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC % {"kit": NAME})
    (folder / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    for name in MIXINS:
        (folder / name).mkdir()
        (folder / name / "spec.yaml").write_text(MIXIN % {"name": name, "kit": NAME})
    return folder


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    found = connect()
    yield found
    with found.call("cleaning up after the tests"):
        for image in found.api.images():
            labels = image["Labels"] or {}
            own = str(labels.get("dev.sbx.kit", "")).startswith(NAME)
            for tag in image["RepoTags"] or ():
                if own and tag != "<none>:<none>":
                    found.api.remove_image(tag, force=True)
        for image in found.api.images(filters={"label": "dev.sbx.signature"}):
            signed = image["Labels"]["dev.sbx.signature"]
            try:
                found.api.inspect_image(signed)
            except Exception:
                found.api.remove_image(image["Id"], force=True)
    found.close()


@pytest.fixture(scope="session")
def built(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("built")
    kit = write_kit(root / "kit")
    done = Sbx(root)("image", "build", kit, "--json", timeout=BUILD_TIMEOUT)
    assert done.code == 0, done.said
    told = json.loads(done.stdout)
    return Built(kit, told["image"], told["id"], json.loads((kit / "sbx.lock").read_text()))


@pytest.fixture
def sbx(tmp_path: Path) -> Sbx:
    return Sbx(tmp_path)


@pytest.fixture
def kit(built: Built, tmp_path: Path) -> Path:
    """A copy of the kit with its lock, to change."""
    return Path(shutil.copytree(built.kit, tmp_path / "kit"))
