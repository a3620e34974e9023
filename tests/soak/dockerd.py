"""An engine of a test's own, which can be stopped, killed and filled."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ANSWERS_WITHIN = 60.0
"""Seconds until a started engine must answer."""
STOPS_WITHIN = 60.0
STARTS = 3
BRIDGE = "sbxsoak0"
"""A bridge of its own, without an address to speak of: with `--bridge none` an engine deletes the machine's `docker0`,
whosever it is."""
ADDRESS = "10.215.9.1/24"


class Dockerd:
    """Use it as `with`. Needs root and dockerd. Its containers have no network."""

    def __init__(self) -> None:
        # Short, because a socket's path has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="sbx-soak.", dir="/var/tmp"))
        self.url = f"unix://{self.folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Dockerd:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
        subprocess.run(["ip", "link", "add", "name", BRIDGE, "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", ADDRESS, "dev", BRIDGE], check=True)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        with open("/proc/mounts") as mounts:
            ours = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{self.folder}/")]
        for mount in sorted(ours, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Returns when it answers. On a busy machine dockerd may give its own containerd up after 15 s; then again."""
        for _ in range(STARTS):
            if self._start():
                return
        raise AssertionError(f"dockerd did not start: {(self.folder / 'log').read_text()[-3000:]}")

    def _start(self) -> bool:
        at = self.folder
        (at / "pid").unlink(missing_ok=True)
        with (at / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", "--host", self.url, "--data-root", at / "data", "--exec-root", at / "exec",
                 "--pidfile", at / "pid", "--bridge", BRIDGE,
                 "--iptables=false", "--ip-masq=false", "--ip-forward=false"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + ANSWERS_WITHIN
        while time.monotonic() < until:
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(5)
                probe.connect(str(at / "docker.sock"))
                probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b" 200 " in probe.recv(100):
                    return True
            time.sleep(0.1)
        self.stop(signal.SIGKILL)
        return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and after SIGKILL its containerd too, as a machine that crashes would."""
        if self._process is None:
            return
        if number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for pid in _below(self.folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self._process.send_signal(number)
        try:
            self._process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def docker(self, *arguments: str) -> str:
        """The `docker` command on this engine."""
        done = subprocess.run(["docker", "-H", self.url, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def take_image(self, tag: str) -> None:
        """Copies an image from the engine that `docker` talks to by itself."""
        with subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as saving:
            subprocess.run(["docker", "-H", self.url, "load"], stdin=saving.stdout, check=True, capture_output=True)
        assert saving.returncode == 0


def _below(folder: Path) -> list[int]:
    """Processes whose command line names the folder: containerd, and the shims of containers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
