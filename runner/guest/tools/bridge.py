"""A server of tools that is asked over HTTP, as one that speaks over stdin and stdout: run as U in the sandbox.

Its requests leave as any tool's do, by the proxy that the environment names, so the gateway decides, puts credentials
on, and writes down. It knows nothing of the protocol but how a message travels ("streamable HTTP"): each message is a
POST; the answer is JSON, or a stream of events that hold messages; a session id is repeated.

    bridge URL ["NAME: VALUE" …]
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

SECONDS = 600.0
"""Of silence on one connection; the host's own bounds are shorter."""
MAX_PARALLEL = 16
MAX_BODY = 8 * 1024 * 1024


class Bridge:
    """Carries messages to `url` and back.

    Args:
        headers: sent with every request.
    """

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._session = ""
        self._version = ""
        self._writing = threading.Lock()
        self._slots = threading.Semaphore(MAX_PARALLEL)

    def carry(self, line: bytes) -> None:
        """One message of the host's. The first ones go one after the other, since they begin the session."""
        message = json.loads(line)
        if message.get("method") == "initialize" or "id" not in message:
            self._post(message, line)
            return
        self._slots.acquire()
        threading.Thread(target=self._later, args=(message, line), daemon=True).start()

    def _later(self, message: dict[str, Any], line: bytes) -> None:
        try:
            self._post(message, line)
        finally:
            self._slots.release()

    def _post(self, message: dict[str, Any], line: bytes) -> None:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": "sbx",
            **self._headers,
        }
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        if self._version:
            headers["Mcp-Protocol-Version"] = self._version
        request = urllib.request.Request(self._url, data=line, headers=headers, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310
                self._session = self._session or response.headers.get("Mcp-Session-Id", "")
                for answer in _messages(response):
                    self._write(message, answer)
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read(500).decode("utf-8", "replace").split())
            self._failed(message, f"HTTP {error.code} {error.reason}: {said}")
        except (OSError, HTTPException, ValueError) as error:
            self._failed(message, str(getattr(error, "reason", "") or error))

    def _failed(self, message: dict[str, Any], why: str) -> None:
        if "id" in message and "method" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": why}}
            self._write(message, json.dumps(answer).encode())
        else:
            print(why, file=sys.stderr, flush=True)

    def _write(self, asked: dict[str, Any], answer: bytes) -> None:
        if asked.get("method") == "initialize":
            result = json.loads(answer).get("result")
            if isinstance(result, dict):
                self._version = str(result.get("protocolVersion", ""))
        with self._writing:
            sys.stdout.buffer.write(answer.replace(b"\n", b" ") + b"\n")
            sys.stdout.buffer.flush()


def _messages(response: HTTPResponse) -> Iterator[bytes]:
    kind = response.headers.get_content_type()
    if kind == "text/event-stream":
        yield from _events(response)
    elif kind == "application/json":
        body = response.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            raise ValueError("the answer is too large")
        document = json.loads(body) if body.strip() else []
        for each in document if isinstance(document, list) else [document]:
            yield json.dumps(each).encode()


def _events(response: HTTPResponse) -> Iterator[bytes]:
    data: list[bytes] = []
    size = 0
    while line := response.readline(MAX_BODY):
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
            size += len(line)
            if size > MAX_BODY:
                raise ValueError("an event is too large")
        elif not line and data:
            yield b" ".join(data)
            data, size = [], 0
    if data:
        yield b" ".join(data)


def main() -> int:
    """Until stdin ends."""
    url, *rest = sys.argv[1:]
    headers = {name.strip(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    bridge = Bridge(url, headers)
    for line in sys.stdin.buffer:
        if line.strip():
            bridge.carry(line)
    return 0
