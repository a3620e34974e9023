"""The two timers, and the news that a wait goes on.

Only time spent waiting for the server counts, so a slow reader of the answer, or a person who is asked something,
never runs a timer out. `firstTokenTimeout` ends with the first real delta; from then on `watchdogTimeout` bounds the
silence between two of them. Comments and empty deltas, which servers send to keep a connection open, are silence.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

NEWS_EVERY = 5.0
"""Seconds between two Waiting items."""


class Silence(Exception):
    """A timer has run out."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing for {seconds:g} s")
        self.seconds = seconds


class Patience:
    """How long a request may still wait.

    Args:
        limit: seconds until `Silence`.
        news_every: seconds between two returns of `step` that only tell of the wait.
    """

    def __init__(self, limit: float, news_every: float = NEWS_EVERY) -> None:
        self.limit = limit
        self.quiet = 0.0
        """Seconds waited since the last real delta."""
        self._news_every = news_every
        self._next_news = news_every

    def heard(self, limit: float) -> None:
        """A real delta came; `limit` bounds the silence until the next."""
        self.quiet = 0.0
        self.limit = limit
        self._next_news = self._news_every

    async def step(self, task: asyncio.Future[Any]) -> bool:
        """True when `task` is done, False when it is time to tell that the wait goes on. Raises Silence."""
        if not task.done():
            before = time.monotonic()
            until = min(self.limit, self._next_news) - self.quiet
            await asyncio.wait({task}, timeout=max(until, 0))
            self.quiet += time.monotonic() - before
        if task.done():
            return True
        if self.quiet >= self.limit:
            raise Silence(self.limit)
        self._next_news += self._news_every
        return False


async def abandon(task: asyncio.Task[Any]) -> None:
    """Ends `task`, whatever it is doing; what it raised is nobody's any more."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
