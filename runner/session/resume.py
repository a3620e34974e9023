"""From a record back to the messages that a model server is sent.

Servers refuse a history with a call that has no result, a result without its call, two calls of one id, or (by the
templates of Gemma and Mistral) two questions in a row. A record can end anywhere: the host was killed in mid-tool, a
turn was cancelled. So every call is given a result, one that says that it is not known what the call did: the model
must not believe that nothing happened, and nothing is run again by itself. A turn that ended without an answer is
given one that says so. A stopped question is its marker and the hook's response, all the record has of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.session.record import Line, whole
from runner.wire import markers
from runner.wire.markers import NO_ANSWER, NOT_RUN, UNKNOWN_RESULT, blocked_marker, denied_marker, with_context

LARGEST_OUTPUT = 1024 * 1024
"""Characters of one tool output that a history takes; longer ones are as their line in the record has them."""

Message = dict[str, Any]


def replay(lines: Sequence[Line], folder: Path | None = None) -> list[Message]:
    """The history that the record tells, valid for every server.

    Args:
        lines: the record's lines.
        folder: the session's folder, for outputs that were too large for their line.
    """
    history = _History()
    for line in lines:
        data = line.data
        match line.name:
            case "turn.start":
                history.asked = False
            case "turn.question":
                history.question(with_context(_text(data, "prompt"), _list(data, "context")))
            case "turn.blocked" if not history.asked:
                history.question(blocked_marker(_text(data, "reason")))
                history.answer(_text(data, "response"), [])
            case "model.answer":
                history.answer(_text(data, "text"), _list(data, "calls"))
            case "tool.start":
                history.started.add(_text(data, "id"))
            case "tool.end":
                output = whole(folder, line, "output") if folder else _text(data, "output")
                output = output if len(output) <= LARGEST_OUTPUT else _text(data, "output")
                history.result(_text(data, "id"), with_context(output, _list(data, "context")))
            case "tool.denied":
                marker = denied_marker(_text(data, "reason"), _text(data, "by"))
                history.result(_text(data, "id"), with_context(marker, _list(data, "context")))
            case "tool.note":
                history.note(_text(data, "text"))
            case "message.kept":
                history.kept(_text(data, "role"), _text(data, "content"))
            case "turn.end":
                history.end(_text(data, "status"), _text(data, "error"), _text(data, "answer"))
            case "turn.pushed":
                history.question(_text(data, "prompt"))
            case "context.pruned":
                history.pruned(data)
            case "context.compacted":
                history.compacted(data)
            case "session.new":
                history = _History()
    history.close()
    return history.messages


class _History:
    """Messages so far, and the calls of the last answer that still have no result."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.open: list[tuple[str, str]] = []
        """Id as the record has it, id in the history."""
        self.started: set[str] = set()
        self.asked = False
        """The turn has its question; a further one is a line that was typed while it ran."""

    def question(self, text: str) -> None:
        if not self.asked:
            self.asked = True
            self.close()
        self._finish_calls()
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"] += "\n\n" + text
        else:
            self.messages.append({"role": "user", "content": text})

    def answer(self, text: str, calls: Sequence[Any]) -> None:
        self._finish_calls()
        made = []
        taken: set[str] = set()
        for call in calls:
            if not isinstance(call, dict):
                continue
            original = str(call.get("id", ""))
            unique = original or "call"
            while unique in taken:
                unique += "_"
            taken.add(unique)
            self.open.append((original, unique))
            function = {"name": str(call.get("name", "")), "arguments": _arguments(call.get("arguments"))}
            made.append({"id": unique, "type": "function", "function": function})
        message: Message = {"role": "assistant", "content": text}
        if made:
            message["tool_calls"] = made
        elif not text:
            message["content"] = NO_ANSWER
        self.started.clear()
        if not made and self.messages and self.messages[-1]["role"] == "assistant":
            # An answer that was pushed on by a hook, or cut off and gone on with.
            self.messages[-1]["content"] += "\n\n" + str(message["content"])
            return
        self.messages.append(message)

    def result(self, original: str, text: str) -> None:
        for index, (each, unique) in enumerate(self.open):
            if each == original:
                del self.open[index]
                self.messages.append({"role": "tool", "tool_call_id": unique, "content": text})
                break

    def note(self, text: str) -> None:
        """Stands below the result before it."""
        if self.messages and self.messages[-1]["role"] == "tool":
            self.messages[-1]["content"] += text

    def kept(self, role: str, content: str) -> None:
        """A hook changed the message before it was kept."""
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] = content

    def end(self, status: str, error: str, answer: str = "") -> None:
        self._finish_calls()
        self.asked = False
        if self.messages and self.messages[-1]["role"] in ("user", "tool"):
            said = answer if status == "stopped" and answer else markers.ending(status, error)
            self.messages.append({"role": "assistant", "content": said})

    def compacted(self, data: dict[str, Any]) -> None:
        """The model's summary stands for everything before it; `keep` messages of the end stay as they are."""
        self._finish_calls()
        self.messages = markers.compact(
            self.messages, _text(data, "summary"), _whole(data, "keep"), answered=data.get("answered") is True
        )

    def pruned(self, data: dict[str, Any]) -> None:
        """Old outputs were left out, but for those of the last `keep` messages."""
        self.messages = markers.prune(self.messages, _whole(data, "keep"))

    def close(self) -> None:
        """A history that a new question may follow."""
        self._finish_calls()
        if self.messages and self.messages[-1]["role"] in ("user", "tool"):
            self.messages.append({"role": "assistant", "content": NO_ANSWER})

    def _finish_calls(self) -> None:
        for original, unique in self.open:
            content = UNKNOWN_RESULT if original in self.started else NOT_RUN
            self.messages.append({"role": "tool", "tool_call_id": unique, "content": content})
        self.open.clear()


def _arguments(value: Any) -> str:
    """A call's arguments as the model wrote them; some servers' templates fail on what is not an object."""
    if isinstance(value, str):
        try:
            return value if isinstance(json.loads(value), dict) else "{}"
        except (ValueError, RecursionError):
            return "{}"
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False)


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _whole(data: dict[str, Any], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []
