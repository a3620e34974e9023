"""All MCP servers of a session: started together, and found by their tools' names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from runner.session.mcp.listing import listed
from runner.session.mcp.server import Sandbox, Say, Server
from runner.wire.mcp import McpServer


class Servers:
    """The servers.

    Args:
        specs: in the order of `agent.yaml`.
        sandbox: where they run.
        say: takes notices.
    """

    def __init__(self, specs: Sequence[McpServer], sandbox: Sandbox, say: Say) -> None:
        self._servers = [Server(spec, sandbox, say) for spec in specs]
        self._say = say
        self._tasks = [asyncio.create_task(server.run()) for server in self._servers]
        self._by_tool: dict[str, tuple[Server, str]] = {}

    async def tools(self) -> list[dict[str, Any]]:
        """The tools that the model is told of, in a fixed order, once every server has told its own or given up."""
        told: list[dict[str, Any]] = []
        for server in self._servers:
            found, problems = listed(server.spec, await server.tools, self._by_tool)
            for problem in problems:
                self._say("warning", f"the MCP server {server.spec.name}: a tool is left out: {problem}")
            for tool in found:
                self._by_tool[tool.name] = (server, tool.own)
                told.append(tool.told())
        return told

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool by the name that the model was told."""
        if name not in self._by_tool:
            return {"output": f"there is no tool {name[:80]!r}", "is_error": True}
        server, own = self._by_tool[name]
        return await server.call(own, arguments)

    async def close(self) -> None:
        """Ends every server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
