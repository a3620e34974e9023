"""Warm start: sandboxes that are made ahead of the questions they are for.

Each is handed out once and never comes back, so that no question sees what another left. What is made ahead is decided
by the owner, who tells what it will need next: nothing is made that nothing will want. A spare that cannot be made is
no error of anybody's; whoever wanted it makes one for himself, and gets the error if there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterable
from itertools import islice
from types import TracebackType
from typing import Generic, TypeVar

from runner.session.booted import Booted

Kind = TypeVar("Kind", bound=Hashable)
"""What makes two sandboxes interchangeable: image, workspace, profile."""


class Pool(Generic[Kind]):
    """Spares of several kinds. Use it as `async with`; its end ends those that nobody took.

    Args:
        size: most spares at once, of all kinds together; 0 makes each sandbox when it is wanted.
        make: creates a sandbox of a kind and boots its guest.
        upcoming: the kinds that will be wanted next, in that order.
    """

    def __init__(
        self, size: int, make: Callable[[Kind], Awaitable[Booted]], upcoming: Callable[[], Iterable[Kind]]
    ) -> None:
        self._size = size
        self._make = make
        self._upcoming = upcoming
        self._spares: list[tuple[Kind, asyncio.Task[Booted]]] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Pool[Kind]:
        self.fill()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        while self._spares:
            self._discard(self._spares.pop()[1])
        while self._ending:
            await asyncio.wait(self._ending)

    def fill(self) -> None:
        """Begins to make what will be wanted and is not there."""
        if self._closed or not self._size:
            return
        self._spares = [spare for spare in self._spares if not _failed(spare[1])]
        missing = list(islice(self._upcoming(), self._size))
        for kind, _ in self._spares:
            if kind in missing:
                missing.remove(kind)
        for kind in missing[: max(self._size - len(self._spares), 0)]:
            self._spares.append((kind, asyncio.create_task(_made(self._make(kind)))))

    @property
    def ready(self) -> int:
        """Spares whose guest is up."""
        return sum(task.done() and not _failed(task) and task.result().alive for _, task in self._spares)

    async def take(self, kind: Kind) -> Booted:
        """A sandbox whose guest is up; the caller ends it. One that is being made is waited for.

        Raises:
            SbxError: there is none, and none can be made.
        """
        task = self._pop(kind)
        self.fill()
        while task:
            try:
                booted = await asyncio.shield(task)
            except Exception:  # a full disk as well as an engine's error: making one for himself tells it
                break
            except asyncio.CancelledError:
                self._discard(task)
                raise
            if booted.alive:
                return booted
            self._discard(task)
            task = self._pop(kind)
        return await self._make(kind)

    def _pop(self, kind: Kind) -> asyncio.Task[Booted] | None:
        for index, (of, task) in enumerate(self._spares):
            if of == kind:
                del self._spares[index]
                return task
        return None

    def _discard(self, task: asyncio.Task[Booted]) -> None:
        """Ends a spare, in whatever state it is; `__aexit__` waits for that."""
        ending = asyncio.create_task(_end(task))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


async def _made(making: Awaitable[Booted]) -> Booted:
    return await making


async def _end(task: asyncio.Task[Booted]) -> None:
    task.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await (await task).end()


def _failed(task: asyncio.Task[Booted]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
