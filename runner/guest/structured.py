"""`structuredOutput`: the answer is JSON that fits a schema, or the turn fails.

The model is told in the system prompt. A server that is asked for `response_format` constrains the model's tokens, so
that no tool can be called; it is asked for only when there are no tools, or when an answer came in the wrong form.

Whether an answer fits is checked by the host (`runner.kits.answer_schema`), where a whole validator is: the guest's own
checker knows what tools' schemas use and no more, and would let the rest pass.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

TRIES = 2
"""How often the model is asked again."""

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Form:
    """What the answer must be like.

    Args:
        schema: the JSON schema.
        ask: asks the host.
    """

    def __init__(self, schema: Mapping[str, Any], ask: Ask) -> None:
        self._ask = ask
        self._text = json.dumps(schema, ensure_ascii=False, sort_keys=True)
        form = {"name": "answer", "schema": dict(schema), "strict": True}
        self.request: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": form}}
        """Keys of a request to a server that can hold the model to the schema."""

    @property
    def instruction(self) -> str:
        """The part of the system prompt."""
        return (
            "Your final answer must be one JSON value that is valid against this JSON schema, "
            f"with nothing before or after it:\n{self._text}"
        )

    async def check(self, answer: str) -> tuple[str, str]:
        """The JSON text of an answer, and what is wrong with it, in words for the model."""
        reply = await self._ask("schema", {"text": answer})
        return str(reply.get("text", "")), str(reply.get("error", "the host did not check it"))

    def again(self, wrong: str) -> str:
        """What the model is told."""
        return f"Your answer is not valid: {wrong}\nAnswer again with one JSON value that is valid, and nothing else."
