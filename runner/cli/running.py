"""Runs asynchronous work from the command line, so that signals end it in good order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from runner.errors import Interrupted

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result], *, interrupts: bool = True) -> Result:
    """Runs `work` to its end. SIGTERM, and with `interrupts` SIGINT, cancels it; its clean-up is waited for.

    Raises:
        Interrupted: a signal ended it.
    """

    async def guarded() -> Result:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        caught: list[signal.Signals] = []

        def end(number: signal.Signals) -> None:
            caught.append(number)
            task.cancel(number.name)  # so that whoever cleans up can say why

        for number in (signal.SIGTERM, *((signal.SIGINT,) if interrupts else ())):
            loop.add_signal_handler(number, end, number)
        try:
            return await task
        except asyncio.CancelledError:
            if caught:
                raise Interrupted(caught[0]) from None
            raise

    return asyncio.run(guarded())
