"""So many lines at once; a line again after an engine's error; all ended together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from runner.errors import EngineError, SbxError
from runner.frontends.batch.lines import Line
from runner.frontends.batch.results import Result

WAITS = (1.0, 3.0, 9.0)
"""Seconds before each further attempt; the last one goes on. Together longer than an engine takes to restart."""


class Batch:
    """Runs lines.

    Args:
        lines: in the order in which they start.
        run: asks one line in a sandbox of its own and returns its result; an EngineError makes it run again.
        parallel: most lines at once.
        retries: most further attempts of one line.
        fail_fast: the first line that fails ends the others. They have no result then.
        on_start, on_result: are told as it happens; what they raise ends the batch.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        lines: Iterable[Line],
        run: Callable[[Line], Awaitable[Result]],
        *,
        parallel: int,
        retries: int = len(WAITS),
        fail_fast: bool = False,
        on_start: Callable[[Line], None] = lambda line: None,
        on_result: Callable[[Result], None] = lambda result: None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._waiting = deque(lines)
        self._run = run
        self._parallel = parallel
        self._retries = retries
        self._fail_fast = fail_fast
        self._on_start = on_start
        self._on_result = on_result
        self._sleep = sleep
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = False

    def upcoming(self) -> Iterable[Line]:
        """Lines that have not started, in their order."""
        return iter(self._waiting)

    async def work(self) -> None:
        """Until every line has its result, or the batch was stopped. A cancel ends every line that runs."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._parallel, len(self._waiting))):
                    self._workers.append(group.create_task(self._worker()))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def stop(self) -> None:
        """Ends every line that runs and starts no more."""
        self._stopping = True
        self._waiting.clear()
        for worker in self._workers:
            if worker is not asyncio.current_task():
                worker.cancel()

    async def _worker(self) -> None:
        while self._waiting:
            line = self._waiting.popleft()
            self._on_start(line)
            result = await self._result(line)
            if self._stopping:
                return
            self._on_result(result)
            if self._fail_fast and not result.ok:
                self.stop()

    async def _result(self, line: Line) -> Result:
        attempt = 0
        while True:
            attempt += 1
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))
            clock = time.monotonic()
            try:
                result = await self._run(line)
            except EngineError as error:
                if attempt <= self._retries:
                    await self._sleep(WAITS[min(attempt, len(WAITS)) - 1])
                    continue
                result = failed(line, error)
            except SbxError as error:
                result = failed(line, error)
            except Exception as error:  # a mistake of ours in one line is no reason to lose the others
                result = failed(line, SbxError(f"a mistake in sbx: {type(error).__name__}: {error}"))
            return replace(result, attempts=attempt, started=started, seconds=time.monotonic() - clock)


def failed(line: Line, error: SbxError, run: dict[str, Any] | None = None) -> Result:
    """The result of a line that an error ended.

    Args:
        run: the run's document, where there was one.
    """
    return Result(line, error.exit_code, str(error), run={"error": error.to_json()} if run is None else run)
