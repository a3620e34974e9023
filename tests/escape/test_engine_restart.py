"""An engine that goes away in mid-run: an engine of our own, in folders of its own, is stopped and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine, connect
from runner.errors import SbxError
from tests.escape.kills import PATIENCE, Kills

pytestmark = [pytest.mark.engine, pytest.mark.slow]
UP_WITHIN = 60.0
BRIDGE = "sbxesc0"
"""A bridge of its own. With `--bridge none` an engine deletes the machine's `docker0`, whosever it is."""
ADDRESS = "10.215.7.1/24"
NETWORK = ("--bridge", BRIDGE, "--iptables=false", "--ip-masq=false", "--ip-forward=false")


class Dockerd:
    """A second engine on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Engine:
        where = ["--data-root", self.folder / "data", "--exec-root", self.folder / "exec"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", "--host", self.address, *where, "--pidfile", self.folder / "pid", *NETWORK],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + UP_WITHIN
        while True:
            try:
                return connect({**os.environ, "DOCKER_HOST": self.address})
            except SbxError:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < end
                time.sleep(0.1)

    def stop(self, how: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(how)
        self._process.wait(60)


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.fail("a second engine needs root and dockerd")
    folder = Path(tempfile.mkdtemp(prefix="sbx-e-", dir="/var/tmp"))
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, check=False)
    subprocess.run(["ip", "link", "add", "name", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", ADDRESS, "dev", BRIDGE], check=True)
    made = Dockerd(folder)
    try:
        made.start()
        yield made
        made.stop(signal.SIGTERM)
    finally:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", mount], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def kills(dockerd: Dockerd, tmp_path_factory: pytest.TempPathFactory) -> Kills:
    """Runs on the second engine, which gets the image from the first."""
    root = tmp_path_factory.mktemp("restart")
    first = Kills(root / "first", connect())
    first.whole()
    engine = connect({**os.environ, "DOCKER_HOST": dockerd.address})
    made = Kills(root / "second", engine, dockerd.address)
    record = next((root / "first").glob("state/sbx/sessions/*/record.jsonl"))
    tag = json.loads(record.read_text().splitlines()[0])["data"]["image"]
    with subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as saving:
        subprocess.run(["docker", "-H", dockerd.address, "load", "-q"], stdin=saving.stdout, check=True)
    made.whole()
    return made


def test_a_run_whose_engine_restarts_fails_with_code_4_and_leaves_nothing(dockerd: Dockerd, kills: Kills) -> None:
    process = kills.start(1)
    end = time.monotonic() + 60
    while not kills.at_work(1):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    dockerd.stop(signal.SIGTERM)
    dockerd.start()
    assert process.wait(60) == 4
    left, _ = kills.settled(PATIENCE)
    assert left.total() == 0, left
