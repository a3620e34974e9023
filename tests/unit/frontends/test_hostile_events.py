"""Events of any shape: a guest may say whatever it likes, and the terminal obeys none of it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from runner import frontends
from runner.frontends.document import Document, dumps
from runner.frontends.log import hook_table, log_lines, stats_lines
from runner.frontends.render import Renderer
from runner.session.record import Line
from runner.wire.messages import Event

SOURCE = "".join((Path(frontends.__file__).parent / name).read_text() for name in ("render.py", "document.py"))
NAMES = sorted({*re.findall(r'"([a-z]+\.[a-z]+)"', SOURCE), "hook", "notice", "network"})
"""Every event that a front end knows."""
KEYS = sorted(set(re.findall(r"""["']([a-z_]{2,14})["']""", SOURCE)))
OBEYED = re.compile("[\x00-\x08\n\x0b-\x1f\x7f-\x9f\u202e\ud800]")
DEEP = json.loads("[" * 900 + "]" * 900)
NUMBERS: tuple[Any, ...] = (-1, 10**400, float("nan"), float("inf"), 1e308)
TEXTS = ("", "x\x1b[31mred\r\n\u202e\ud800", "completed", "denied", "failed", "error", "fail", "rewrite")
OTHERS: tuple[Any, ...] = (None, True, [], {}, [None, 1, "\x1b[2J", {}], {"url": [1]}, {"command": "\x1b[2J"}, DEEP)
VALUES = (*NUMBERS, *TEXTS, *OTHERS, {"\x1b[2J": float("nan")})


def test_no_event_breaks_a_front_end_or_reaches_the_terminal_as_an_escape() -> None:
    chance = random.Random(5)
    renderer, document = Renderer(), Document()
    for _ in range(6000):
        given = {key: chance.choice(VALUES) for key in chance.sample(KEYS, 12)}
        event = Event(chance.choice(NAMES), given)
        for line in renderer.lines(event):
            assert not OBEYED.search(line.text), (event.name, line.text)
        document.event(event)
    assert json.loads(dumps(document.to_json(), indent=2))["version"] == 1


def test_a_record_of_such_events_can_still_be_shown() -> None:
    chance = random.Random(7)
    lines = [
        Line("2026-11-30T20:00:00.000Z", n, chance.choice(NAMES), {k: chance.choice(VALUES) for k in ("ms", "usage")})
        for n in range(3000)
    ]
    for line in (*log_lines(lines), *stats_lines(lines), *hook_table(lines)):
        assert not OBEYED.search(line.text), line.text


def test_what_is_nested_too_deeply_is_cut_and_the_rest_stays() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    for indent in (None, 2):
        written = dumps({"a": 1, "b": float("nan"), "c": deep}, indent=indent)
        assert "[nested too deeply]" in written
        assert json.loads(written)["a"] == 1


def test_a_context_event_says_no_escape() -> None:
    bad = "\x1b]0;owned\x07"
    for name in ("context.loaded", "context.pruned", "context.compacting", "context.compacted"):
        given = dict.fromkeys(("file", "tokens", "outputs", "why", "messages", "before", "after", "cut"), bad)
        [line] = Renderer().lines(Event(name, given))
        assert "\x1b" not in line.text
        assert "\x07" not in line.text
