"""What the host does for the guest beside the model's requests: MCP servers, the answer's form, traces.

Each is there only when the agent has it, and is imported only then: the SDK takes more than a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from runner.session.record import Record
from runner.wire import messages as m
from runner.wire.agent import Agent
from runner.wire.mcp import McpServer
from runner.wire.mux import Mux

if TYPE_CHECKING:
    from runner.kits.answer_schema import Schema
    from runner.session.mcp.server import Sandbox
    from runner.session.mcp.servers import Servers
    from runner.session.trace import Traces

OnAsk = Callable[[m.Ask], Awaitable[dict[str, Any]]]
Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs work as a child of the session, which hears of its failure."""


class Say(Protocol):
    """Takes a notice, for the record and the front end."""

    def __call__(self, level: str, text: str) -> None: ...


class Services:
    """The services of one session.

    Args:
        agent: says which are wanted.
        servers: the MCP servers.
        say: takes notices.
        start: runs work.
    """

    def __init__(self, agent: Agent, servers: Sequence[McpServer], say: Say, start: Start) -> None:
        self._start = start
        self._specs = servers
        self._say = say
        self._trace = agent.trace
        self._schema: Schema | None = None
        self._servers: Servers | None = None
        self._traces: Traces | None = None
        self._starting: asyncio.Task[None] | None = None
        self._asks: dict[int, asyncio.Task[None]] = {}
        self._structured = agent.structured_output

    def start(self, sandbox: Sandbox, mux: Mux[Any]) -> None:
        """Begins: the guest is up, and programs can be started in the sandbox."""
        if self._structured is not None:
            from runner.kits.answer_schema import Schema

            self._schema = Schema(self._structured)
        if self._specs:
            self._starting = self._start(self._start_servers(sandbox, mux))

    async def _start_servers(self, sandbox: Sandbox, mux: Mux[Any]) -> None:
        await asyncio.to_thread(_import_sdk)
        from runner.session.mcp.servers import Servers

        self._servers = Servers(self._specs, sandbox, self._say)
        mux.post(m.Tools(await self._servers.tools()))

    async def ready(self) -> None:
        """Waits until the tools of every server are told: a prompt's beginning must not change later."""
        if self._starting:
            await asyncio.shield(self._starting)

    # ---- what the guest asks

    def ask(self, ask: m.Ask, mux: Mux[Any], person: OnAsk) -> None:
        """Has an Ask answered, by the host itself or by the person."""
        task = self._start(self._answer(ask, mux, person))
        self._asks[ask.id] = task
        task.add_done_callback(lambda _: self._asks.pop(ask.id, None))

    def withdraw(self, message: m.Withdraw) -> None:
        """The guest no longer waits."""
        if task := self._asks.get(message.id):
            task.cancel()

    async def _answer(self, ask: m.Ask, mux: Mux[Any], person: OnAsk) -> None:
        match ask.kind:
            case "mcp":
                value = await self._call(ask.data)
            case "schema":
                text, error = self._schema.check(str(ask.data.get("text", ""))) if self._schema else ("", "no schema")
                value = {"text": text, "error": error}
            case "recorded":
                value = {}
            case _:
                value = await person(ask)
        if not mux.closed:
            mux.post(m.Reply(ask.id, value))

    async def _call(self, data: dict[str, Any]) -> dict[str, Any]:
        arguments = data.get("input")
        if self._servers is None:
            return {"output": "there is no MCP server", "is_error": True}
        return await self._servers.call(str(data.get("name", "")), arguments if isinstance(arguments, dict) else {})

    async def trace(self, message: m.Trace, mux: Mux[Any], record: Record) -> None:
        """Writes an exchange with the model server."""
        if not self._trace:
            mux.accept(message.channel).reset("no trace is kept")
            return
        if self._traces is None:
            from runner.session.trace import Traces

            self._traces = Traces(record, self._say)
        await self._traces.take(message, mux)

    async def close(self) -> None:
        """Ends everything."""
        tasks = [*self._asks.values(), *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._servers:
            await self._servers.close()


def _import_sdk() -> None:
    import runner.session.mcp.servers  # noqa: F401
