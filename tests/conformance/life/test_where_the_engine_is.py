"""A folder's path is the engine's: it is found out where this process and the engine disagree."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from runner.engine import Engine
from runner.engine.sight import sight
from tests.conformance.main.conftest import REPO
from tests.conformance.plain import plain_image

pytestmark = pytest.mark.engine

PROGRAM = """
import sys
sys.path.insert(0, "/elsewhere/repo")
from pathlib import Path
from runner.engine import connect
from runner.engine.sight import sight
found = sight(connect({}))
print(found.kind, found.engine_path(Path("/elsewhere/repo/runner")), found.engine_path(Path("/tmp")), sep="|")
"""


def test_the_engine_of_this_machine_is_here(engine: Engine) -> None:
    found = sight(engine)
    assert (found.kind, found.engine_path(Path("/a/b"))) == ("here", "/a/b")


@pytest.mark.parametrize("more", [[], ["--network", "host", "--uts", "host"]], ids=["own name", "the host's name"])
def test_in_a_container_with_the_engines_socket_paths_are_translated_or_unseen(engine: Engine, more: list[str]) -> None:
    assert engine.endpoint.scheme == "unix"
    mounts = [f"{engine.endpoint.path}:/var/run/docker.sock", f"{REPO}:/elsewhere/repo:ro"]
    command = ["docker", "run", "--rm", "--label", "dev.sbx.test=life", "--user", "0", "--entrypoint", "python3", *more]
    for mount in mounts:
        command += ["-v", mount]
    done = subprocess.run(
        [*command, plain_image(), "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == f"container|{REPO}/runner|None\n", done.stderr


def test_an_engine_of_another_machine_is_remote(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    found = sight(engine)
    assert (found.kind, found.engine_path(Path("/a"))) == ("remote", None)
    assert "this is laptop" in found.why
