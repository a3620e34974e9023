"""The conversation, always in a form that every server's chat template accepts.

The invariant: an assistant message with tool calls is followed by exactly one `tool` message for each of its ids,
before anything else. A cancelled or failed turn is closed by `settle`, which answers what is still open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.guest.hooks.results import Stop
from runner.guest.model.history import assistant_message, to_messages, tool_message, user_message
from runner.guest.model.items import Answer
from runner.wire.markers import CANCELLED, NO_ANSWER, UNKNOWN_RESULT

Message = dict[str, Any]


class History:
    """The messages after the system prompt.

    Args:
        messages: those of a resumed session.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self.messages: list[Message] = []
        self.replace(messages)

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

    def settle(self, calls: str = CANCELLED, answer: str = CANCELLED) -> None:
        """Gives every open call a result, and a question without an answer an answer.

        Args:
            calls, answer: the text of each.
        """
        for call_id in self._open_calls():
            self.tool(call_id, calls)
        if self.messages and self.messages[-1]["role"] != "assistant":
            self.assistant(Answer(answer))

    def replace(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Another conversation."""
        self.messages[:] = [dict(message) for message in messages]
        self.settle(UNKNOWN_RESULT, NO_ANSWER)

    def normalise(self) -> None:
        """Makes the messages those that are sent, so that a count of them means the same to the host's record."""
        self.messages[:] = to_messages(self.messages)

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
