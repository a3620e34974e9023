"""The history as every server accepts it.

A history is a list of messages in the form of the chat completions API: `system`, `user`, `assistant` (with
`tool_calls`), `tool` (with `tool_call_id`). Chat templates break on what the API's own server forgives, so a request
gets:

- a `tool` message for each call, right after the message that made it and in its order: a missing one (after a
  cancel) is written, an orphan or a second one is left out;
- arguments that are text and valid JSON;
- no reasoning, and no key that the API does not have;
- no two user messages, or two assistant messages without calls, in a row: they are joined.

The same history always gives the same bytes, and a history with more turns begins with the bytes of the shorter one,
so that servers' prompt caches hit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.guest.model.items import Answer, ToolSpec
from runner.wire.markers import with_context

DID_NOT_RUN = "[cancelled: this call did not run to its end]"
"""Stands for the output of a call that has none."""

Message = dict[str, Any]


def user_message(text: str, context: Iterable[str] = ()) -> Message:
    """A question, with what hooks added under their label."""
    return {"role": "user", "content": with_context(text, context)}


def assistant_message(answer: Answer) -> Message:
    """An answer as the history keeps it: without reasoning."""
    message: Message = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in answer.calls
        ]
    return message


def tool_message(call_id: str, output: str, context: Iterable[str] = ()) -> Message:
    """A tool's output."""
    return {"role": "tool", "tool_call_id": call_id, "content": with_context(output, context)}


def to_request(
    history: Sequence[Mapping[str, Any]],
    tools: Sequence[ToolSpec],
    *,
    model: str,
    sampling: Mapping[str, Any] | None = None,
    stream: bool = True,
) -> dict[str, Any]:
    """The body of a chat completions request.

    Args:
        sampling: sent as it is; its keys do not replace `model`, `messages`, `tools`, `stream`.
    """
    request: dict[str, Any] = {**(sampling or {}), "model": model, "messages": to_messages(history), "stream": stream}
    if stream:
        request.setdefault("stream_options", {"include_usage": True})
    if tools:
        request["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in tools
        ]
    else:
        request.pop("parallel_tool_calls", None)  # servers refuse it without tools
    return request


def to_messages(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages as they are sent."""
    sent: list[Message] = []
    for position, message in enumerate(history):
        match message.get("role"):
            case "assistant":
                calls = [c for c in message.get("tool_calls") or () if isinstance(c, Mapping)]
                _append(sent, {"role": "assistant", "content": _text(message)}, [_sent_call(c) for c in calls])
                if calls:
                    outputs = _outputs(history, position)
                    sent += [
                        {"role": "tool", "tool_call_id": c["id"], "content": outputs.get(c["id"], DID_NOT_RUN)}
                        for c in sent[-1]["tool_calls"]
                    ]
            case "user" | "system" | "developer" as role:
                _append(sent, {"role": role, "content": _text(message)}, [])
    return sent


def _append(sent: list[Message], message: Message, calls: list[Message]) -> None:
    if calls:
        sent.append({**message, "tool_calls": calls})
    elif sent and sent[-1]["role"] == message["role"] and "tool_calls" not in sent[-1]:
        sent[-1] = {**message, "content": "\n\n".join(t for t in (sent[-1]["content"], message["content"]) if t)}
    else:
        sent.append(message)


def _outputs(history: Sequence[Mapping[str, Any]], position: int) -> dict[str, str]:
    """The outputs that follow the message at `position`, up to the next answer; the first for an id counts."""
    outputs: dict[str, str] = {}
    for message in history[position + 1 :]:
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            outputs.setdefault(str(message.get("tool_call_id")), _text(message))
    return outputs


def _sent_call(call: Mapping[str, Any]) -> Message:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    return {
        "id": str(call.get("id", "")),
        "type": "function",
        "function": {
            "name": str(function.get("name") or "unknown"),
            "arguments": _arguments(function.get("arguments")),
        },
    }


def _arguments(value: object) -> str:
    """The arguments as text. Malformed ones become `{}`: servers parse them for the chat template and fail for good."""
    if isinstance(value, str):
        try:
            return value if isinstance(json.loads(value), dict) else "{}"
        except (ValueError, RecursionError):
            return "{}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "{}"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
