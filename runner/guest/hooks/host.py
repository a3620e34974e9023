"""Hooks with `where: host`: the guest asks, the host runs them and says how they ended.

Such a hook audits and notifies. It may refuse and never rewrite: what else it answers is left aside. Events after which
there is nothing to refuse do not wait for it, so a slow relay holds up no turn; the order of what it is told holds all
the same, because each question goes out at the moment of its event and the host runs one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from runner.guest.hooks import process
from runner.guest.hooks.answer import Answer
from runner.guest.hooks.process import Outcome
from runner.guest.spawn.command import Captured, Exit, Result
from runner.wire.agent import Hook
from runner.wire.messages import HostHook, HostHookDone
from runner.wire.mux import Mux, StreamReset

MAY_REFUSE = frozenset({"preGeneration", "preToolCall", "permissionRequest", "sessionStart", "preModelRequest"})
"""Events in which a hook on the host is waited for. In all others it observes."""

CLOSE_WITHIN = 2.0
"""Seconds that hooks which nobody waits for may still take at the session's end."""


class HostRunner(Protocol):
    """Takes a hook's payload to the host at once; the awaitable is how the hook ended there."""

    def begin(self, hook: Hook, data: bytes) -> Awaitable[HostHookDone]: ...


class OverTheWire:
    """`HostRunner` over the mux.

    Args:
        mux: the wire.
        task: makes a child of the guest of a coroutine.
    """

    def __init__(self, mux: Mux[Any], task: Callable[[Any], Any]) -> None:
        self._mux = mux
        self._task = task
        self._waiting: dict[int, asyncio.Future[HostHookDone]] = {}
        self._next = 1

    def begin(self, hook: Hook, data: bytes) -> Awaitable[HostHookDone]:
        stream = self._mux.open()
        number = self._next
        self._next += 1
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._mux.post(HostHook(number, hook.name, stream.channel))

        async def send() -> None:
            try:
                await stream.write(data)
                stream.close()
            except StreamReset:
                return  # it wants no more; how it ended is told all the same

        self._task(send())
        return future

    def done(self, message: HostHookDone) -> None:
        """The host's answer."""
        future = self._waiting.pop(message.id, None)
        if future and not future.done():
            future.set_result(message)


class HostHooks:
    """The session's hooks on the host, as the chain asks them."""

    def __init__(self, runner: HostRunner) -> None:
        self._runner = runner
        self._background: set[asyncio.Task[None]] = set()

    async def ask(self, hook: Hook, payload: Mapping[str, Any]) -> Outcome:
        """Asks and waits."""
        try:
            done = self._runner.begin(hook, process.encode(payload))
        except ValueError as error:
            return Outcome(failure=f"cannot be asked: {error}", understood=False)
        return _outcome(hook, await done)

    def tell(self, hook: Hook, payload: Mapping[str, Any], then: Callable[[Outcome], None]) -> None:
        """Asks and does not wait; `then` is called with what it came to."""
        try:
            done = self._runner.begin(hook, process.encode(payload))
        except ValueError as error:
            then(Outcome(failure=f"cannot be asked: {error}"))
            return

        async def wait() -> None:
            then(_outcome(hook, await done))

        task = asyncio.create_task(wait())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Waits, for a bounded time, for what nobody waits for."""
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_WITHIN)
        for task in self._background:
            task.cancel()


def _outcome(hook: Hook, done: HostHookDone) -> Outcome:
    stdout = done.stdout.encode("utf-8", "surrogateescape")
    stderr = done.stderr.encode("utf-8", "surrogateescape")
    result = Result(
        Exit(code=done.code, signal=done.signal, error=done.error),
        Captured(stdout, done.size, done.size > len(stdout), len(stdout)),
        Captured(stderr, len(stderr), False, len(stderr)),
        done.timed_out,
        done.seconds,
    )
    outcome = process.read(hook, result)
    said = outcome.answer
    # What it says beyond a refusal is left aside. Its stderr too: nobody has masked what it was told.
    kept = Answer(
        refuse=said.refuse,
        end=said.end,
        ask=said.ask,
        error=said.error,
        reason=said.reason,
        response=said.response,
        notice=said.notice,
    )
    return Outcome(**{**outcome.__dict__, "answer": kept, "stderr": ""})
