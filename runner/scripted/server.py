"""The scripted model's HTTP server: one thread a connection, HTTP/1.1 with keep-alive, SSE for streams."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from runner.errors import UsageError
from runner.scripted.answers import Answer, Chunks, Cut, Pause, Raw, Reply, Say
from runner.scripted.request import Request
from runner.scripted.script import Script

MAX_BODY = 256 * 1024 * 1024
"""Most bytes of a request's body."""
POLL = 0.02
"""Seconds between two looks at a client's connection during a pause."""
STOP_TIMEOUT = 5.0
"""Seconds that stop() waits for the accepting thread."""


class ScriptedServer:
    """Serves a script on a loopback port.

    Args:
        script: a loaded script, or a callable that answers each chat request itself (for tests).
        host: the address to listen on.
        port: the port; 0 takes a free one.

    Raises:
        UsageError: the address cannot be listened on (from start()).
    """

    def __init__(self, script: Script | Callable[[Request], Answer], host: str = "127.0.0.1", port: int = 0) -> None:
        self.script = script if isinstance(script, Script) else Script(answer=script)
        self.requests: list[Request] = []
        self._address = (host, port)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The base URL, for example `http://127.0.0.1:40123/v1`."""
        return f"http://{self._address[0]}:{self.port}/v1"

    @property
    def port(self) -> int:
        return self._server.server_address[1] if self._server else self._address[1]

    @property
    def chats(self) -> list[Request]:
        """The requests for an answer, so without `/models` and probes."""
        return [r for r in self.requests if r.path.endswith("/chat/completions")]

    def start(self) -> ScriptedServer:
        try:
            self._server = _Server(self._address, _Handler, self)
        except OSError as error:
            host, port = self._address
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}", hint="choose another port"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": POLL}, name="scripted-model", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Closes the port and every connection. A stopped server may be started again."""
        if self._server and self._thread:
            self._address = (self._address[0], self.port)
            self._server.stopping.set()
            self._server.shutdown()
            self._server.close_connections()
            self._server.server_close()
            self._thread.join(STOP_TIMEOUT)
            self._server = self._thread = None

    def __enter__(self) -> ScriptedServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], owner: ScriptedServer) -> None:
        self.owner = owner
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind asks the resolver for the host's name, which can take seconds
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in mid-answer is a thing that happens; the request's `gone` tells of it."""


class _Gone(Exception):
    """The client closed its connection, the script cut it, or the server stops."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sbx-scripted-model"
    sys_version = ""
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the requests are kept in `ScriptedServer.requests`."""

    def _serve(self) -> None:
        length = self.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(400, {"error": {"message": "the request has no usable Content-Length"}})
            return
        request = Request(self.command, self.path, dict(self.headers.items()), self.rfile.read(int(length)))
        owner = self.server.owner
        owner.requests.append(request)
        try:
            answer = owner.script.route(request)
            match answer:
                case Say():
                    self._say(request, answer)
                case Chunks():
                    self._chunks(request, answer)
                case Reply():
                    self._pause(request, answer.wait)
                    self._send(answer.status, answer.body, answer.headers)
                case Raw():
                    self._raw(request, answer)
        except (_Gone, OSError):
            self.close_connection = True
        finally:
            request.answered.set()

    # ---- the kinds of answer

    def _say(self, request: Request, say: Say) -> None:
        self._pause(request, say.wait)
        if not request.stream:
            if say.cut:
                self._cut(request)
            self._send(500 if say.error else 200, {"error": say.error} if say.error else _whole(request, say))
            return
        self._begin_stream()
        first = True
        for delta in _deltas(request, say):
            if not first:
                self._pause(request, say.delay)
            first = False
            self._event(request, _chunk(request, delta))
        if say.cut:
            self._cut(request)
        if say.error:
            self._event(request, {"error": say.error})
        else:
            self._event(request, _chunk(request, {}, finish=_finish(say)))
            self._event(request, {**_chunk(request, {}), "choices": [], "usage": _usage(request, say)})
        self._write(request, b"data: [DONE]\n\n")
        self._end_stream(request)

    def _chunks(self, request: Request, chunks: Chunks) -> None:
        if not request.stream and chunks.whole is not None:
            self._send(200, chunks.whole)
            return
        self._begin_stream()
        for item in chunks.items:
            match item:
                case Pause(seconds):
                    self._pause(request, seconds)
                case Cut():
                    self._cut(request)
                case bytes():
                    self._write(request, item)
                case str():
                    self._write(request, item.encode())
                case _:
                    self._event(request, item)
        if chunks.done:
            self._write(request, b"data: [DONE]\n\n")
        self._end_stream(request)

    def _raw(self, request: Request, raw: Raw) -> None:
        self.close_connection = True
        for item in raw.items:
            match item:
                case Pause(seconds):
                    self._pause(request, seconds)
                case Cut():
                    self._cut(request)
                case bytes():
                    self._socket_write(request, item)

    # ---- bytes

    def _send(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        given = {name.lower(): value for name, value in (headers or {}).items()}
        if isinstance(body, (str, bytes)):
            data = body.encode() if isinstance(body, str) else body
            given.setdefault("content-type", "text/plain; charset=utf-8")
        else:
            data = json.dumps(body, ensure_ascii=False).encode()
            given.setdefault("content-type", "application/json")
        self.send_response(status)
        for name, value in given.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _end_stream(self, request: Request) -> None:
        self._socket_write(request, b"0\r\n\r\n")

    def _event(self, request: Request, document: Mapping[str, Any]) -> None:
        self._write(request, b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n")

    def _write(self, request: Request, data: bytes) -> None:
        self._socket_write(request, b"%x\r\n%b\r\n" % (len(data), data))

    def _socket_write(self, request: Request, data: bytes) -> None:
        if self._has_gone():
            request.gone.set()
            raise _Gone
        try:
            self.wfile.write(data)
        except OSError:
            request.gone.set()
            raise

    def _pause(self, request: Request, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.server.stopping.wait(min(left, POLL)):
                raise _Gone
            if self._has_gone():
                request.gone.set()
                raise _Gone

    def _has_gone(self) -> bool:
        poll = select.poll()  # select() fails for descriptors over 1023
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _cut(self, request: Request) -> None:
        # a linger of zero seconds sends a reset in place of an orderly end
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _Gone


# ---- well-formed answers


def _finish(say: Say) -> str:
    return say.finish or ("tool_calls" if say.calls else "stop")


def _usage(request: Request, say: Say) -> Mapping[str, Any]:
    if say.usage is not None:
        return say.usage
    prompt = len(request.body) // 4
    answer = (len(say.text) + len(say.reasoning) + sum(len(json.dumps(c.input)) for c in say.calls)) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _calls(request: Request, say: Say) -> list[dict[str, Any]]:
    # ids count on from the history's, so that none comes twice in a conversation
    before = sum(len(m.get("tool_calls") or ()) for m in request.messages)
    return [
        {
            "index": index,
            "id": f"scripted{before + index + 1}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.input, ensure_ascii=False)},
        }
        for index, call in enumerate(say.calls)
    ]


def _deltas(request: Request, say: Say) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for key, text in (("reasoning_content", say.reasoning), ("content", say.text)):
        for start in range(0, len(text), say.piece):
            yield {key: text[start : start + say.piece]}
    for call in _calls(request, say):
        arguments = call["function"]["arguments"]
        yield {"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]}
        for start in range(0, len(arguments), say.piece):
            piece = {"arguments": arguments[start : start + say.piece]}
            yield {"tool_calls": [{"index": call["index"], "function": piece}]}


def _envelope(request: Request, kind: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-scripted",
        "object": kind,
        "created": int(time.time()),
        "model": request.model or "scripted",
        "system_fingerprint": "scripted",
    }


def _chunk(request: Request, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_envelope(request, "chat.completion.chunk"), "choices": [choice]}


def _whole(request: Request, say: Say) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    if say.reasoning:
        message["reasoning_content"] = say.reasoning
    if say.calls:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in _calls(request, say)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(say)}
    return {**_envelope(request, "chat.completion"), "choices": [choice], "usage": _usage(request, say)}
