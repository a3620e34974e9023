"""The agent as the guest is told it: everything decided, nothing left to parse.

The host reads and checks `agent.yaml` (`runner.kits.agent`), fills in each provider's defaults, turns durations into
seconds, and sends this. The guest trusts the types, since its own decoder checked them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GUEST_UID = 64000
"""The agent loop's uid and gid. Refused as a workspace's owner."""

HOOK_UID = 64001
"""The guards' uid and gid. Refused as a workspace's owner."""

PROXY_PORT = 3128
"""The port of the container's loopback on which the guest listens for the gateway's proxy."""

PROXIED = "proxy"
"""`Hello.network` of a container without a network, in which the guest serves the gateway's proxy."""

CLOSED = "closed"
"""The same where the proxy lets nothing through: what is asked for is refused in words, and logged."""

EVENTS = ("preGeneration", "preToolCall", "postToolCall", "postGeneration")
"""The four events, in the order of a turn."""

MORE_EVENTS = (
    "sessionStart",
    "sessionEnd",
    "permissionRequest",
    "preModelRequest",
    "textDelta",
    "message",
    "stop",
)
"""Events beyond the four."""

TOOL_EVENTS = ("preToolCall", "postToolCall", "permissionRequest")
"""Events that are about one tool call, and so take a `matcher`."""

GUARD_EVENTS = ("preGeneration", "preToolCall", "permissionRequest")
"""Events whose hooks may refuse, and so run as `HOOK_UID`."""


@dataclass(frozen=True)
class Hook:
    """One hook of the chain."""

    event: str
    """One of `EVENTS` or `MORE_EVENTS`."""
    command: str
    """Run by `sh -c`."""
    name: str
    """How the banner, the record and messages call it; unique in an agent."""
    matcher: str | None = None
    """Regular expression searched in the tool's name; tool events only."""
    timeout: float = 10.0
    """Seconds."""
    on_error: str = "warn"
    """`fail`, `warn` or `ignore`."""
    user: str = "hook"
    """`hook` (uid 64001) or `owner` (U); the default depends on the event and is decided by the host."""
    dialect: str = ""
    """Empty for our own names, or `claude`."""
    persistent: bool = False
    """One process for the session, one JSON line in, one out."""
    where: str = "sandbox"
    """`sandbox`, or `host` for auditing outside."""
    source: str = "agent"
    """Who brought it: `kit NAME`, `agent`, `command line`, `policy`."""
    config_dir: str = ""
    """Folder in the container that `MM_CONFIG_DIR` names for it; empty means the agent's own."""


@dataclass(frozen=True)
class Agent:
    """What `agent.yaml` comes to."""

    provider: str
    model: str
    urls: tuple[str, ...]
    """The model server's URLs in the order they are tried, without a trailing slash."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """Sent with every request as it is: `temperature`, `top_p`, `max_tokens`, `parallel_tool_calls`, …"""
    first_token_timeout: float = 180.0
    """Seconds without any real delta, from the request on."""
    watchdog_timeout: float = 180.0
    """Seconds of silence between two deltas."""
    max_turns: int = 50
    """Most rounds in one turn."""
    max_tool_calls: int = 0
    """Most tool calls in one turn; 0 for no limit."""
    max_tokens: int = 0
    """Most tokens, prompts and answers together, in one turn; 0 for no limit."""
    yolo: bool = True
    """Tool calls run without asking."""
    tools: tuple[str, ...] = ("bash",)
    """Names of the built-in tools that are on."""
    hooks: tuple[Hook, ...] = ()
    system: str = ""
    """The system prompt as written in `agent.yaml`; the guest adds the workspace's facts."""
    agents_md: bool = True
    """The workspace's `AGENTS.md` is added to the system prompt."""
    context: tuple[str, ...] = ()
    """Further files or texts for the system prompt."""
    context_window: int = 0
    """Tokens; 0 means what the server tells."""
    parallel_tools: bool = False
    """Tool calls of one round run together."""
    structured_output: dict[str, Any] | None = None
    """JSON schema that the answer must satisfy."""
    trace: bool = False
    """Requests and answers are kept as files."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What later parts of the guest read: `consent`, `mcp`, `skills_dir`, …"""
