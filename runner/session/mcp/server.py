"""One server's life: started, asked for its tools, called, told and restarted once when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import mcp.types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from runner.session.mcp.lines import Bytes, joined, keep_tail
from runner.wire import messages as m
from runner.wire.mcp import McpServer
from runner.wire.mux import MuxClosed

STARTS = 2
"""A server that died is started again once."""
MAX_PAGES = 20
"""Pages of a list of tools."""
MAX_OUTPUT = 50 * 1024
"""Bytes of one call's output that the model is shown."""
PYTHON = ("/usr/bin/python3", "-I", "-S", "-B", "-c")
PROGRAM = "/opt/sbx/lib"
BRIDGE = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from runner.guest.tools import bridge; sys.exit(bridge.main())"

Say = Callable[[str, str], None]
"""Takes a notice's level and text."""


class Sandbox(Protocol):
    """What starts a program in the sandbox: `runner.session.session.Session`."""

    def exec(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[m.Exited], Any]: ...

    def open(self) -> Any: ...


class Server:
    """One server.

    Args:
        spec: what `agent.yaml` says of it.
        sandbox: where it runs.
        say: takes notices.
    """

    def __init__(self, spec: McpServer, sandbox: Sandbox, say: Say) -> None:
        self.spec = spec
        self.tools: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        """What the server tells of its tools; an empty list when it never did."""
        self._sandbox = sandbox
        self._say = say
        self._client: ClientSession | None = None
        self._running = asyncio.Event()
        self._gone = False

    async def run(self) -> None:
        """Its whole life. Cancelling ends it."""
        try:
            for start in range(1, STARTS + 1):
                try:
                    why = await self._live()
                except Exception as error:  # the SDK's own, on what no server should send
                    why = f"broke the connection: {_one_line(error)}"
                self._running.clear()
                what = f"the MCP server {self.spec.name} {why}"
                if start < STARTS:
                    self._say("warning", f"{what}; it is started again")
                else:
                    self._say("error", f"{what}; it is not started again, and its tools fail from now on")
        finally:
            self._gone = True
            self._running.set()
            if not self.tools.done():
                self.tools.set_result([])

    async def _live(self) -> str:
        """From a start to the end; says how it ended."""
        stdin, stdout, stderr = self._sandbox.open(), self._sandbox.open(), self._sandbox.open()
        exec_id, exited, mux = self._sandbox.exec(
            self._argv(),
            env=self.spec.env,
            cwd=self.spec.cwd,
            stdin=stdin.channel,
            stdout=stdout.channel,
            stderr=stderr.channel,
        )
        tail: deque[bytes] = deque()
        reading = asyncio.create_task(keep_tail(stderr, tail))
        try:
            said = await self._talk(stdin, stdout)
            if said:
                return said
            try:
                end = await asyncio.wait_for(asyncio.shield(exited), 2)
            except TimeoutError:
                return "closed its output"
            return _ended(end, b"".join(tail))
        finally:
            with contextlib.suppress(MuxClosed):
                if not exited.done():
                    mux.post(m.Signal(exec_id, signal.SIGKILL))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            for stream in (stdin, stdout, stderr):
                stream.reset("over")
            exited.cancel()

    async def _talk(self, stdin: Bytes, stdout: Bytes) -> str:
        """Speaks with a started server until it can no longer be spoken to; what is wrong with it, if that is known."""
        over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def ended(reason: str) -> None:
            if not over.done():
                over.set_result(reason)

        async with (
            joined(stdin, stdout, ended) as (read_stream, write_stream),
            ClientSession(read_stream, write_stream) as client,
        ):
            try:
                async with asyncio.timeout(self.spec.start_timeout):
                    await client.initialize()
                    found = await _list(client)
            except TimeoutError:
                return f"was not ready within {self.spec.start_timeout:g} s"
            except MCPError as error:
                await asyncio.sleep(0)  # the end of its output may be about to be told
                return over.result() if over.done() else f"did not start: {_one_line(error)}"
            except (ValidationError, ValueError, RuntimeError) as error:
                return f"does not speak the protocol: {_one_line(error)}"
            self._client = client
            self._running.set()
            if not self.tools.done():
                self.tools.set_result(found)
            try:
                return await over
            finally:
                self._client = None

    def _argv(self) -> list[str]:
        if not self.spec.url:
            return list(self.spec.argv)
        headers = [f"{name}: {value}" for name, value in self.spec.headers.items()]
        return [*PYTHON, BRIDGE, PROGRAM, self.spec.url, *headers]

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool. What goes wrong is an answer with `is_error`."""
        name = self.spec.name
        try:
            async with asyncio.timeout(self.spec.timeout):
                await self._running.wait()
                client = self._client
                if self._gone or client is None:
                    return _error(f"the MCP server {name} is not running")
                request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
                # Not `call_tool`: that holds the answer against a schema of the server's, whose patterns could take
                # for ever, and this answer is only read.
                result = await client.send_request(request, types.CallToolResult)
        except TimeoutError:
            return _error(f"the MCP server {name} did not answer within {self.spec.timeout:g} s")
        except MCPError as error:
            return _error(f"the MCP server {name}: {_one_line(error)}")
        except (ValidationError, ValueError, RuntimeError) as error:
            return _error(f"the MCP server {name} answered with what is no answer: {_one_line(error)}")
        return {"output": _shown(result), "is_error": bool(result.is_error)}


async def _list(client: ClientSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        found += [{"name": t.name, "description": t.description, "schema": t.input_schema} for t in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _shown(result: types.CallToolResult) -> str:
    parts = []
    for block in result.content:
        if isinstance(block, types.TextContent):
            parts.append(block.text)
        elif isinstance(block, types.EmbeddedResource) and isinstance(block.resource, types.TextResourceContents):
            parts.append(block.resource.text)
        else:
            parts.append(f"[{block.type}: it cannot be shown here]")
    text = "\n".join(parts)
    if not text and result.structured_content is not None:
        import json

        text = json.dumps(result.structured_content, ensure_ascii=False)
    raw = text.replace("\0", "\u2400").encode("utf-8", "replace")
    if len(raw) <= MAX_OUTPUT:
        return raw.decode()
    half = MAX_OUTPUT // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
    return f"{head}\n[… {len(raw) - MAX_OUTPUT:,} of {len(raw):,} bytes left out here …]\n{tail}"


def _ended(end: m.Exited, stderr: bytes) -> str:
    how = end.error or (f"ended by signal {end.signal}" if end.signal is not None else f"ended with code {end.code}")
    said = stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    verb = "could not be started: " if end.error else ""
    return f"{verb}{how}" + (f" ({_one_line(said[0])})" if said else "")


def _error(text: str) -> dict[str, Any]:
    return {"output": text, "is_error": True}


def _one_line(error: object) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)[:2000]).split())
    return text if len(text) <= 300 else text[:300] + "…"
