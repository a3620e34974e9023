"""A container with exactly the hardened profile, whose guest takes orders from the test."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.sandbox.profile import MIB, Profile
from tests.conformance.plain import plain_image

ROOT = Path(__file__).resolve().parents[3]
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID", "KILL", "SETPCAP")
PIDS = 200
MEMORY = "512m"
TMP = 160 * MIB
"""Bytes of /tmp: it counts as memory, so a full one must leave room under MEMORY."""
ANSWER_SECONDS = 30


def command_line(name: str, workspace: Path, *arguments: str, home: str = "", capabilities: Any = CAPABILITIES) -> list:
    tmpfs = Profile(tmp=TMP).host_config()["Tmpfs"]
    nsswitch = Path(__file__).with_name("nsswitch.conf")
    return [
        *("docker", "run", "-i", "--name", name, "--label", "dev.sbx.test=spawn", "--log-driver", "none"),
        *("--cap-drop", "ALL", *(part for c in capabilities for part in ("--cap-add", c))),
        *("--security-opt", "no-new-privileges", "--read-only", "--network", "none"),
        *(part for path, options in tmpfs.items() for part in ("--tmpfs", f"{path}:{options}")),
        *("-v", home or "/home/agent", "-v", f"{workspace}:{workspace}"),
        *("--pids-limit", str(PIDS), "--memory", MEMORY, "--memory-swap", MEMORY),
        *("-v", f"{ROOT}/runner:/opt/sbx/lib/runner:ro", "-v", f"{Path(__file__).parent}:/opt/sbx/test:ro"),
        *("-v", f"{nsswitch}:/etc/nsswitch.conf:ro", "-e", "CONTAINER_MARK=of-the-guest"),
        *(plain_image(), "python3", "-I", "-S", "-B", "/opt/sbx/test/driver.py", *(arguments or (str(workspace),))),
    ]


def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Asks again until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"


class Sandbox:
    """The container and a way to give orders to its guest."""

    def __init__(self, workspace: Path, uid: int, home: str = "") -> None:
        self.workspace = workspace
        self.uid = uid
        self.name = f"sbx-test-spawn-{uuid.uuid4().hex[:8]}"
        self._process = subprocess.Popen(
            command_line(self.name, workspace, home=home), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            self._answers[answer["id"]].put(answer)

    def order(self, op: str, **fields: Any) -> int:
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        self._process.stdin.write(json.dumps({"op": op, "id": number, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        return self._answers[number].get(timeout=ANSWER_SECONDS)

    def ask(self, op: str, **fields: Any) -> Any:
        answer = self.answer(self.order(op, **fields))
        assert "value" in answer, answer
        return answer["value"]

    def run(self, script: str = "", **fields: Any) -> dict[str, Any]:
        return self.ask("run", script=script, **fields)

    def out(self, script: str, **fields: Any) -> str:
        """What a script that succeeds prints."""
        result = self.run(script, **fields)
        assert result["code"] == 0, result
        return result["stdout"]["data"]

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tool", name=name, arguments=arguments)

    def processes(self) -> list[dict[str, Any]]:
        return self.ask("processes")

    def of_tools(self) -> list[dict[str, Any]]:
        """What runs, or lies as a zombie, that is not the guest's."""
        return [process for process in self.processes() if process["uid"] != 64000]

    def close(self) -> int:
        self._process.stdin.close()
        try:
            code = self._process.wait(20)
        finally:
            subprocess.run(["docker", "rm", "-f", "-v", self.name], capture_output=True, timeout=60)
            self._process.stdout.close()
        return code


def make_workspace(folder: Path, uid: int) -> Path:
    folder.mkdir()
    (folder / "here.txt").write_text("hello\n")
    for path in (folder, folder / "here.txt"):
        os.chown(path, uid, uid)
    return folder


@pytest.fixture(scope="session", params=[1000, 1001, 0], ids=lambda uid: f"U={uid}")
def any_owner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox for each kind of owner: the image's own, one without a name, root."""
    sandbox = Sandbox(make_workspace(tmp_path_factory.mktemp("work") / "w", request.param), request.param)
    yield sandbox
    assert sandbox.close() == 0


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    box = Sandbox(make_workspace(tmp_path_factory.mktemp("work") / "w", 1000), 1000)
    yield box
    assert box.close() == 0


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Sandbox]:
    """For a test that breaks something."""
    box = Sandbox(make_workspace(tmp_path / "w", 1000), 1000)
    yield box
    assert box.close() == 0
