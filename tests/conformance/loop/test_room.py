"""Room in the model's context: pruned, compacted, by itself, by hand, after an overflow; and the prefix that stays."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from runner.guest import room
from runner.scripted import Reply
from runner.wire.markers import PRUNED, SUMMARY_LABEL
from tests.conformance.loop.conftest import Make, bash, check, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

OVERFLOW = Reply(400, {"error": {"message": "the request exceeds the available context size", "code": 400}})


def common_prefix(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def usage(prompt: int, completion: int = 10) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


async def test_the_prefix_of_a_request_stays_byte_equal_between_rounds_and_turns(make: Make) -> None:
    """A server's prompt cache holds what did not change: all of the request before it but the closing brackets."""
    bench = await make()
    for number in range(4):
        await bench.turn(f"question {number}", say("a thought", bash(f"echo {number}")), say(f"answer {number}"))
    bodies = [chat.body for chat in bench.chats]
    assert len(bodies) == 8
    for before, after in itertools.pairwise(bodies):
        end = before.index(b'],"stream"')
        assert common_prefix(before, after) >= end
        assert before[end:] == after[after.index(b'],"stream"') :]


async def test_tools_go_out_in_the_same_order_whatever_the_order_of_their_names(make: Make) -> None:
    bench = await make()
    await bench.turn("q", say("", bash("echo 1")), say("ok"))
    offered = [chat.json["tools"] for chat in bench.chats]
    assert offered[0] == offered[1]
    assert [t["function"]["name"] for t in offered[0]][:2] == ["bash", "jobs"]


async def test_old_outputs_are_pruned_first_and_no_summary_is_written(make: Make) -> None:
    bench = await make(window=40_000)
    big = bash("head -c 45000 /dev/zero | tr '\\0' x; echo")
    await bench.turn("look", say("", big), say("", bash("echo small")), say("seen", usage=usage(24_000)))
    await bench.turn("next", say("done"))
    assert [d["outputs"] for d in bench.of("context.pruned")] == [1]
    assert bench.of("context.compacted") == []
    outputs = [m["content"] for m in bench.chats[-1].messages if m["role"] == "tool"]
    assert outputs == [PRUNED, "small"]
    assert bench.resumed() == bench.messages


async def test_a_full_window_is_compacted_and_the_question_stays(make: Make) -> None:
    bench = await make(window=40_000)
    for number in range(5):
        await bench.turn(f"question {number} " + "x" * 16_000, say(f"answer {number}"))
    await bench.turn("the last question " + "y" * 16_000, say("what was said: much"), say("answered"))
    (said,) = bench.of("context.compacted")
    assert said["after"] < said["before"]
    sent = bench.chats[-1].messages
    assert sent[1]["content"].startswith(f"{SUMMARY_LABEL}\nwhat was said: much")
    assert sent[-1]["role"] == "user" and sent[-1]["content"].startswith("the last question yyy")
    assert bench.messages[-1]["content"] == "answered"
    check(sent[1:])
    bench.valid()
    assert bench.resumed() == bench.messages


async def test_the_summary_is_asked_for_without_tools_and_within_the_window(make: Make) -> None:
    bench = await make(window=40_000)
    for number in range(5):
        await bench.turn(f"question {number} " + "x" * 16_000, say(f"answer {number}"))
    await bench.turn("the last question " + "y" * 16_000, say("summary"), say("answered"))
    request = bench.chats[-2].json
    assert "tools" not in request
    assert room.tokens_of(sum(len(m["content"]) for m in request["messages"])) < 40_000
    assert "question 0" in request["messages"][1]["content"]


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_cut_never_separates_a_call_from_its_result(make: Make, calls: int) -> None:
    bench = await make(window=40_000)
    given = [bash(f"head -c 9000 /dev/zero | tr '\\0' {n}") for n in range(calls)]
    answers = [say(f"round {n}", *[(name, {**g, "timeout": n + 1}) for name, g in given]) for n in range(12)]
    big = usage(30_000)
    answers[6] = say("round 6", *given, usage=big)
    await bench.turn("work", *answers[:7], say("the summary"), say("done"))
    assert bench.names.count("context.compacted") + bench.names.count("context.pruned") >= 1
    for chat in bench.chats:
        check(chat.messages[1:])
    bench.valid()
    assert bench.resumed() == bench.messages


async def test_an_overflow_compacts_once_and_asks_again(make: Make) -> None:
    bench = await make()
    await bench.turn("one", say("first"))
    done = await bench.turn("two", OVERFLOW, say("the summary"), say("second"))
    assert (done.status, done.answer) == ("completed", "second")
    assert len(bench.of("context.compacted")) == 1
    assert bench.resumed() == bench.messages


async def test_a_second_overflow_is_an_error_and_never_a_loop(make: Make) -> None:
    bench = await make()
    await bench.turn("one", say("first"))
    done = await bench.turn("two", OVERFLOW, say("the summary"), OVERFLOW)
    assert (done.status, done.reason) == ("failed", "model-overflow")
    assert len(bench.chats) == 4
    bench.valid()


async def test_a_question_that_overflows_alone_is_told_and_not_compacted(make: Make) -> None:
    bench = await make()
    done = await bench.turn("far too long", OVERFLOW, OVERFLOW)
    assert (done.status, done.reason) == ("failed", "model-overflow")
    bench.valid()


async def test_a_question_that_is_cut_away_stands_in_the_summary_word_for_word(make: Make) -> None:
    bench = await make(window=8192)
    await bench.turn(
        "the question itself", say("", bash("head -c 40000 /dev/zero | tr '\\0' x")), say("summary"), say("ok")
    )
    assert "the question itself" in bench.chats[-1].messages[1]["content"]
    bench.valid()


async def test_compacting_by_hand_makes_all_of_it_a_summary(make: Make) -> None:
    bench = await make(window=100_000)
    await bench.turn("one", say("first"))
    await bench.turn("two", say("second"))
    bench.script[:] = [say("short")]
    done = await bench.loop.compact(9)
    assert (done.turn, done.status) == (9, "completed")
    assert bench.messages[0] == {"role": "user", "content": f"{SUMMARY_LABEL}\nshort"}
    bench.valid()
    await bench.turn("three", say("third"))
    check(bench.chats[-1].messages[1:])
    assert bench.resumed() == bench.messages


async def test_there_is_nothing_to_compact_in_a_new_conversation(make: Make) -> None:
    bench = await make()
    bench.script[:] = [say("never asked")]
    done = await bench.loop.compact(1)
    assert done.reason == "nothing-to-compact"
    assert bench.chats == []


async def test_a_cancelled_or_failed_compaction_changes_nothing(make: Make) -> None:
    bench = await make()
    await bench.turn("one", say("first"))
    before = bench.messages
    bench.script[:] = [say("word " * 100, delay=0.05, piece=5)]
    task = asyncio.create_task(bench.loop.compact(2))
    while len(bench.chats) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    assert (await task).status == "cancelled"
    bench.script[:] = [Reply(500, "broken")]
    assert (await bench.loop.compact(3)).status == "failed"
    assert bench.messages == before
    assert (await bench.turn("two", say("second"))).answer == "second"


async def test_a_failed_summary_does_not_end_the_turn(make: Make) -> None:
    bench = await make(window=40_000)
    await bench.turn("one", say("first", usage=usage(35_000)))
    done = await bench.turn("two", Reply(500, "no summary today"), say("second"))
    assert done.answer == "second"
    assert any("was not compacted" in text for text in bench.notices)


@pytest.mark.parametrize(("window", "free"), [(8192, 4096), (32_768, 16_384), (100_000, 16_384), (200_000, 30_000)])
async def test_the_room_that_is_kept_free(window: int, free: int) -> None:
    assert room.reserve(window) == free
