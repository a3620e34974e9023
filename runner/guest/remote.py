"""Tools that the host runs: those of MCP servers. To the loop they are tools like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from runner.guest.tools.base import ToolResult

Request = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Asks the host."""


class RemoteTool:
    """One tool of an MCP server."""

    def __init__(
        self, name: str, description: str, parameters: dict[str, Any], request: Request, *, changing: bool = True
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.changing = changing
        self._request = request

    @classmethod
    def of(cls, told: Mapping[str, Any], request: Request) -> RemoteTool:
        """The tool that an entry of a `Tools` message describes."""
        return cls(str(told["name"]), str(told["description"]), dict(told["parameters"]), request)

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """What comes back was made by a server that nobody vouches for; the host has bounded it."""
        reply = await self._request("mcp", {"name": self.name, "input": arguments, "call": call_id})
        output = str(reply.get("output", "")) or "[no output]"
        return ToolResult(output, bool(reply.get("is_error", "output" not in reply)), {"by": "mcp"})
