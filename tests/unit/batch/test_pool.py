"""Spares: each handed out once, never reused, ended with their owner, and nobody's error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import repeat
from typing import cast

import pytest

from runner.errors import EngineError
from runner.session.booted import Booted
from runner.session.pool import Pool


class Spare:
    """Stands for a guest that is up."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.alive = True
        self.ended = False

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.ended = True


class Maker:
    def __init__(self) -> None:
        self.made: list[Spare] = []
        self.fails = 0
        self.gate: asyncio.Event | None = None

    async def __call__(self, kind: str) -> Booted:
        if self.gate:
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise EngineError("no")
        spare = Spare(kind)
        self.made.append(spare)
        return cast("Booted", spare)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def endless(kind: str) -> Iterable[str]:
    return repeat(kind)


async def test_spares_are_made_before_they_are_wanted_and_replaced_when_taken() -> None:
    make = Maker()
    async with Pool(2, make, lambda: endless("a")) as pool:
        await settle()
        assert len(make.made) == 2
        taken = await pool.take("a")
        assert taken is cast("Booted", make.made[0])
        await settle()
        assert len(make.made) == 3


async def test_none_is_handed_out_twice() -> None:
    make = Maker()
    async with Pool(3, make, lambda: endless("a")) as pool:
        taken = [await pool.take("a") for _ in range(10)]
    assert len(set(map(id, taken))) == 10


async def test_what_nobody_took_is_ended_and_what_was_taken_is_its_takers() -> None:
    make = Maker()
    async with Pool(3, make, lambda: endless("a")) as pool:
        await settle()
        taken = await pool.take("a")
        await settle()
    assert [s.ended for s in make.made] == [s is not cast("Spare", taken) for s in make.made]


async def test_one_that_died_while_it_waited_is_not_handed_out() -> None:
    make = Maker()
    async with Pool(1, make, lambda: endless("a")) as pool:
        await settle()
        make.made[0].alive = False
        assert await pool.take("a") is not cast("Booted", make.made[0])
    assert make.made[0].ended


async def test_another_kind_is_never_handed_out() -> None:
    make = Maker()
    async with Pool(2, make, lambda: endless("a")) as pool:
        await settle()
        assert cast("Spare", await pool.take("b")).kind == "b"


async def test_no_more_is_made_than_will_be_wanted() -> None:
    make = Maker()
    left = ["a", "b"]
    async with Pool(8, make, lambda: left) as pool:
        await settle()
        assert sorted(s.kind for s in make.made) == ["a", "b"]
        left.remove("a")
        await pool.take("a")
        await settle()
    assert len(make.made) == 2


async def test_a_spare_that_failed_is_nobodys_error() -> None:
    make = Maker()
    make.fails = 1
    async with Pool(1, make, lambda: ["a"]) as pool:
        await settle()
        assert cast("Spare", await pool.take("a")).kind == "a"


async def test_who_wants_one_that_cannot_be_made_gets_the_error() -> None:
    make = Maker()
    make.fails = 10
    async with Pool(1, make, lambda: ["a"]) as pool:
        with pytest.raises(EngineError):
            await pool.take("a")


async def test_one_that_is_being_made_is_waited_for() -> None:
    make = Maker()
    make.gate = asyncio.Event()
    left = ["a"]
    async with Pool(1, make, lambda: left) as pool:
        await settle()
        left.clear()
        taking = asyncio.create_task(pool.take("a"))
        await settle()
        make.gate.set()
        assert await taking is cast("Booted", make.made[0])
        assert len(make.made) == 1


async def test_a_taker_that_is_cancelled_leaves_nothing_behind() -> None:
    make = Maker()
    make.gate = asyncio.Event()
    async with Pool(1, make, lambda: ["a"]) as pool:
        taking = asyncio.create_task(pool.take("a"))
        await settle()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        make.gate.set()
    assert all(s.ended for s in make.made)


async def test_without_a_size_each_is_made_when_it_is_wanted() -> None:
    make = Maker()
    async with Pool(0, make, lambda: endless("a")) as pool:
        await settle()
        assert make.made == []
        await pool.take("a")
        assert len(make.made) == 1
