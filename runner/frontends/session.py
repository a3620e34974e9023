"""What a front end needs of a session: the one seam between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from runner.frontends.banner import Banner
from runner.wire.messages import Ask, Event

Answerer = Callable[[Ask], Awaitable[dict[str, Any]]]
"""Puts a question to a person. Consent (`kind` "consent", data `name` and `input` as it will run, and `why`) is
answered `{"choice": "once" | "session" | "reject" | "never"}`; a question (`kind` "question", data `question` and
perhaps `choices`) is answered `{"answer": TEXT}`, or `{"answer": null}` when nobody answers."""


class SessionLike(Protocol):
    """A session that was started. All of it is called from one event loop."""

    banner: Banner
    on_ask: Answerer
    """Set by the front end before the first turn."""

    def ask(self, prompt: str) -> AsyncIterator[Event]:
        """Run one turn. The last event is `turn.end`; errors of the session itself are raised (SbxError)."""
        ...

    async def steer(self, text: str) -> None:
        """A line for the turn that runs."""
        ...

    async def cancel(self) -> None:
        """End the turn that runs; its `turn.end` still comes."""
        ...

    def compact(self) -> AsyncIterator[Event]:
        """Make room in the conversation; yields what is told of it. Only between turns."""
        ...

    async def new(self) -> None:
        """Begin a fresh conversation in the same sandbox."""
        ...


async def nobody(ask: Ask) -> dict[str, Any]:
    """The answerer of a run without a person: consent is refused, a question has no answer."""
    if ask.kind == "consent":
        return {"choice": "reject", "reason": "nobody can be asked"}
    return {"answer": None}
