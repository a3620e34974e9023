"""MCP servers as they are: good ones, and ones that flood, hang, die, lie and reuse names. No engine: the sandbox is
a child process here; `test_command.py` has the real one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runner.session.mcp.server import BRIDGE
from runner.session.mcp.servers import Servers
from runner.wire import messages as m
from runner.wire.mcp import McpServer
from runner.wire.mux import StreamReset

REPO = Path(__file__).resolve().parents[3]
SCRIPT = str(Path(__file__).with_name("mcp_server.py"))


class Pipe:
    """A byte stream of the wire's, as far as a program's stdin and stdout go."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.there = asyncio.Event()

    async def read(self) -> bytes:
        await self.there.wait()
        assert self.reader
        return await self.reader.read(65536)

    async def write(self, data: bytes) -> None:
        await self.there.wait()
        if self.writer is None:
            raise StreamReset("it never started")
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError as error:
            raise StreamReset(str(error)) from None

    def reset(self, reason: str = "") -> None:
        if self.writer:
            self.writer.close()


class Sandbox:
    """Starts programs on this machine."""

    def __init__(self) -> None:
        self.pipes: dict[int, Pipe] = {}
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.started = 0

    def open(self) -> Pipe:
        pipe = Pipe(len(self.pipes) + 1)
        self.pipes[pipe.channel] = pipe
        return pipe

    def exec(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[m.Exited], Any]:
        self.started += 1
        future: asyncio.Future[m.Exited] = asyncio.get_running_loop().create_future()
        self.tasks.append(asyncio.create_task(self._run(self.started, argv, options, future)))
        return self.started, future, self

    async def _run(self, number: int, argv: Sequence[str], options: Any, future: asyncio.Future[m.Exited]) -> None:
        pipe = asyncio.subprocess.PIPE
        env = {**os.environ, **options["env"]}
        try:
            process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        except OSError:
            for name in ("stdin", "stdout", "stderr"):
                given = self.pipes[options[name]]
                given.reader = asyncio.StreamReader()
                given.reader.feed_eof()
                given.there.set()
            future.set_result(m.Exited(number, None, error="not found"))
            return
        self.processes[number] = process
        self.pipes[options["stdin"]].writer = process.stdin
        self.pipes[options["stdout"]].reader = process.stdout
        self.pipes[options["stderr"]].reader = process.stderr
        for name in ("stdin", "stdout", "stderr"):
            self.pipes[options[name]].there.set()
        code = await process.wait()
        if not future.done():
            future.set_result(m.Exited(number, code if code >= 0 else None, signal=-code if code < 0 else None))

    def post(self, message: m.Signal) -> None:
        with contextlib.suppress(ProcessLookupError, KeyError):
            # Not only a signal: asyncio waits for the end of a pipe that nobody reads any more.
            self.processes[message.id]._transport.close()  # type: ignore[attr-defined]

    async def close(self) -> None:
        for process in self.processes.values():
            process._transport.close()  # type: ignore[attr-defined]
        await asyncio.gather(*self.tasks)


class Bench:
    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self.said: list[tuple[str, str]] = []
        self.servers: Servers | None = None

    async def start(self, *modes: str, **keys: Any) -> list[dict[str, Any]]:
        keys = {"timeout": 5.0, "start_timeout": 5.0, **keys}
        specs = [McpServer(f"s{n}", (sys.executable, SCRIPT, mode), **keys) for n, mode in enumerate(modes)]
        return await self.run(specs)

    async def run(self, specs: Sequence[McpServer]) -> list[dict[str, Any]]:
        self.servers = Servers(specs, self.sandbox, lambda level, text: self.said.append((level, text)))
        return await self.servers.tools()

    async def call(self, name: str, **given: Any) -> dict[str, Any]:
        assert self.servers
        return await self.servers.call(name, given)

    @property
    def texts(self) -> str:
        return "\n".join(text for _, text in self.said)


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    if made.servers:
        await made.servers.close()
    await made.sandbox.close()


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)


async def test_tools_are_named_by_their_server_and_answer(bench: Bench) -> None:
    tools = await bench.start("good", "good")
    assert [t["name"] for t in tools][:2] == ["s0__echo", "s0__hang"]
    assert "s1__echo" in [t["name"] for t in tools]
    assert tools[0]["parameters"]["properties"] == {"text": {"type": "string"}}
    assert await bench.call("s0__echo", text="hello") == {"output": "hello", "is_error": False}
    assert bench.said == []


async def test_allow_and_deny_lists_decide_what_the_model_sees(bench: Bench) -> None:
    tools = await bench.start("good", allow=("e*", "big"), deny=("env",))
    assert [t["name"] for t in tools] == ["s0__echo", "s0__big", "s0__error"]
    assert (await bench.call("s0__env"))["is_error"]
    assert (await bench.call("s0__die"))["output"] == "there is no tool 's0__die'"


async def test_an_error_and_what_is_no_text_are_told(bench: Bench) -> None:
    await bench.start("good")
    assert await bench.call("s0__error") == {"output": "it went wrong", "is_error": True}
    assert await bench.call("s0__image") == {"output": "[image: it cannot be shown here]", "is_error": False}


async def test_a_large_output_is_cut_in_its_middle(bench: Bench) -> None:
    await bench.start("good")
    output = (await bench.call("s0__big"))["output"]
    assert len(output) < 52_000
    assert "948,800 of 1,000,000 bytes left out" in output


async def test_a_call_that_hangs_is_an_error_after_its_time_and_the_server_lives(bench: Bench) -> None:
    await bench.start("good", timeout=0.5)
    answer = await bench.call("s0__hang")
    assert answer == {"output": "the MCP server s0 did not answer within 0.5 s", "is_error": True}
    assert bench.sandbox.started == 1


async def test_a_server_that_dies_is_told_and_started_again_once(bench: Bench) -> None:
    await bench.start("good")
    assert (await bench.call("s0__die"))["is_error"]
    await until(lambda: bench.said)
    assert bench.said == [("warning", "the MCP server s0 ended with code 3 (going down); it is started again")]
    assert (await bench.call("s0__echo", text="again"))["output"] == "again"
    assert (await bench.call("s0__die"))["is_error"]
    await until(lambda: len(bench.said) == 2)
    assert bench.said[1][0] == "error"
    assert (await bench.call("s0__echo"))["output"] == "the MCP server s0 is not running"
    assert bench.sandbox.started == 2


async def test_a_server_that_cannot_start_spoils_no_other(bench: Bench) -> None:
    good = McpServer("good", (sys.executable, SCRIPT))
    gone = McpServer("gone", ("/no/such/program",))
    ends = McpServer("ends", (sys.executable, SCRIPT, "exits"))
    tools = await bench.run([gone, ends, good])
    assert {t["name"].split("__")[0] for t in tools} == {"good"}
    assert "the MCP server gone could not be started: not found" in bench.texts
    assert "the MCP server ends ended with code 1 (no licence)" in bench.texts


async def test_a_server_that_never_speaks_is_given_up_after_its_time(bench: Bench) -> None:
    started = time.monotonic()
    assert await bench.start("silent", start_timeout=0.5) == []
    assert time.monotonic() - started < 5
    assert "was not ready within 0.5 s" in bench.texts


@pytest.mark.parametrize(("mode", "said"), [("flood", "nobody asked for"), ("line", "a line of more than 8 MiB")])
async def test_a_server_that_floods_is_ended(bench: Bench, mode: str, said: str) -> None:
    assert await bench.start(mode, start_timeout=20.0) == []
    assert said in bench.texts
    await until(lambda: all(p.returncode is not None for p in bench.sandbox.processes.values()))


async def test_noise_between_messages_is_passed_over(bench: Bench) -> None:
    await bench.start("noise")
    assert (await bench.call("s0__echo", text="hello"))["output"] == "hello"


async def test_names_that_are_reused_or_unfit_leave_the_tool_out(bench: Bench) -> None:
    tools = await bench.start("names")
    assert [t["name"] for t in tools] == ["s0__echo", "s0__long"]
    assert tools[0]["description"] == "for tests"
    assert len(tools[1]["description"]) < 4200
    assert "the name s0__echo is taken" in bench.texts
    assert len(bench.said) == 5


async def test_a_name_that_is_another_servers_is_taken(bench: Bench) -> None:
    one = McpServer("a", (sys.executable, SCRIPT, "names"), allow=("echo",))
    tools = await bench.run([one, one])
    assert [t["name"] for t in tools] == ["a__echo"]


async def test_a_schema_that_is_too_large_leaves_the_tool_out(bench: Bench) -> None:
    tools = await bench.start("huge")
    assert [t["name"] for t in tools] == ["s0__good"]
    assert "'huge': its schema is larger than 64 KiB" in bench.texts


@pytest.mark.parametrize("mode", ["no-schema", "array", "properties", "empty"])
async def test_a_list_that_is_not_the_protocols_leaves_the_server_out_and_is_told(bench: Bench, mode: str) -> None:
    assert await bench.start(mode) == []
    assert "does not speak the protocol" in bench.texts


async def test_a_list_without_end_is_cut(bench: Bench) -> None:
    assert len(await bench.start("endless")) == 7
    assert len(await bench.start("many")) == 128


async def test_a_schema_of_the_servers_cannot_hold_the_host_up(bench: Bench) -> None:
    """Its pattern would take longer than the universe has: answers are not held against it."""
    await bench.start("lies")
    started = time.monotonic()
    assert (await bench.call("s0__echo", text="hello"))["output"] == "hello"
    assert time.monotonic() - started < 2


class Web(BaseHTTPRequestHandler):
    """A server that is asked over HTTP: answers as JSON, or as a stream of events when the tool is `stream`."""

    seen: list[tuple[str, str | None, str | None]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        self.seen.append((method, self.headers.get("Mcp-Session-Id"), self.headers.get("X-Team")))
        if "id" not in message:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        result: dict[str, Any] = {
            "tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("plain", "stream")]
        }
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "web", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": message["params"]["name"]}]}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        kind = "application/json"
        if result.get("content") and message["params"]["name"] == "stream":
            kind = "text/event-stream"
            note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
            body = b": hello\n\nevent: message\ndata: " + note + b"\n\ndata: " + body + b"\n\n"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if method == "initialize":
            self.send_header("Mcp-Session-Id", "s-1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Web.seen = []
    yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    server.shutdown()
    server.server_close()
    thread.join()


def bridged(url: str, **keys: Any) -> McpServer:
    """The server as `Server` starts it in a sandbox, but for where Python and the program are."""
    return McpServer("web", (sys.executable, "-I", "-S", "-B", "-c", BRIDGE, str(REPO), url, "X-Team: red"), **keys)


async def test_a_server_over_http_is_asked_by_a_bridge_in_the_sandbox(bench: Bench, web: str) -> None:
    tools = await bench.run([bridged(web)])
    assert [t["name"] for t in tools] == ["web__plain", "web__stream"]
    assert (await bench.call("web__plain"))["output"] == "plain"
    assert (await bench.call("web__stream"))["output"] == "stream"
    methods = [method for method, _, _ in Web.seen]
    assert methods == ["initialize", "notifications/initialized", "tools/list", "tools/call", "tools/call"]
    assert {session for _, session, _ in Web.seen[1:]} == {"s-1"}
    assert {team for _, _, team in Web.seen} == {"red"}


async def test_a_url_where_nobody_is_spoils_no_other(bench: Bench) -> None:
    tools = await bench.run([bridged("http://127.0.0.1:9/mcp", start_timeout=5.0)])
    assert tools == []
    assert "refused" in bench.texts
