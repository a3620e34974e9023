"""The conversation, always in a form that every server's chat template accepts.

The invariant: an assistant message with tool calls is followed by exactly one `tool` message for each of its ids,
before anything else. A cancelled or failed turn is closed by `settle`, which answers what is still open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.guest.hooks.results import Stop
from runner.guest.model.history import assistant_message, tool_message, user_message
from runner.guest.model.items import Answer

CANCELLED = "[cancelled by the user before it finished]"

Message = dict[str, Any]


class History:
    """The messages after the system prompt.

    Args:
        messages: those of a resumed session.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self.messages: list[Message] = [dict(message) for message in messages]
        self.settle("[the session ended before this call finished]")

    def user(self, text: str, context: Sequence[str] = ()) -> Message:
        return self._add(user_message(text, context))

    def assistant(self, answer: Answer) -> Message:
        return self._add(assistant_message(answer))

    def tool(self, call_id: str, output: str, context: Sequence[str] = ()) -> Message:
        return self._add(tool_message(call_id, output, context))

    def blocked(self, stop: Stop) -> None:
        """A question that a hook stopped: its text is gone, the marker and the hook's answer stay."""
        self.user(stop.marker)
        self.assistant(Answer(stop.response or stop.marker))

    def settle(self, text: str = CANCELLED) -> None:
        """Gives every open call a result, and a question without an answer an answer."""
        for call_id in self._open_calls():
            self.tool(call_id, text)
        if self.messages and self.messages[-1]["role"] != "assistant":
            self.assistant(Answer(text))

    def _add(self, message: Message) -> Message:
        self.messages.append(message)
        return message

    def _open_calls(self) -> list[str]:
        answered: set[str] = set()
        for message in reversed(self.messages):
            if message["role"] == "tool":
                answered.add(message["tool_call_id"])
            elif message.get("tool_calls"):
                return [call["id"] for call in message["tool_calls"] if call["id"] not in answered]
            else:
                return []
        return []
