"""The conversation as it is sent to the model, always in a form that every server's chat template accepts.

The invariant: an assistant message with tool calls is followed by exactly one `tool` message for each of its ids,
in order, before anything else. A cancelled or failed turn is closed by `settle`, which answers what is still open.
"""

from __future__ import annotations

from typing import Any

CONTEXT_LABEL = "[context added by a hook]"
"""What hooks add stands under this label, so that the model can tell it from the person's words."""

CANCELLED = "[cancelled by the user before it finished]"

Message = dict[str, Any]


def with_context(text: str, context: list[str]) -> str:
    """`text` with each piece of context under its label."""
    return "\n\n".join([text, *(f"{CONTEXT_LABEL}\n{piece}" for piece in context)])


class History:
    """The messages after the system prompt.

    Args:
        messages: those of a resumed session.
    """

    def __init__(self, messages: list[Message] | None = None) -> None:
        self.messages: list[Message] = list(messages or [])
        self.settle("[the session ended before this call finished]")

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def assistant(self, text: str, calls: list[dict[str, str]] | None = None) -> None:
        """What the model said. `calls` hold `id`, `name` and `arguments` as JSON text."""
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls
            ]
        self.messages.append(message)

    def tool(self, call_id: str, output: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": output})

    def blocked(self, reason: str, response: str) -> None:
        """A question that a hook stopped: its text is gone, the marker and the hook's answer stay."""
        self.user(f"[prompt blocked by a hook: {reason}]")
        self.assistant(response)

    def open_calls(self) -> list[str]:
        """Ids of calls that have no result yet."""
        answered: set[str] = set()
        for message in reversed(self.messages):
            if message["role"] == "tool":
                answered.add(message["tool_call_id"])
            elif message.get("tool_calls"):
                return [c["id"] for c in message["tool_calls"] if c["id"] not in answered]
            else:
                return []
        return []

    def settle(self, text: str = CANCELLED) -> None:
        """Gives every open call a result, and a question without an answer an answer."""
        for call_id in self.open_calls():
            self.tool(call_id, text)
        if self.messages and self.messages[-1]["role"] != "assistant":
            self.assistant(text)
