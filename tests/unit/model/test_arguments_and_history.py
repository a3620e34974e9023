"""What a call's arguments must be, and what a request makes of a history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.guest.model.arguments import Malformed, check, decode
from runner.guest.model.history import assistant_message, to_messages, to_request, tool_message, user_message
from runner.guest.model.items import Answer, Call


@dataclass(frozen=True)
class Tool:
    name: str
    description: str = "d"
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})


@pytest.mark.parametrize("raw", ["", " ", "null", "{}"])
def test_nothing_is_an_empty_object(raw: str) -> None:
    assert decode(raw) == {}


@pytest.mark.parametrize(
    "raw", ["{", "[]", "1", "true", '"x"', "{} {}", '{"a": Infinity}', "[" * 100_000, '{"a": "\\udc00"}']
)
def test_what_is_no_object_is_malformed(raw: str) -> None:
    with pytest.raises(Malformed):
        decode(raw)


@given(st.text(max_size=50))
def test_any_text_is_an_object_or_malformed(raw: str) -> None:
    try:
        assert isinstance(decode(raw), dict)
    except Malformed as error:
        assert str(error).startswith("the arguments")


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "mode": {"enum": ["all", "first"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "list": {"type": "array", "items": {"type": "object", "required": ["x"]}},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["text"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"text": "x"}, ""),
        ({"text": "x", "either": None, "count": 9, "list": [{"x": 1}], "mode": "all"}, ""),
        ({}, "`text` is missing"),
        ({"text": ""}, "text must have at least 1 characters"),
        ({"text": None}, "text must be string, not null"),
        ({"text": "x", "mode": "some"}, 'mode must be one of "all", "first"'),
        ({"text": "x", "count": True}, "count must be integer, not boolean"),
        ({"text": "x", "count": 0}, "count must be 1 or more"),
        ({"text": "x", "count": 10}, "count must be 9 or less"),
        ({"text": "x", "list": [{"x": 1}, {}]}, "`list[1].x` is missing"),
        ({"text": "x", "either": 1}, "either must be string, not integer"),
        ({"text": "x", "y": 1}, "`y` is not an argument; there are: text, mode, count, list, either"),
    ],
)
def test_the_check_names_the_place_and_what_is_wrong(value: dict[str, object], error: str) -> None:
    assert check(SCHEMA, value) == error


@pytest.mark.parametrize(
    "schema", [{}, {"type": "unknown"}, {"properties": 3}, {"required": "x"}, {"anyOf": []}, {"$ref": "#/x"}]
)
def test_a_schema_that_is_odd_forbids_nothing(schema: dict[str, object]) -> None:
    assert check(schema, {"a": [1]}) == ""


def call(call_id: str) -> Call:
    return Call(call_id, "bash", {}, "{}")


def test_context_stands_under_its_label() -> None:
    assert (
        user_message("q", ["a", "b"])["content"] == "q\n\n[context added by a hook]\na\n\n[context added by a hook]\nb"
    )


def test_a_call_without_an_output_gets_one() -> None:
    messages = to_messages(
        [user_message("q"), assistant_message(Answer("", calls=(call("a"), call("b")))), tool_message("b", "y")]
    )
    assert [m.get("tool_call_id") for m in messages] == [None, None, "a", "b"]
    assert "did not run" in messages[2]["content"] and messages[3]["content"] == "y"


def test_questions_in_a_row_are_joined() -> None:
    assert to_messages([user_message("a"), user_message("b")]) == [{"role": "user", "content": "a\n\nb"}]


roles = st.sampled_from(["user", "answer", "calls", "output a", "output b", "output z"])


@given(st.lists(roles, max_size=12))
def test_every_history_becomes_one_that_servers_accept(kinds: list[str]) -> None:
    made = {
        "user": user_message("q"),
        "answer": assistant_message(Answer("x", reasoning="hm")),
        "calls": assistant_message(Answer("", calls=(call("a"), call("b")))),
        "output a": tool_message("a", "1"),
        "output b": tool_message("b", "2"),
        "output z": tool_message("z", "3"),
    }
    messages = to_messages([made[kind] for kind in kinds])
    owed: list[str] = []
    for before, message in zip([{}, *messages], messages, strict=False):
        if message["role"] == "tool":
            assert message["tool_call_id"] == owed.pop(0)
        else:
            assert not owed
            assert message["role"] != before.get("role") or "tool_calls" in (before | message)
        owed += [c["id"] for c in message.get("tool_calls", ())]
        assert "reasoning" not in json.dumps(message)
    assert not owed


def test_a_longer_history_begins_with_the_bytes_of_the_shorter_one() -> None:
    history = [{"role": "system", "content": "s"}, user_message("q", ["c"])]
    tools = [Tool("bash"), Tool("plan")]
    bodies = []
    for n in range(3):
        bodies.append(json.dumps(to_request(history, tools, model="m")["messages"]).removesuffix("]"))
        history += [assistant_message(Answer("", calls=(call(f"a{n}"),))), tool_message(f"a{n}", "out")]
    assert bodies[1].startswith(bodies[0]) and bodies[2].startswith(bodies[1])


def test_sampling_replaces_nothing_that_the_client_decides() -> None:
    request = to_request(
        [user_message("q")], [], model="m", sampling={"model": "x", "messages": [], "stream": False, "top_p": 1}
    )
    assert (request["model"], request["stream"], request["top_p"]) == ("m", True, 1)
    assert request["messages"] == [{"role": "user", "content": "q"}]


def test_parallel_tool_calls_is_not_sent_without_tools() -> None:
    sampling = {"parallel_tool_calls": True}
    assert "parallel_tool_calls" not in to_request([], [], model="m", sampling=sampling)
    assert to_request([], [Tool("bash")], model="m", sampling=sampling)["parallel_tool_calls"] is True
