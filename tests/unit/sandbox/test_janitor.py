"""The janitor against an engine that stumbles. A real engine's side of it is in the conformance tests."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from runner.sandbox.janitor import Engine


class Stumbling(socketserver.ThreadingUnixStreamServer):
    """Answers each path with what stands for it, else with an error of the engine's."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, Handler)
        self.answers: dict[str, object] = {}
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Stumbling

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1.41")
        self.server.asked.append(f"{self.command} {path}")
        known = path in self.server.answers
        body = json.dumps(self.server.answers[path] if known else {"message": "the engine is starting"}).encode()
        self.send_response(200 if known else 503)
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def stumbling(tmp_path: Path) -> Iterator[Stumbling]:
    with Stumbling(str(tmp_path / "engine.sock")) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_engine_that_cannot_list_is_no_reason_to_give_up(stumbling: Stumbling) -> None:
    engine = Engine({"path": stumbling.server_address, "version": "1.41"})
    with pytest.raises(OSError, match="503"):
        engine.clean("dev.sbx.sandbox=x")
    stumbling.answers["/containers/json"] = [{"Id": "c1", "Labels": {"dev.sbx.keep": "0"}}]
    with pytest.raises(OSError, match="503"):
        engine.clean("dev.sbx.sandbox=x")
    assert "DELETE /containers/c1" in stumbling.asked
    stumbling.answers |= {"/containers/json": [], "/volumes": {"Volumes": None}, "/networks": []}
    assert engine.clean("dev.sbx.sandbox=x")
