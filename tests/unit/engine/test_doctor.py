"""What the doctor says, without an engine; with one: tests/conformance/engine."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine.doctor import examine, passed


@pytest.fixture
def model() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(b'{"data": []}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def free_url() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def no_engine(tmp_path: Path) -> dict[str, str]:
    return {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "HOME": "/"}


def test_without_an_engine_there_is_one_line_about_it(tmp_path: Path) -> None:
    checks = examine(no_engine(tmp_path))
    assert [(check.name, check.status) for check in checks] == [("engine", "failed")]
    assert checks[0].hint
    assert not passed(checks)


def test_a_wrong_context_is_a_finding_and_no_crash(tmp_path: Path) -> None:
    checks = examine({"DOCKER_CONTEXT": "gone", "HOME": str(tmp_path)})
    assert "gone" in checks[0].text
    assert not passed(checks)


def test_a_model_server_that_answers_is_named(tmp_path: Path, model: str) -> None:
    found = examine(no_engine(tmp_path), model_urls=[free_url(), model])[-1]
    assert (found.name, found.status) == ("model server", "ok")
    assert model in found.text


def test_a_missing_model_server_is_a_warning_with_each_url(tmp_path: Path) -> None:
    first, second = free_url(), free_url()
    found = examine(no_engine(tmp_path), model_urls=[first, second])[-1]
    assert found.status == "warning"
    assert first in found.text
    assert second in found.text
    assert "--demo" in found.hint


def test_a_finding_is_one_json_object(tmp_path: Path) -> None:
    document = examine(no_engine(tmp_path))[0].to_json()
    assert set(document) == {"name", "status", "text", "hint"}
