"""The command itself against a real engine, and local servers that stand for the outside."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.gateway.interception import Authority
from tests.conformance.main.conftest import Sbx, engine, kit, sbx

__all__ = ["engine", "kit", "sbx"]

SCRIPT = """
models: [scripted]
answers:
  - question: (?s)run (?P<command>.+)
    round: 1
    call: {name: bash, input: {command: "{command}"}}
  - question: (?s)run (?P<command>.+)
    round: 2
    text: "{output}"
"""


@dataclass
class Server:
    """A server on this machine's loopback, and what it was asked."""

    port: int
    heads: list[str] = field(default_factory=list)
    """Each request's first line and headers."""
    authority: Path = Path()
    """Its certificate authority, where it speaks TLS."""

    def header(self, name: str) -> list[str]:
        """The values that a header had, over all requests."""
        prefix = name.lower() + ":"
        lines = [line for head in self.heads for line in head.splitlines()]
        return [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith(prefix)]


def _serving(server: Server, context: ssl.SSLContext | None) -> Iterator[Server]:
    """Answers with the request's own head, as an echo service does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            head = f"{self.requestline}\n{self.headers}"
            server.heads.append(head)
            body = f"hello from {server.port}\n{head}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    if context:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server.port = listener.server_address[1]
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture
def web() -> Iterator[Server]:
    """A plain HTTP server."""
    yield from _serving(Server(0), None)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Server]:
    """An HTTPS server for `example.invalid`, whose authority nobody knows but who is told."""
    authority = Authority("a company")
    path = tmp_path / "company.pem"
    path.write_bytes(authority.pem)
    yield from _serving(Server(0, authority=path), authority.context("example.invalid"))


@pytest.fixture
def shell(kit: Path) -> Path:
    """A kit whose scripted model runs the command of the question `run COMMAND` and answers with its output."""
    (kit / "demo.yaml").write_text(SCRIPT)
    return kit


def ask(sbx: Sbx, kit: Path, command: str, *options: str | Path) -> str:
    """The output of a command in a sandbox; the run must end with code 0."""
    done = sbx("run", "-q", kit, sbx.root / "work", "--demo", "-p", f"run {command}", *options, timeout=300)
    assert done.code == 0, done.said
    return done.stdout
