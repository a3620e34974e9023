"""A detached program that outlives the host process and removes what it left.

The engine's own end of things (stdin ends, the guest exits) does not cover a container that was created and never
started. So each host process starts one of these before it creates anything. It holds a pipe to the host: a line
`done` means a clean end; an end of file without it means that the host died, however. Then everything in the engine
that bears the session's label is removed (a kept sandbox is only stopped).

Standard library only, and nothing of this package: it is started as a script, and most times only waits.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.parse
from typing import Any

PATIENCE = 600.0
"""Seconds in which it goes on trying: an engine that is away, for an upgrade say, is waited for."""
PAUSE = 0.5
"""Seconds between two tries."""
ROUNDS = 4
"""Rounds in a row that find nothing: a create that was under way when the host died may still come to be."""
CALL_TIMEOUT = 10.0
"""Seconds for one call."""
GRACE = 1
"""Seconds a kept sandbox gets to stop."""


class Engine:
    """The few calls that are needed, over HTTP/1.0."""

    def __init__(self, where: dict[str, Any]) -> None:
        self._where = where

    def call(self, method: str, path: str) -> tuple[int, Any]:
        """Status and decoded answer. Raises OSError."""
        where = self._where
        if where["path"]:
            connection: socket.socket = socket.socket(socket.AF_UNIX)
            connection.settimeout(CALL_TIMEOUT)
            connection.connect(where["path"])
        else:
            connection = socket.create_connection((where["host"], where["port"]), CALL_TIMEOUT)
            if where["tls"] is not None:
                connection = self._over_tls(connection)
        with connection:
            head = f"{method} /v{where['version']}{path} HTTP/1.0\r\nHost: docker\r\n\r\n"
            connection.sendall(head.encode("ascii"))
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        first, _, body = answer.partition(b"\r\n\r\n")
        try:
            return int(first.split(b" ", 2)[1]), json.loads(body) if body else None
        except (ValueError, IndexError):
            raise OSError("the engine's answer is not to be read") from None

    def _list(self, path: str) -> Any:
        status, answer = self.call("GET", path)
        if status != 200:  # an engine that starts or ends may answer so: it is asked again
            raise OSError(f"the engine answered {status}")
        return answer

    def _over_tls(self, connection: socket.socket) -> socket.socket:
        import ssl

        tls = self._where["tls"]
        context = ssl.create_default_context(cafile=tls["ca"] or None)
        if tls["cert"]:
            context.load_cert_chain(tls["cert"], tls["key"] or None)
        if not tls["verify"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(connection, server_hostname=self._where["host"])

    def clean(self, label: str) -> bool:
        """Removes what bears the label. True when nothing is left."""
        filters = urllib.parse.quote(json.dumps({"label": [label]}))
        left = False
        for container in self._list(f"/containers/json?all=1&filters={filters}") or ():
            if container.get("Labels", {}).get("dev.sbx.keep") == "1":
                if container.get("State") == "running":
                    self.call("POST", f"/containers/{container['Id']}/stop?t={GRACE}")
            else:
                left = True
                self.call("DELETE", f"/containers/{container['Id']}?force=1&v=1")
        for kind, key, name in (("volumes", "Volumes", "Name"), ("networks", "", "Id")):
            answer = self._list(f"/{kind}?filters={filters}")
            for thing in (answer[key] if key else answer) or ():
                if thing.get("Labels", {}).get("dev.sbx.keep") != "1":
                    left = True
                    self.call("DELETE", f"/{kind}/{thing[name]}")
        return not left


def main() -> None:
    """Reads the order, waits for the host's end, cleans up."""
    os.setsid() if os.getpid() != os.getpgid(0) else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    order = json.loads(sys.stdin.buffer.readline())
    if sys.stdin.buffer.readline() == b"done\n":
        return
    engine = Engine(order["engine"])
    clean, end = 0, time.monotonic() + PATIENCE
    while clean < ROUNDS and time.monotonic() < end:
        try:
            clean = clean + 1 if engine.clean(order["label"]) else 0
        except OSError:
            clean = 0
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
