"""Who decides about a call: rules of the agent's, then what a person said earlier in the session, then the person.

A rule is `TOOL` or `TOOL(PATTERN)`, both with `*` and `?`. The pattern is held against the one argument that says what
the call does: the command of `bash`, the path of the file tools, the URL of `fetch_content`, else all arguments (JSON).

`allow` and `deny` fail to opposite sides. A shell line can hold many commands, so an `allow` pattern with a wildcard
matches only a line that is plainly one command: no `;`, `|`, `&`, `<`, `>`, `$`, backquote, bracket, backslash or line
end in it. A `deny` pattern matches the whole line and each piece of it. It is a convenience and no guard: a command can
be written in a thousand ways. What must never happen is for a `preToolCall` hook to refuse.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runner.guest.hooks import ToolCall

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Puts a question to the person at the host; an empty answer where there is none."""
Ruling = Literal["allow", "deny", ""]

NOBODY = "nobody is there to allow it"

_ARGUMENTS = {
    "bash": "command",
    "read_file": "path",
    "write_file": "path",
    "edit_file": "path",
    "list_files": "path",
    "search": "path",
    "fetch_content": "url",
}
_PATHS = frozenset({"read_file", "write_file", "edit_file", "list_files", "search"})
_NOT_ONE_COMMAND = re.compile(r"[;&|<>$`\\(){}\n\r]")
_PIECES = re.compile(r"[;&|\n\r(){}`]+|\$\(")
_RULE = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """One entry of `consent.allow` or `consent.deny`."""

    text: str
    tool: str
    pattern: str | None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Raises ValueError for what is no rule."""
        found = _RULE.fullmatch(text.strip())
        if not found:
            raise ValueError(f"{text!r} is not TOOL or TOOL(PATTERN)")
        return cls(text.strip(), found[1], found[2])

    def matches(self, call: ToolCall, workspace: str, *, allowing: bool) -> bool:
        """Whether the rule is about this call."""
        if not fnmatch.fnmatchcase(call.name, self.tool):
            return False
        if self.pattern is None:
            return True
        said = _said(call, workspace)
        if call.name != "bash":
            pattern = self.pattern
            if call.name in _PATHS and not pattern.startswith(("/", "*")):
                pattern = os.path.join(workspace, pattern)
            return fnmatch.fnmatchcase(said, pattern)
        if allowing:
            return said == self.pattern or (
                not _NOT_ONE_COMMAND.search(said) and fnmatch.fnmatchcase(said, self.pattern)
            )
        pieces = [said, *(piece.strip() for piece in _PIECES.split(said))]
        return any(fnmatch.fnmatchcase(" ".join(piece.split()), self.pattern) for piece in pieces if piece)


def _said(call: ToolCall, workspace: str) -> str:
    value = call.input.get(_ARGUMENTS.get(call.name, ""))
    if call.name in _PATHS:
        # as it is opened: `docs/../secret` is not below `docs/`
        value = os.path.normpath(os.path.join(workspace, value if isinstance(value, str) else ""))
    if isinstance(value, str):
        return value.strip()
    return json.dumps(dict(call.input), ensure_ascii=False, sort_keys=True)


class Consent:
    """Decides about calls.

    Args:
        ask: puts a question to the person.
        workspace: what relative paths are meant from.
        allow, deny: rules of `agent.yaml`.

    Raises:
        ValueError: an entry is no rule.
    """

    def __init__(self, ask: Ask, workspace: str, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        self._ask = ask
        self._workspace = workspace
        self._allow = [Rule.parse(text) for text in allow]
        self._deny = [Rule.parse(text) for text in deny]
        self._decided: dict[str, str] = {}

    def rule(self, call: ToolCall) -> tuple[Ruling, str]:
        """What the agent's rules say, and which one: `deny` first, empty when none is about this call."""
        for rule in self._deny:
            if rule.matches(call, self._workspace, allowing=False):
                return "deny", f"consent.deny: {rule.text}"
        for rule in self._allow:
            if rule.matches(call, self._workspace, allowing=True):
                return "allow", f"consent.allow: {rule.text}"
        return "", ""

    async def person(self, call: ToolCall, why: str) -> str:
        """Why the call may not run; empty when a person, now or earlier in the session, allowed it.

        Args:
            why: not empty: a hook wants a person to decide about this very call, so an earlier yes does not count.
        """
        decided = self._decided.get(call.name)
        if decided == "never":
            return "rejected for the whole session"
        if decided == "session" and not why:
            return ""
        answer = await self._ask("consent", {"name": call.name, "input": dict(call.input), "call": call.id, "why": why})
        choice = answer.get("choice")
        if choice in ("session", "never"):
            self._decided[call.name] = str(choice)
        if choice in ("once", "session"):
            return ""
        return str(answer.get("reason") or ("rejected" if answer else NOBODY))
