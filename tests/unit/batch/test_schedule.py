"""How lines run: so many at once, again after an engine's error, each with one result, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runner.errors import EngineError, ImageError, SbxError, WireError
from runner.frontends.batch.lines import Line
from runner.frontends.batch.results import Result
from runner.frontends.batch.schedule import WAITS, Batch

Run = Callable[[Line], Awaitable[Result]]


def lines(count: int) -> list[Line]:
    return [Line(n, str(n), "p") for n in range(1, count + 1)]


async def nothing(seconds: float) -> None:
    await asyncio.sleep(0)


async def ok(line: Line) -> Result:
    return Result(line, 0)


def raising(*errors: SbxError) -> Run:
    """Fails so often, then works."""
    left = list(errors)

    async def run(line: Line) -> Result:
        if left:
            raise left.pop(0)
        return Result(line, 0)

    return run


async def results(batch: Batch, found: list[Result]) -> list[Result]:
    await batch.work()
    return found


async def test_every_line_has_one_result() -> None:
    found: list[Result] = []
    await Batch(lines(50), ok, parallel=8, on_result=found.append).work()
    assert sorted(int(r.line.id) for r in found) == list(range(1, 51))


async def test_never_more_at_once_than_asked_for_and_never_fewer_than_can_be() -> None:
    running, most = 0, 0
    gate = asyncio.Semaphore(0)

    async def run(line: Line) -> Result:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            for _ in range(100):
                gate.release()
        await gate.acquire()
        running -= 1
        return Result(line, 0)

    async with asyncio.timeout(5):  # fewer than three would wait for ever
        await Batch(lines(9), run, parallel=3).work()
    assert most == 3


async def test_an_engines_error_is_tried_again_after_longer_and_longer_waits() -> None:
    waits: list[float] = []
    found: list[Result] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    run = raising(*[EngineError("gone")] * 5)
    await Batch(lines(1), run, parallel=1, retries=5, on_result=found.append, sleep=sleep).work()
    assert (found[0].code, found[0].attempts) == (0, 6)
    assert waits == [*WAITS, WAITS[-1], WAITS[-1]]


async def test_an_engine_that_stays_away_is_code_4() -> None:
    found: list[Result] = []
    run = raising(*[EngineError("gone")] * 9)
    await Batch(lines(1), run, parallel=1, retries=2, on_result=found.append, sleep=nothing).work()
    assert [(r.code, r.message, r.attempts) for r in found] == [(4, "gone", 3)]


@pytest.mark.parametrize("error", [WireError("broke"), ImageError("bad"), SbxError("no")], ids=["wire", "image", "any"])
async def test_nothing_but_an_engines_error_is_tried_again(error: SbxError) -> None:
    found: list[Result] = []
    await Batch(lines(1), raising(error), parallel=1, on_result=found.append, sleep=nothing).work()
    assert [(r.code, r.attempts) for r in found] == [(error.exit_code, 1)]


async def test_a_mistake_of_ours_in_one_line_does_not_lose_the_others() -> None:
    async def run(line: Line) -> Result:
        if line.id == "2":
            raise KeyError("oops")
        return Result(line, 0)

    found: list[Result] = []
    await Batch(lines(3), run, parallel=1, on_result=found.append).work()
    assert [r.code for r in found] == [0, 1, 0]
    assert "KeyError" in found[1].message


async def test_fail_fast_ends_what_runs_and_starts_no_more() -> None:
    ended: list[str] = []
    all_run = asyncio.Event()

    async def run(line: Line) -> Result:
        if line.id == "2":
            await all_run.wait()
            return Result(line, 1)
        try:
            if line.id == "3":
                all_run.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(line.id)
            raise
        return Result(line, 0)

    found: list[Result] = []
    async with asyncio.timeout(5):
        await Batch(lines(5), run, parallel=3, fail_fast=True, on_result=found.append).work()
    assert [r.line.id for r in found] == ["2"]
    assert sorted(ended) == ["1", "3"]


async def test_a_cancel_ends_every_line_and_waits_for_it() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def run(line: Line) -> Result:
        if line.id == "2":
            begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(line.id)
        return Result(line, 0)

    work = asyncio.create_task(Batch(lines(5), run, parallel=2).work())
    await begun.wait()
    work.cancel("SIGINT")
    with pytest.raises(asyncio.CancelledError):
        await work
    assert sorted(ended) == ["1", "2"]


async def test_what_cannot_be_written_ends_the_batch() -> None:
    def refuse(result: Result) -> None:
        raise SbxError("the disk is full")

    with pytest.raises(SbxError, match="disk is full"):
        await Batch(lines(3), ok, parallel=2, on_result=refuse).work()


async def test_upcoming_lines_are_those_that_have_not_started() -> None:
    seen: list[list[str]] = []

    async def run(line: Line) -> Result:
        seen.append([each.id for each in batch.upcoming()])
        return Result(line, 0)

    batch = Batch(lines(3), run, parallel=1)
    await batch.work()
    assert seen == [["2", "3"], ["3"], []]
