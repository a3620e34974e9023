"""What a session is, told before its first turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.frontends.safe import safe_line
from runner.frontends.terminal import Styled


@dataclass(frozen=True)
class Banner:
    """Facts of a session for its first lines."""

    version: str
    config: str
    """Path of the agent's file, or what stands for it."""
    provider: str
    model: str
    tools: Sequence[str]
    yolo: bool
    image: str
    network: str
    hooks: Sequence[tuple[str, int]] = ()
    """Event and number of its hooks, in the order of a turn."""
    not_failing: Sequence[str] = ()
    """Names of the guards without `onError: fail`: they let pass what they fail at."""
    sandbox: str = ""
    session: str = ""
    workspace: str = ""
    url: str = ""
    """The model server, where it is known yet."""
    scripted: bool = False
    """The model is the built-in scripted one."""
    instructions: str = ""
    """What was added to the system prompt, for example `AGENTS.md (120 tokens)`."""
    ports: Sequence[str] = ()
    """The published ports."""
    warnings: Sequence[str] = ()
    relaxations: Sequence[str] = ()
    """Grants and everything else that is weaker than the default profile."""


def count_hooks(events: Sequence[str], order: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """How many hooks each event has, events in `order`, for `Banner.hooks`."""
    return tuple((event, events.count(event)) for event in order if event in events)


def banner_lines(banner: Banner) -> list[Styled]:
    """The banner, one fact a line."""
    lines = [Styled(f"sbx {safe_line(banner.version)}", "bold")]

    def fact(name: str, value: str) -> None:
        if value:
            lines.append(Styled(f"  {name + ':':<10} {safe_line(value)}", "dim"))

    fact("config", banner.config)
    fact("sandbox", banner.sandbox)
    fact("session", banner.session)
    fact("workspace", banner.workspace)
    fact("provider", banner.provider + (f" at {banner.url}" if banner.url else ""))
    fact("model", banner.model)
    fact("tools", " ".join(banner.tools) or "none")
    fact("yolo", "on, tool calls run without asking" if banner.yolo else "off, changing tool calls ask first")
    fact("image", banner.image)
    fact("network", banner.network)
    for port in banner.ports:
        fact("port", port)
    fact("context", banner.instructions)
    fact("hooks", " ".join(f"{event}×{number}" for event, number in banner.hooks) or "none")
    if banner.not_failing:
        names = ", ".join(banner.not_failing)
        lines.append(Styled(f"  guards without `onError: fail`: {safe_line(names)}", "yellow"))
    if banner.scripted:
        lines.append(Styled("  the model is scripted: its answers are written down, nothing thinks here", "yellow"))
    lines.extend(Styled(f"  warning: {safe_line(each)}", "yellow") for each in banner.warnings)
    lines.extend(Styled(f"  relaxed: {safe_line(each)}", "red") for each in banner.relaxations)
    return lines
