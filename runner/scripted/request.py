"""A request as the scripted server received it, and the parts that its answers may quote."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

LABEL = "[context added by a hook]"
"""What stands before context in a message."""


@dataclass(frozen=True)
class Call:
    """A tool call that the scripted model makes."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One HTTP request. `gone` is set as soon as the client has closed its connection before the answer's end."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    gone: threading.Event = field(default_factory=threading.Event, compare=False)
    answered: threading.Event = field(default_factory=threading.Event, compare=False)
    """Set when the server is done with the request, however that went."""

    @cached_property
    def json(self) -> dict[str, Any]:
        """The body as an object; empty when it is none."""
        try:
            document = json.loads(self.body)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    @property
    def model(self) -> str:
        return str(self.json.get("model", ""))

    @property
    def stream(self) -> bool:
        return bool(self.json.get("stream"))

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that the request offers."""
        offered = self.json.get("tools")
        entries = offered if isinstance(offered, list) else []
        return tuple(str(e["function"].get("name", "")) for e in entries if isinstance(e, dict) and "function" in e)

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        messages = self.json.get("messages")
        return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []

    @cached_property
    def turn(self) -> list[dict[str, Any]]:
        """The messages from the last user message on."""
        last = max((i for i, m in enumerate(self.messages) if m.get("role") == "user"), default=0)
        return self.messages[last:]

    @property
    def question(self) -> str:
        """The last user message without what hooks added."""
        users = [m for m in self.turn if m.get("role") == "user"]
        return _text(users[0]).partition(LABEL)[0].strip() if users else ""

    @property
    def context(self) -> str:
        """What hooks added in this turn, without the labels."""
        parts = [part for m in self.turn for part in _text(m).split(LABEL)[1:]]
        return "\n".join(part.strip() for part in parts)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tool outputs of this turn, without what hooks added to them."""
        return tuple(_text(m).partition(LABEL)[0].strip("\n") for m in self.turn if m.get("role") == "tool")

    @property
    def system(self) -> str:
        return "\n".join(_text(m) for m in self.messages if m.get("role") == "system")

    @property
    def round(self) -> int:
        """1 for the first request of a turn, 2 after the first answer with tool calls, and so on."""
        return 1 + len([m for m in self.turn if m.get("role") == "assistant"])


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
