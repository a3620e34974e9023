"""A Unix socket in front of the engine's, which counts what passes and can refuse it."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import Counter
from pathlib import Path

from runner.engine import connect


class SocketProxy:
    """Use it as `with`; give `url` as DOCKER_HOST."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.refuse: dict[str, int] = {}
        """Pattern of `METHOD PATH` → how many more such requests find the connection broken."""
        self.seen: Counter[str] = Counter()
        """Requests by method and the last word of their path."""
        self.most: Counter[str] = Counter()
        """Most of each kind at once."""
        self._path = path
        self._now: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._behind = connect().endpoint.path
        self._server = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> SocketProxy:
        self._server.bind(str(self._path))
        self._server.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            first = client.recv(65536)
            asked = first.split(b" HTTP/", 1)[0].decode("latin-1")
            path = asked.split("?")[0].rstrip("/")
            kind = f"{asked.split(' ')[0]} {path.rpartition('/')[2]}"
            if asked.startswith("DELETE"):
                kind = f"DELETE {path.split('/')[-2]}"
            with self._guard:
                self.seen[kind] += 1
                for pattern, left in self.refuse.items():
                    if left and re.search(pattern, asked):
                        self.refuse[pattern] -= 1
                        return
                self._now[kind] += 1
                self.most[kind] = max(self.most[kind], self._now[kind])
            try:
                with socket.socket(socket.AF_UNIX) as engine:
                    engine.connect(self._behind)
                    engine.sendall(first)
                    back = threading.Thread(target=_copy, args=(client, engine), daemon=True)
                    back.start()
                    _copy(engine, client)
            finally:
                with self._guard:
                    self._now[kind] -= 1


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
