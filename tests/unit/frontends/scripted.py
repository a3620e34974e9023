"""A session whose events are written down: the seam that front ends are tested at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from runner.frontends.banner import Banner
from runner.frontends.session import Answerer, nobody
from runner.wire.messages import Ask, Event

BANNER = Banner(
    version="0.1.0",
    config="/kits/hooks-demo/agent.yaml",
    provider="demo",
    model="scripted",
    tools=("bash",),
    yolo=True,
    image="sbx/hooks-demo:abc",
    network="none",
    hooks=(("preGeneration", 2), ("preToolCall", 1)),
    session="20261130-200000000-00000000",
)

Step = Event | Ask | Callable[["ScriptedSession"], Any]
Script = Callable[[str], Sequence[Step]]


class ScriptedSession:
    """`script` gives the steps for a question: events, questions for the person, or a function to await.

    A cancel makes the turn end as cancelled at the next step, or at once while it waits in `hang`.
    """

    def __init__(self, script: Script, banner: Banner = BANNER):
        self.banner = banner
        self.on_ask: Answerer = nobody
        self.prompts: list[str] = []
        self.steered: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.fresh = 0
        self.cancelled = asyncio.Event()
        self.was_steered = asyncio.Event()
        self._script = script

    async def ask(self, prompt: str) -> AsyncIterator[Event]:
        self.prompts.append(prompt)
        self.cancelled.clear()
        yield Event("turn.start", {"turn": len(self.prompts)})
        for step in self._script(prompt):
            if self.cancelled.is_set():
                break
            if isinstance(step, Event):
                yield step
                if step.name == "turn.end":
                    return
            elif isinstance(step, Ask):
                self.answers.append(await self.on_ask(step))
            else:
                await step(self)
        status = "cancelled" if self.cancelled.is_set() else "completed"
        yield Event("turn.end", {"turn": len(self.prompts), "status": status, "answer": "", "ms": 1})

    async def steer(self, text: str) -> None:
        self.steered.append(text)
        self.was_steered.set()

    async def cancel(self) -> None:
        self.cancelled.set()

    async def new(self) -> None:
        self.fresh += 1


async def hang(session: ScriptedSession) -> None:
    """Wait until the turn is cancelled."""
    await session.cancelled.wait()


async def until_steered(session: ScriptedSession) -> None:
    """Wait until a line was typed, or the turn is cancelled."""
    waits = [asyncio.ensure_future(each.wait()) for each in (session.was_steered, session.cancelled)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
