from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.session.record import Line, Record, load
from runner.session.resume import NO_ANSWER, NOT_RUN, UNKNOWN_RESULT, replay
from runner.session.state import Folders
from runner.wire.messages import Event


def lines(*events: tuple[str, dict[str, Any]]) -> list[Line]:
    return [Line("", number, name, data) for number, (name, data) in enumerate(events, 1)]


def question(text: str, context: list[str] | None = None) -> tuple[str, dict[str, Any]]:
    return "turn.question", {"turn": 1, "prompt": text, "context": context or []}


def answer(text: str, *calls: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    made = [{"id": id, "name": "bash", "arguments": {"command": command}} for id, command in calls]
    return "model.answer", {"text": text, "calls": made}


def end(status: str = "completed", error: str = "") -> tuple[str, dict[str, Any]]:
    return "turn.end", {"status": status, "error": error}


def call(id: str, command: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": id, "type": "function", "function": function}


def test_a_turn_with_a_tool_call_comes_back_as_the_server_saw_it():
    history = replay(
        lines(
            ("session.start", {}),
            question("Which files?", ["today is Monday"]),
            answer("I look.", ("1", "ls")),
            ("tool.start", {"id": "1"}),
            ("tool.end", {"id": "1", "output": "notes.md"}),
            answer("notes.md"),
            end(),
        )
    )
    assert history == [
        {"role": "user", "content": "Which files?\n\n[context added by a hook]\ntoday is Monday"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("1", "ls")]},
        {"role": "tool", "tool_call_id": "1", "content": "notes.md"},
        {"role": "assistant", "content": "notes.md"},
    ]


def test_a_stopped_question_keeps_only_its_marker_and_the_response():
    history = replay(
        lines(
            ("turn.start", {"turn": 1}),
            ("turn.blocked", {"reason": "a password", "response": "🔐 no"}),
            ("turn.end", {"status": "stopped", "answer": "🔐 no"}),
        )
    )
    assert history == [
        {"role": "user", "content": "[prompt blocked by a hook: a password]"},
        {"role": "assistant", "content": "🔐 no"},
    ]


def test_a_denied_call_has_its_marker_as_its_result():
    denied = ("tool.denied", {"id": "1", "by": "bash-guard", "reason": "rm -r"})
    history = replay(lines(question("q"), answer("", ("1", "rm -r x")), denied, answer("no"), end()))
    assert history[2] == {"role": "tool", "tool_call_id": "1", "content": "[denied by a hook: rm -r]"}


def test_a_host_killed_in_mid_tool_tells_the_model_that_the_effect_is_unknown():
    history = replay(lines(question("q"), answer("", ("1", "a"), ("2", "b")), ("tool.start", {"id": "1"})))
    assert history[2:] == [
        {"role": "tool", "tool_call_id": "1", "content": UNKNOWN_RESULT},
        {"role": "tool", "tool_call_id": "2", "content": NOT_RUN},
        {"role": "assistant", "content": NO_ANSWER},
    ]


def test_a_cancelled_turn_ends_with_an_answer_so_that_questions_never_follow_each_other():
    history = replay(lines(question("one"), end("cancelled"), question("two"), answer("2"), end()))
    assert [each["role"] for each in history] == ["user", "assistant", "user", "assistant"]
    assert history[1]["content"] == "[cancelled by the user before it finished]"


def test_a_steering_line_comes_after_the_results_of_the_batch():
    history = replay(
        lines(
            question("q"),
            answer("", ("1", "a"), ("2", "b")),
            ("tool.start", {"id": "1"}),
            ("tool.end", {"id": "1", "output": "A"}),
            ("tool.end", {"id": "2", "output": "B"}),
            question("hurry"),
            answer("done"),
            end(),
        )
    )
    assert [each["role"] for each in history] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert history[4]["content"] == "hurry"


def test_a_steering_line_that_a_hook_stopped_leaves_nothing():
    blocked = ("turn.blocked", {"reason": "a password", "response": "no"})
    history = replay(lines(("turn.start", {}), question("q"), blocked, answer("done"), end()))
    assert [each["content"] for each in history] == ["q", "done"]


def test_two_questions_of_two_turns_are_never_one():
    history = replay(lines(("turn.start", {}), question("a"), ("turn.start", {}), question("b"), answer("c"), end()))
    assert [each["content"] for each in history] == ["a", NO_ANSWER, "b", "c"]


def test_arguments_stay_as_the_model_wrote_them():
    raw = '{ "command":"ls" }'
    call = ("model.answer", {"text": "", "calls": [{"id": "1", "name": "bash", "arguments": raw}]})
    history = replay(lines(question("q"), call))
    assert history[1]["tool_calls"][0]["function"]["arguments"] == raw


def test_ids_that_a_model_uses_again_are_matched_within_their_round():
    round_ = [answer("", ("0", "a")), ("tool.start", {"id": "0"}), ("tool.end", {"id": "0", "output": "x"})]
    history = replay(lines(question("q"), *round_, *round_, answer("done"), end()))
    assert [each["role"] for each in history] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_arguments_that_are_not_an_object_become_an_empty_one():
    odd = ("model.answer", {"text": "", "calls": [{"id": "1", "name": "bash", "arguments": None}]})
    history = replay(lines(question("q"), odd))
    assert history[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_new_starts_over():
    history = replay(lines(question("old"), answer("a"), end(), ("session.new", {}), question("new"), answer("b")))
    assert [each["content"] for each in history] == ["new", "b"]


EVENT = st.one_of(
    st.builds(question, st.sampled_from(["a", "b"])),
    st.builds(lambda ids: answer("", *((i, "c") for i in ids)), st.lists(st.sampled_from("123"), max_size=3)),
    st.just(answer("text")),
    st.builds(lambda i: ("tool.start", {"id": i}), st.sampled_from("123")),
    st.builds(lambda i: ("tool.end", {"id": i, "output": "o"}), st.sampled_from("1234")),
    st.builds(lambda i: ("tool.denied", {"id": i, "by": "h", "reason": "r"}), st.sampled_from("1234")),
    st.builds(lambda s: end(s), st.sampled_from(["completed", "failed", "cancelled"])),
    st.just(("turn.blocked", {"reason": "r", "response": "no"})),
    st.just(("turn.start", {"turn": 1})),
    st.builds(
        lambda k, a: ("context.compacted", {"summary": "s", "keep": k, "answered": a}),
        st.integers(-1, 9),
        st.booleans(),
    ),
    st.builds(lambda k: ("context.pruned", {"keep": k}), st.integers(-1, 9)),
    st.just(("turn.pushed", {"prompt": "more"})),
    st.just(("tool.note", {"id": "1", "text": " note"})),
    st.builds(lambda r: ("message.kept", {"role": r, "content": "other"}), st.sampled_from(["user", "tool", "x"])),
    st.sampled_from([("tool.end", {}), ("model.answer", {"calls": [1, {}]}), ("turn.question", {"prompt": None})]),
)


@given(st.lists(EVENT, max_size=25))
@settings(max_examples=150, deadline=None)
def test_every_record_gives_a_history_that_every_server_accepts(events: list[tuple[str, dict[str, Any]]]):
    waiting: list[str] = []
    previous = "assistant"
    for message in replay(lines(*events)):
        role = message["role"]
        assert isinstance(message["content"], str)
        if role == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, "a call has no result"
            assert role != "user" or previous != "user", "two questions in a row"
        if role == "assistant":
            waiting = [each["id"] for each in message.get("tool_calls", [])]
            assert len(set(waiting)) == len(waiting)
            assert message["content"] or waiting, "an answer says nothing"
        previous = role
    assert not waiting
    assert previous == "assistant"


@pytest.mark.parametrize("keep", [1, 2, 3, 4])
def test_compaction_never_parts_a_call_from_its_result(keep: int):
    history = replay(
        lines(
            question("q"),
            answer("", ("1", "a")),
            ("tool.end", {"id": "1", "output": "A"}),
            answer("done"),
            ("context.compacted", {"summary": "so far", "keep": keep}),
        )
    )
    roles = [each["role"] for each in history]
    assert history[0] == {"role": "user", "content": "so far"}
    assert "tool" not in roles or roles[roles.index("tool") - 1] == "assistant"


def test_a_session_resumed_twice_still_knows_its_beginning(tmp_path: Path):
    record = Record.create(Folders.of({"HOME": str(tmp_path)}))
    for number in range(3):
        if number:
            record, before = Record.reopen(record.folder)
            assert len(replay(before)) == 2 * number
        for name, data in (
            ("session.start", {}),
            ("turn.start", {}),
            question(str(number)),
            answer("a"),
            end(),
        ):
            record.write(Event(name, data))
        record.close()
    assert [each["content"] for each in replay(load(record.folder))] == ["0", "a", "1", "a", "2", "a"]
