"""The result of a run as one JSON document, collected from its events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from runner.errors import SbxError
from runner.wire.messages import Event

VERSION = 1
"""Of the document's form; raised when a field changes its meaning or goes."""


DEEPEST = 100
"""Levels of a value that is nested too deeply for the encoder."""


@dataclass
class Document:
    """Feed it every event; `to_json` is what `--json` prints. Fields stay in this order."""

    session: str = ""
    answer: str = ""
    status: str = ""
    """completed, stopped, failed or cancelled; empty when no turn ended."""
    reason: str = ""
    error: str = ""
    url: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    blocked: dict[str, Any] | None = None
    notices: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    milliseconds: dict[str, float] = field(default_factory=lambda: {"turn": 0, "model": 0, "tools": 0, "hooks": 0})

    def event(self, event: Event) -> None:
        """Take in one event."""
        data = event.data
        match event.name:
            case "model.resolved":
                self.url = str(data.get("url", ""))
            case "tool.start":
                call = {key: data.get(key) for key in ("id", "name", "input")}
                if "asked" in data:
                    call["asked"] = data["asked"]
                self.tool_calls.append({**call, "status": "running"})
            case "tool.end":
                self._close(data, "failed" if data.get("is_error") else "ok", ("output", "exit", "ms"))
                self._spend("tools", data)
            case "tool.denied":
                self._close(data, "denied", ("by", "reason"))
            case "hook":
                keys = ("event", "hook", "verdict", "reason", "ms", "call", "on_error", "exit")
                self.hooks.append({key: data[key] for key in keys if key in data})
                self._spend("hooks", data)
            case "turn.blocked":
                self.blocked = {key: data.get(key) for key in ("hook", "reason", "response")}
            case "model.answer":
                self._spend("model", data)
            case "notice":
                self.notices.append({key: data.get(key) for key in ("level", "text")})
            case "turn.end":
                self._end(data)

    def to_json(self, error: SbxError | None = None, **more: Any) -> dict[str, Any]:
        """The document; `error` is one that ended the run, `more` are further fields (changed files, …).

        A call that never ended has the status `running`.
        """
        document = {"version": VERSION, **{key: value for key, value in vars(self).items() if value is not None}}
        if error is not None:
            document["status"] = document["status"] or "failed"
            document["error"] = error.to_json()
        elif self.error:
            document["error"] = {"code": 1, "kind": self.reason or "turn", "message": self.error}
        else:
            del document["error"]
        return {**document, **more}

    def _close(self, data: dict[str, Any], status: str, keys: tuple[str, ...]) -> None:
        open_calls = (c for c in self.tool_calls if c["id"] == data.get("id") and c["status"] == "running")
        call = next(open_calls, None)
        if call is None:
            call = {key: data.get(key) for key in ("id", "name", "input")}
            self.tool_calls.append(call)
        call["status"] = status
        call.update({key: data[key] for key in keys if key in data})

    def _spend(self, what: str, data: dict[str, Any]) -> None:
        spent = data.get("ms")
        if isinstance(spent, (int, float)) and 0 <= spent < 1e15:
            self.milliseconds[what] += spent

    def _end(self, data: dict[str, Any]) -> None:
        self.answer = str(data.get("answer") or "")
        self.status = str(data.get("status") or "")
        self.reason = str(data.get("reason") or "")
        self.error = str(data.get("error") or "")
        if isinstance(rounds := data.get("rounds"), int):
            self.rounds += rounds
        self._spend("turn", data)
        usage = data.get("usage")
        for key, value in usage.items() if isinstance(usage, dict) else ():
            if isinstance(value, (int, float)) and 0 <= value < 1e15:
                self.usage[key] = self.usage.get(key, 0) + value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON that every parser reads and no terminal obeys: ASCII, no NaN, not nested beyond reason."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)
    except (ValueError, RecursionError):
        return json.dumps(_plain(value, DEEPEST), ensure_ascii=True, indent=indent)


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (dict, list, tuple)) and not levels:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {str(key): _plain(each, levels - 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, levels - 1) for each in value]
    return value
