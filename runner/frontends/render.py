"""Events as lines: the one place that decides how anything in a session looks, for every front end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runner.errors import SbxError
from runner.frontends.safe import head, safe_line
from runner.frontends.terminal import Styled
from runner.wire.messages import Event

COMMAND_LINES = 12
"""Lines of a command that are shown."""
OUTPUT_LINES = 6
"""Lines of an output that are shown."""
STDERR_LINES = 5
"""Lines of a failing hook's stderr that are shown."""
WAITS = (5.0, 15.0, 30.0, 60.0, 120.0)
"""Seconds of waiting at which a plain stream is told so; after the last one, once each of it again."""

_DENIERS = {"consent": "denied by the user", "policy": "denied by policy", "limit": "not run"}
_REWRITTEN = {
    "preGeneration": "the question",
    "preToolCall": "the input",
    "postToolCall": "the output",
    "preModelRequest": "the request",
    "textDelta": "the answer",
    "message": "the message",
}


class Renderer:
    """Turns events into lines. One for each session; it remembers what the events so far were about.

    Args:
        outputs: lines of each tool's output to show; 0 for none.
        waits: the seconds at which a wait is worth a line; None where a spinner shows it.
        commentary: show what the model says beside its tool calls (not where it was streamed already).
    """

    def __init__(self, *, outputs: int = OUTPUT_LINES, waits: Sequence[float] | None = WAITS, commentary: bool = True):
        self._outputs = outputs
        self._waits = waits
        self._commentary = commentary
        self._waited = 0.0
        self._names: dict[str, str] = {}
        self._asked = False

    def lines(self, event: Event) -> list[Styled]:
        """What to show of the event; often nothing."""
        data = event.data
        match event.name:
            case "tool.start":
                self._names[_text(data, "id")] = _text(data, "name")
                return call_lines(_text(data, "name"), data.get("input"))
            case "tool.denied":
                return [denied_line(_text(data, "name"), _text(data, "by"), _text(data, "reason"))]
            case "tool.end":
                return self._tool_end(data)
            case "turn.start":
                self._asked = False
            case "turn.question":
                self._asked = True
            case "turn.blocked":
                return self._blocked(data)
            case "hook":
                return self._hook(data)
            case "context.loaded":
                cut = ", cut" if data.get("cut") else ""
                return [Styled(f"{safe_line(_text(data, 'file'))}: about {_word(data, 'tokens')} tokens{cut}", "dim")]
            case "context.pruned":
                return [Styled(f"{_word(data, 'outputs')} old tool outputs were left out to make room", "dim")]
            case "context.compacting":
                return [Styled(f"compacting the conversation: {safe_line(_text(data, 'why'))}", "dim")]
            case "context.compacted":
                how = f"{_word(data, 'messages')} messages became a summary"
                before, after = _word(data, "before"), _word(data, "after")
                return [Styled(f"compacted: {how}, about {before} tokens are now {after}", "dim")]
            case "notice":
                return [notice_line(_text(data, "level"), _text(data, "text"))]
            case "model.resolved":
                return _resolved(data)
            case "model.request" | "model.delta":
                self._waited = 0.0
            case "model.wait":
                return self._wait(data)
            case "model.retry":
                number, why = safe_line(_text(data, "attempt")), safe_line(_text(data, "why"))
                return [Styled(f"↻ model: {why}; attempt {number} in {_seconds(data.get('seconds'))}", "yellow")]
            case "model.answer":
                return self._answer(data)
            case "network" if _text(data, "outcome") in ("denied", "failed"):
                host, port = safe_line(_text(data, "host")), safe_line(_text(data, "port"))
                how = "refused" if data["outcome"] == "denied" else "failed"
                return [Styled(f"⛔ network [{host}:{port} {how}: {safe_line(_text(data, 'reason'))}]", "yellow")]
            case "turn.end":
                return _turn_end(data)
        return []

    def _blocked(self, data: dict[str, Any]) -> list[Styled]:
        who, why = safe_line(_text(data, "hook")), safe_line(_text(data, "reason"))
        what = "line" if self._asked else "question"
        lines = [Styled(f"🪝 {what} [stopped by a hook: {why}]" + (f" ({who})" if who else ""), "dim")]
        if self._asked:
            # Of a question, the response is the turn's answer; of a line typed in mid-turn, it is said here only.
            shown, _ = head(_text(data, "response"), OUTPUT_LINES)
            lines.extend(Styled(f"  {each}", "dim") for each in shown)
        return lines

    def _tool_end(self, data: dict[str, Any]) -> list[Styled]:
        lines: list[Styled] = []
        if self._outputs:
            shown, more = head(_text(data, "output"), self._outputs)
            lines = [Styled(f"  {each}", "dim") for each in shown]
            if more:
                lines.append(Styled(f"  … {more} more line{'s' if more > 1 else ''}", "dim"))
        if data.get("is_error"):
            name = self._names.get(_text(data, "id")) or _text(data, "name")
            code = data.get("exit")
            how = f"exit {safe_line(str(code))}" if code is not None else "failed"
            lines.append(Styled(f"✗ {safe_line(name)} [{how}, {_milliseconds(data.get('ms'))}]", "dim"))
        return lines

    def _hook(self, data: dict[str, Any]) -> list[Styled]:
        name = safe_line(_text(data, "hook"))
        event = _text(data, "event")
        reason = safe_line(_text(data, "reason"))
        tool = self._names.get(_text(data, "call"), "")
        match _text(data, "verdict"):
            case "rewrite":
                what = _REWRITTEN.get(event, event)
                return [Styled(f"🪝 {name} [rewrote {safe_line(what)}]", "dim")]
            case "context":
                return [Styled(f"🪝 {name} [added context]", "dim")]
            case "result":
                return [Styled(f"🪝 {name} [answered for the tool{' ' + safe_line(tool) if tool else ''}]", "dim")]
            case "ask":
                return [Styled(f"🪝 {name} [asks a person{': ' + reason if reason else ''}]", "dim")]
            case "error":
                policy = _text(data, "on_error")
                if policy == "ignore":
                    return []
                style = "red" if policy == "fail" else "yellow"
                lines = [Styled(f"🪝 {name} [failed in {safe_line(event)}: {reason or 'no reason'}]", style)]
                shown, more = head(_text(data, "stderr"), STDERR_LINES)
                lines.extend(Styled(f"   {each}", style) for each in shown)
                if more:
                    lines.append(Styled(f"   … {more} more lines", style))
                return lines
        return []

    def _wait(self, data: dict[str, Any]) -> list[Styled]:
        seconds = data.get("seconds")
        if self._waits is None or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9:
            return []
        due = next((each for each in self._waits if each > self._waited), self._waited + self._waits[-1])
        if seconds < due:
            return []
        self._waited = seconds
        why = safe_line(_text(data, "why")) or "waiting for the model"
        return [Styled(f"⏳ {why} ({_seconds(seconds)})", "dim")]

    def _answer(self, data: dict[str, Any]) -> list[Styled]:
        lines: list[Styled] = []
        text = _text(data, "text").strip()
        if self._commentary and text and data.get("calls"):
            shown, more = head(text, COMMAND_LINES)
            lines = [Styled(each, "dim") for each in shown]
            if more:
                lines.append(Styled(f"… {more} more lines", "dim"))
        return lines


def call_lines(name: str, arguments: Any) -> list[Styled]:
    """A tool call as it will run: `$ cat todo.txt`, or the tool's name and arguments."""
    if name == "bash" and isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
        shown, more = head(arguments["command"], COMMAND_LINES, 2000)
        lines = [Styled(("$ " if not index else "> ") + each, "dim") for index, each in enumerate(shown or [""])]
        if more:
            lines.append(Styled(f"> … {more} more lines", "dim"))
        return lines
    if isinstance(arguments, dict):
        words = [f"{safe_line(str(key), 80)}={safe_line(_value(value), 160)}" for key, value in arguments.items()]
    else:
        words = [safe_line(_value(arguments), 160)]
    return [Styled(" ".join([f"⚙ {safe_line(name, 80)}", *words[:20]]), "dim")]


def denied_line(name: str, by: str, reason: str) -> Styled:
    """A call that did not run: `🪝 bash [denied by a hook: REASON]`."""
    if by in _DENIERS:
        return Styled(f"✋ {safe_line(name)} [{_DENIERS[by]}: {safe_line(reason)}]", "dim")
    return Styled(f"🪝 {safe_line(name)} [denied by a hook: {safe_line(reason)}]", "dim")


def notice_line(level: str, text: str) -> Styled:
    """A notice by its level: info, warning, error."""
    styles = {"warning": "yellow", "error": "red"}
    prefix = f"{level}: " if level in styles else ""
    return Styled(prefix + safe_line(text, 2000), styles.get(level, "dim"))


def error_lines(error: SbxError) -> list[Styled]:
    """An error for a person: what, where, what to do, and the log's end."""
    lines = [Styled(f"error: {safe_line(str(error), 4000)}", "red")]
    if error.place and error.place not in str(error):
        lines.append(Styled(f"  at {safe_line(error.place)}"))
    if error.hint:
        shown, _ = head(error.hint, 20)
        lines.extend(Styled(f"  {each}") for each in shown)
    if error.log:
        shown, more = head(error.log, 60)
        lines.extend(Styled(f"  | {each}", "dim") for each in shown)
        if more:
            lines.append(Styled(f"  | … {more} more lines", "dim"))
    return lines


def _resolved(data: dict[str, Any]) -> list[Styled]:
    lines: list[Styled] = []
    for each in _list(data, "tried"):
        if isinstance(each, dict):
            url, reason = safe_line(_text(each, "url")), safe_line(_text(each, "reason"))
            lines.append(Styled(f"model server {url}: {reason}", "yellow"))
    if lines:
        lines.append(Styled(f"model server {safe_line(_text(data, 'url'))} is used", "dim"))
    lines.extend(notice_line("warning", str(each)) for each in _list(data, "warnings"))
    return lines


def _turn_end(data: dict[str, Any]) -> list[Styled]:
    error = _text(data, "error")
    match _text(data, "status"):
        case "failed":
            shown, _ = head(error or _text(data, "reason") or "no reason", 20, 2000)
            return [Styled(("turn failed: " if not index else "  ") + each, "red") for index, each in enumerate(shown)]
        case "cancelled":
            return [Styled("turn cancelled", "yellow")]
    return []


def _value(value: Any) -> str:
    if isinstance(value, str):
        value = value[:400] if len(value) > 400 else value
        return value if value and " " not in value and "\n" not in value else json.dumps(value, ensure_ascii=False)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "?"


def _seconds(value: Any) -> str:
    return f"{value:.0f} s" if isinstance(value, (int, float)) and abs(value) < 1e9 else "? s"


def _milliseconds(value: Any) -> str:
    if not isinstance(value, (int, float)) or not abs(value) < 1e12:
        return "? ms"
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _word(data: dict[str, Any], key: str) -> str:
    """A number as a rule; but the guest may have said anything."""
    return safe_line(_text(data, key), 40)


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []
