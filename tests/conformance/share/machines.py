"""Machines played by engines of their own, and a registry on the loopback: all started here, all ended here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.engine import connect
from runner.errors import SbxError

READY_WITHIN = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(ready: object, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + READY_WITHIN
    while not ready():  # type: ignore[operator]
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < limit, log.read_text()[-3000:]
        time.sleep(0.1)


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **(env or {})}
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def answers(address: str) -> bool:
    try:
        connect({"DOCKER_HOST": address}, timeout=2).close()
    except SbxError:
        return False
    return True


@contextmanager
def engine(folder: Path, name: str, *, data: Path | None = None) -> Iterator[str]:
    """A Docker engine with folders, a socket and a bridge of its own. Yields its address.

    Not `--bridge none`: that takes away `docker0`, which is the other engine's.
    """
    # Unix sockets have short names.
    short = Path(f"/tmp/sbx-test-{name}-{os.getpid()}")
    short.mkdir()
    address = f"unix://{short}/docker.sock"
    bridge = f"sbxt-{name}"[:15]
    command = [
        *("dockerd", "--host", address, "--pidfile", f"{short}/pid", "--exec-root", f"{short}/exec"),
        *("--data-root", str(data or folder / f"{name}-data"), "--bridge", bridge),
        *("--iptables=false", "--ip6tables=false", "--ip-masq=false"),
        *("--config-file", f"{short}/none.json"),
    ]
    (short / "none.json").write_text("{}")
    log = folder / f"{name}.log"
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "addr", "add", f"10.251.{sum(name.encode()) % 250}.1/24", "dev", bridge], check=True)
        with running(command, log) as process:
            until(lambda: answers(address), process, log)
            yield address
    finally:
        subprocess.run(["ip", "link", "delete", bridge], check=True)
        shutil.rmtree(short, ignore_errors=True)
        shutil.rmtree(folder / f"{name}-data", ignore_errors=True)


@contextmanager
def podman(folder: Path) -> Iterator[str]:
    """Podman's Docker socket, as Debian has it, with storage of its own."""
    short = Path(f"/tmp/sbx-test-podman-{os.getpid()}")
    short.mkdir()
    (short / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
    )
    (short / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{short}/run"\ngraphroot = "{folder}/podman-graph"\n'
    )
    address = f"unix://{short}/podman.sock"
    env = {
        "CONTAINERS_CONF": f"{short}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{short}/storage.conf",
    }
    log = folder / "podman.log"
    try:
        with running(["podman", "system", "service", "--time=0", address], log, env) as process:
            until(lambda: answers(address), process, log)
            yield address
    finally:
        subprocess.run(["podman", "system", "reset", "--force"], env={**os.environ, **env}, capture_output=True)
        shutil.rmtree(short, ignore_errors=True)


@contextmanager
def registry(folder: Path, *, user: str = "", password: str = "") -> Iterator[str]:
    """Debian's docker-registry on the loopback. Yields `HOST:PORT`."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "registry.yml"
    text = (
        "version: 0.1\nlog: {level: warn}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/store}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    if user:
        script = "print crypt($ARGV[0], q($2y$05$abcdefghijklmnopqrstuu))"
        hashed = subprocess.run(["perl", "-e", script, password], capture_output=True, text=True, check=True).stdout
        (folder / "htpasswd").write_text(f"{user}:{hashed}\n")
        text += f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}\n"
    config.write_text(text)
    log = folder / "registry.log"

    def ready() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        except OSError:
            return False
        return True

    with running(["docker-registry", "serve", str(config)], log) as process:
        until(ready, process, log)
        yield f"127.0.0.1:{port}"
