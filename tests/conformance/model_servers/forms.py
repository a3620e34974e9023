"""Answers in both forms, as a server would put them on the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.scripted import Chunks, Pause
from runner.scripted.answers import Cut

Item = Mapping[str, Any] | str | bytes | Pause | Cut


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def whole(message: Mapping[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", **message}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


def both(
    deltas: Sequence[Mapping[str, Any]], message: Mapping[str, Any], finish: str | None = "stop", *, done: bool = True
) -> Chunks:
    """The deltas and a last chunk with the finish reason, or the message."""
    return Chunks([*(chunk(d) for d in deltas), chunk({}, finish)], done=done, whole=whole(message, finish))


def call(arguments: Any, *, name: str | None = "bash", id: str | None = "a", index: int | None = 0) -> dict[str, Any]:
    """One entry of `tool_calls`; what is None is left out."""
    function = {k: v for k, v in {"name": name, "arguments": arguments}.items() if v is not None}
    return {
        k: v for k, v in {"index": index, "id": id, "type": "function", "function": function}.items() if v is not None
    }


def calls(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(entries)}
