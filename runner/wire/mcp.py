"""A server of tools (Model Context Protocol) as `agent.yaml` comes to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class McpServer:
    """One entry of `mcp`."""

    name: str
    argv: tuple[str, ...] = ()
    """Started in the sandbox as U; it speaks over stdin and stdout. Empty for a server with a `url`."""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    """Empty: the workspace."""
    url: str = ""
    """Asked over HTTP from the sandbox, as any tool's request: the gateway decides whether it may leave."""
    headers: dict[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    """Patterns of its tools' names (`*`, `?`); empty: all."""
    deny: tuple[str, ...] = ()
    """Wins over `allow`."""
    timeout: float = 60.0
    """Seconds for one call."""
    start_timeout: float = 30.0
    """Seconds until it has told its tools."""
