"""A model server that runs in a container of its own, on the engine's bridge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from runner.engine import Engine
from tests.conformance.main.conftest import REPO, Sbx
from tests.conformance.plain import plain_image

pytestmark = pytest.mark.engine

PORT = 17434
SERVE = f"""
import threading
from runner.scripted.answers import Say
from runner.scripted.server import ScriptedServer
ScriptedServer(lambda request: Say("from a container"), "0.0.0.0", {PORT}).start()
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[str]:
    """The server's address on the bridge."""
    assert os.environ.get("TESTCONTAINERS_RYUK_DISABLED") == "true", "its reaper is an image that cannot be pulled here"
    server = DockerContainer(plain_image())
    server.with_command(["python3", "-c", SERVE]).with_env("PYTHONPATH", "/app")
    server.with_volume_mapping(str(REPO / "runner"), "/app/runner", "ro")
    with server:
        document = engine.get(f"/containers/{server.get_wrapped_container().id}/json", doing="asking")
        yield document["NetworkSettings"]["IPAddress"]


@pytest.mark.parametrize("network", ["none", "bridge"])
def test_a_model_server_on_the_bridge_answers(sbx: Sbx, kit: Path, address: str, network: str) -> None:
    url = f"http://{address}:{PORT}/v1"
    (kit / "agent.yaml").write_text(f"model: scripted\nbaseUrl: {url}\n")
    refused = sbx("run", kit, sbx.root / "work", "--network", network, "-p", "hello")
    assert refused.code == 6
    assert "--grant model-url" in refused.stderr
    done = sbx("run", kit, sbx.root / "work", "--network", network, "--grant", "model-url", "-p", "hello")
    assert done.code == 0, done.said
    assert done.stdout == "from a container\n"
