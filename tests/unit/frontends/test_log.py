from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.frontends.log import hook_table, log_lines, show, stats_lines
from runner.session.record import LARGE, Line, Record, load
from runner.session.state import Folders
from runner.wire.messages import Event
from tests.unit.frontends.test_render import KEYS, NAMES, VALUES
from tests.unit.frontends.test_safe import HOSTILE, OBEYED

START = {
    "version": "0.1.0",
    "sandbox": "hooks-demo",
    "image": "sbx/hooks-demo:abc",
    "agent": {"provider": "demo", "model": "scripted"},
    "network": "none",
    "workspace": "/w",
}
TURN: list[tuple[str, dict[str, Any]]] = [
    ("session.start", START),
    ("turn.start", {"turn": 1}),
    ("hook", {"event": "preGeneration", "hook": "add-context", "verdict": "context", "ms": 51.25, "reason": ""}),
    ("turn.question", {"turn": 1, "prompt": "What is in todo.txt?", "context": ["today"]}),
    ("model.answer", {"turn": 1, "round": 1, "text": "", "calls": [{}], "ms": 1000}),
    ("hook", {"event": "preToolCall", "hook": "guard", "verdict": "deny", "ms": 3, "reason": "no rm"}),
    ("tool.denied", {"id": "1", "name": "bash", "input": {}, "by": "guard", "reason": "no rm"}),
    ("tool.start", {"id": "2", "name": "bash", "input": {"command": "cat todo.txt"}}),
    ("tool.end", {"id": "2", "name": "bash", "output": "milk\n", "is_error": True, "exit": 1, "ms": 500}),
    ("model.answer", {"turn": 1, "round": 2, "text": "Milk.", "calls": [], "ms": 1000}),
    (
        "turn.end",
        {"status": "completed", "answer": "Milk.", "usage": {"total_tokens": 9}, "rounds": 2, "ms": 2600},
    ),
    ("session.end", {"status": "completed", "code": 0}),
]


def lines(events: list[tuple[str, dict[str, Any]]]) -> list[Line]:
    return [
        Line(f"2026-11-30T20:00:{number:02d}.000Z", number, name, data) for number, (name, data) in enumerate(events)
    ]


def test_a_log_reads_like_the_session_with_its_times():
    assert [line.text for line in log_lines(lines(TURN))] == [
        "20:00:00.000  session: sbx 0.1.0, sandbox hooks-demo, image sbx/hooks-demo:abc, model demo scripted, "
        "network none, workspace /w",
        "20:00:02.000  🪝 add-context [added context]",
        "20:00:03.000  › What is in todo.txt?",
        "              + today",
        "20:00:06.000  🪝 bash [denied by a hook: no rm]",
        "20:00:07.000  $ cat todo.txt",
        "20:00:08.000    milk",
        "              ✗ bash [exit 1, 500 ms]",
        "20:00:09.000  Milk.",
        "20:00:10.000  — turn completed: 2.6 s, 2 rounds, 9 tokens",
        "20:00:11.000  session completed, code 0",
    ]


def test_long_outputs_are_folded_unless_all_is_asked_for(tmp_path: Path):
    record = Record.create(Folders.of({"HOME": str(tmp_path)}))
    record.write(Event("session.start", START))
    output = "".join(f"line {number}\n" for number in range(LARGE // 8))
    record.write(Event("tool.end", {"id": "1", "name": "bash", "output": output}))
    record.close()
    folded = [line.text for line in log_lines(load(record.folder), record.folder)]
    full = [line.text for line in log_lines(load(record.folder), record.folder, full=True)]
    assert len(folded) == 1 + 20 + 1
    assert "more lines" in folded[-1]
    assert len(full) == 1 + LARGE // 8


def test_the_raw_log_is_the_records_lines_without_a_torn_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = Record.create(Folders.of({"HOME": str(tmp_path)}))
    record.write(Event("session.start", {"text": "\x1b[2J é"}))
    record.close()
    whole = record.path.read_text()
    with record.path.open("a") as file:
        file.write('{"t":"2026')
    show(record.folder, raw=True)
    assert capsys.readouterr().out == whole
    assert json.loads(whole)["data"] == {"text": "\x1b[2J é"}


def test_hooks_as_a_table():
    assert [line.text for line in hook_table(lines(TURN))] == [
        "TIME          EVENT          HOOK         VERDICT    MS  REASON",
        "20:00:02.000  preGeneration  add-context  context  51.2",
        "20:00:05.000  preToolCall    guard        deny      3.0  no rm",
    ]


def test_a_session_without_hooks_says_so():
    assert [line.text for line in hook_table(lines(TURN[:2]))] == ["no hook ran"]


def test_stats_tell_what_a_session_came_to():
    assert [line.text for line in stats_lines(lines(TURN))] == [
        "turns:   1 (1 completed)",
        "rounds:  2",
        "tokens:  9 total_tokens",
        "calls:   2 (1 failed, 1 denied)",
        "hooks:   2 (1 context, 1 deny)",
        "time:    2.6 s in turns: 2.0 s model, 0.5 s tools, 0.1 s hooks",
    ]


MORE_NAMES = NAMES | st.sampled_from(["session.start", "session.end", "turn.question"])
DATA = st.dictionaries(KEYS | st.sampled_from(["prompt", "context", "usage", "rounds", "agent", "asked"]), VALUES)


@given(st.lists(st.builds(Line, HOSTILE, st.just(1), MORE_NAMES, DATA), max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_record_crashes_the_log_or_reaches_the_terminal_raw(hostile: list[Line]):
    for line in [*log_lines(hostile), *hook_table(hostile), *stats_lines(hostile)]:
        assert not OBEYED.search(line.text)
        assert "\n" not in line.text
