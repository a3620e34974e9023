"""`structuredOutput`: the answer fits the schema, or the turn fails."""

from __future__ import annotations

import json

import pytest

from runner.errors import ConfigError
from runner.kits.answer_schema import Schema
from runner.scripted import Reply
from tests.conformance.loop.conftest import Make, bash, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1}, "name": {"type": "string", "pattern": "^[a-z]+$"}},
    "required": ["count"],
    "additionalProperties": False,
}


async def test_a_valid_answer_passes_at_once(make: Make) -> None:
    bench = await make(schema=SCHEMA)
    done = await bench.turn("how many?", say('{"count": 3}'))
    assert (done.status, done.answer) == ("completed", '{"count": 3}')
    assert len(bench.chats) == 1


async def test_a_fence_around_the_answer_is_taken_off(make: Make) -> None:
    bench = await make(schema=SCHEMA)
    done = await bench.turn("how many?", say('```json\n{"count": 3}\n```'))
    assert json.loads(done.answer) == {"count": 3}


async def test_a_wrong_answer_is_asked_for_again_with_what_is_wrong(make: Make) -> None:
    bench = await make(schema=SCHEMA)
    done = await bench.turn("how many?", say("three"), say('{"count": 0}'), say('{"count": 3}'))
    assert (done.status, done.answer) == ("completed", '{"count": 3}')
    told = [chat.messages[-1]["content"] for chat in bench.chats[1:]]
    assert "it is not JSON" in told[0]
    assert "$.count: 0 is less than the minimum of 1" in told[1]
    assert bench.resumed() == bench.messages


async def test_the_third_wrong_answer_fails_the_turn(make: Make) -> None:
    bench = await make(schema=SCHEMA)
    done = await bench.turn("how many?", say("three"))
    assert (done.status, done.reason) == ("failed", "structured-output")
    assert len(bench.chats) == 3
    bench.valid()


async def test_the_server_is_held_to_the_schema_only_when_no_tool_is_wanted(make: Make) -> None:
    bench = await make(schema=SCHEMA)
    await bench.turn("how many?", say("", bash("ls")), say("three"), say('{"count": 3}'))
    first, second, third = (chat.json for chat in bench.chats)
    assert "response_format" not in first and "response_format" not in second
    assert "tools" in second and "tools" not in third
    assert third["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_a_server_that_does_not_know_the_key_is_asked_without(make: Make) -> None:
    bench = await make(schema=SCHEMA, tools=())
    refused = Reply(400, {"error": {"message": "unknown field `response_format`"}})
    done = await bench.turn("how many?", refused, say('{"count": 3}'))
    assert done.answer == '{"count": 3}'
    assert "response_format" not in bench.chats[-1].json


async def test_an_answer_of_a_hooks_is_held_against_the_schema_too(make: Make) -> None:
    bench = await make(("preGeneration", "echo no >&2; exit 2"), schema=SCHEMA)
    done = await bench.turn("how many?", say("x"))
    assert (done.status, done.reason) == ("failed", "structured-output")


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("", "empty"),
        ('{"count": NaN}', "NaN"),
        ('{"count": 1, "more": 1}', "more"),
        ('{"count": 1} and more', "not JSON"),
        ('{"count": 1, "name": "X"}', "does not match"),
        ("[" * 100_000, "not JSON"),
    ],
)
async def test_what_is_wrong_is_said(answer: str, wrong: str) -> None:
    text, said = Schema(SCHEMA).check(answer)
    assert text == ""
    assert wrong in said


async def test_a_reference_out_of_the_schema_asks_no_network() -> None:
    assert "refers to" in Schema({"$ref": "http://127.0.0.1:9/schema.json"}).check("1")[1]


async def test_what_is_no_schema_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="no JSON schema"):
        Schema({"type": "nothing"})
