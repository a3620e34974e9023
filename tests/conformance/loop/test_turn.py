"""A turn: its order, its bounds, and the history that it leaves whatever happened."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from runner.guest.tools.base import ToolResult
from runner.scripted import Reply, Say
from tests.conformance.loop.conftest import Make, bash, check, say

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Slow:
    """A tool that waits until it is let go, and counts how many ran at once."""

    name = "slow"
    description = "for tests"
    parameters: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}  # noqa: RUF012
    changing = False

    def __init__(self, expect: int = 1) -> None:
        self.expect = expect
        self.running = self.most = 0
        self.began = asyncio.Event()
        self.all_there = asyncio.Event()
        self.order: list[int] = []

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.set()
        self.order.append(arguments.get("n", 0))
        if self.running >= self.expect:
            self.all_there.set()
        try:
            await asyncio.wait_for(self.all_there.wait(), 10)
        finally:
            self.running -= 1
        return ToolResult(f"done {arguments.get('n')}")


async def test_the_order_of_a_turn_is_that_of_its_description(make: Make) -> None:
    bench = await make(
        ("preGeneration", "true"), ("preToolCall", "true"), ("postToolCall", "true"), ("postGeneration", "true")
    )
    done = await bench.turn("question", say("", bash("echo hello")), say("the answer"))
    assert (done.status, done.answer) == ("completed", "the answer")
    shown = [n if n != "hook" else d["event"] for n, d in bench.events if n != "model.delta"]
    assert shown == [
        "turn.start",
        "preGeneration",
        "turn.question",
        "model.request",
        "model.answer",
        "preToolCall",
        "tool.start",
        "postToolCall",
        "tool.end",
        "model.request",
        "model.answer",
        "postGeneration",
        "turn.end",
    ]
    assert bench.outputs() == ["hello"]


async def test_calls_of_one_round_run_one_after_the_other(make: Make) -> None:
    slow = Slow()
    bench = await make(tools=[slow])
    await bench.turn("q", say("", ("slow", {"n": 1}), ("slow", {"n": 2}), ("slow", {"n": 3})), say("ok"))
    assert slow.most == 1
    assert slow.order == [1, 2, 3]


async def test_parallel_tools_run_together_and_answer_in_order(make: Make) -> None:
    slow = Slow(expect=3)
    bench = await make(("preToolCall", "true"), ("postToolCall", "true"), tools=[slow], parallel_tools=True)
    await bench.turn("q", say("", ("slow", {"n": 1}), ("slow", {"n": 2}), ("slow", {"n": 3})), say("ok"))
    assert slow.most == 3
    assert bench.outputs() == ["done 1", "done 2", "done 3"]
    stages = [n if n != "hook" else d["event"] for n, d in bench.events if n in ("hook", "tool.start", "tool.end")]
    assert stages[:6] == ["preToolCall"] * 3 + ["tool.start"] * 3
    bench.valid()


async def test_a_tool_that_breaks_is_an_error_that_the_model_reads(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Slow):
        async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
            raise ZeroDivisionError("oh")

    bench = await make(tools=[Broken()])
    done = await bench.turn("q", say("", ("slow", {})), say("I see"))
    assert done.status == "completed"
    assert bench.outputs() == ["the tool slow failed: ZeroDivisionError: oh"]
    assert "ZeroDivisionError" in capsys.readouterr().err


# ---- the loop breaker


async def test_the_third_same_call_with_the_same_result_is_told_to_the_model(make: Make) -> None:
    bench = await make()
    same = say("", bash("echo same"))
    done = await bench.turn("q", same, same, same, say("stopped it"))
    assert done.status == "completed"
    first, second, third = bench.outputs()
    assert first == second == "same"
    assert third.startswith("same\n\n[notice: the same call with the same result, 3 times")


async def test_the_fifth_ends_the_turn(make: Make) -> None:
    bench = await make()
    done = await bench.turn("q", say("", bash("echo same")))
    assert (done.status, done.reason) == ("failed", "loop")
    assert len(bench.chats) == 5
    bench.valid()


async def test_the_same_call_with_another_result_is_no_loop(make: Make) -> None:
    bench = await make()
    call = say("", bash("echo x >> log; wc -l < log"))
    done = await bench.turn("q", call, call, call, call, call, call, say("six"))
    assert done.status == "completed"
    assert bench.outputs() == ["1", "2", "3", "4", "5", "6"]


async def test_two_calls_in_turns_are_no_loop(make: Make) -> None:
    bench = await make()
    a, b = say("", bash("echo a")), say("", bash("echo b"))
    assert (await bench.turn("q", a, b, a, b, a, b, a, b, a, b, say("ok"))).status == "completed"


# ---- limits


async def test_max_turns_ends_the_turn_with_a_valid_history(make: Make) -> None:
    bench = await make(max_turns=3)
    answers = [say("", bash(f"echo {n}")) for n in range(9)]
    done = await bench.turn("q", *answers)
    assert (done.status, done.reason) == ("failed", "max-turns")
    assert "3 rounds" in done.error
    assert len(bench.chats) == 3
    bench.valid()


async def test_max_tool_calls_stops_before_the_call_that_is_too_many(make: Make) -> None:
    bench = await make(max_tool_calls=2)
    done = await bench.turn("q", say("", bash("touch a"), bash("touch b"), bash("touch c")))
    assert (done.status, done.reason) == ("failed", "max-tool-calls")
    assert sorted(path.name for path in bench.workspace.iterdir()) == ["a", "b"]
    bench.valid()


async def test_max_tokens_counts_every_round_of_the_turn(make: Make) -> None:
    usage = {"prompt_tokens": 60, "completion_tokens": 0, "total_tokens": 60}
    bench = await make(max_tokens=100)
    done = await bench.turn("q", say("", bash("echo 1"), usage=usage), say("", bash("echo 2"), usage=usage), say("no"))
    assert (done.status, done.reason) == ("failed", "max-tokens")
    assert len(bench.chats) == 2


async def test_leaked_routing_text_gets_two_new_tries(make: Make) -> None:
    leak = say("", bash("ls to=functions.bash commentary"))
    bench = await make()
    done = await bench.turn("q", leak, leak, say("", bash("ls")), say("ok"))
    assert done.status == "completed"
    assert len([o for o in bench.outputs() if "routing text" in o]) == 2
    done = await bench.turn("q", leak)
    assert (done.status, done.reason) == ("failed", "leak")
    bench.valid()


async def test_stop_hooks_push_a_turn_on_at_most_eight_times(make: Make) -> None:
    bench = await make(("stop", 'echo \'{"decision": "block", "reason": "more"}\''))
    done = await bench.turn("q", say("an answer"))
    assert done.status == "completed"
    assert len(bench.of("turn.pushed")) == 8
    assert len(bench.chats) == 9
    assert bench.resumed() == bench.messages


# ---- steering and cancelling


async def test_a_line_typed_while_a_tool_runs_reaches_the_model_after_the_batch(make: Make) -> None:
    slow = Slow(expect=99)
    bench = await make(tools=[slow])
    task = asyncio.create_task(bench.turn("q", say("", ("slow", {"n": 1})), say("as you like")))
    await slow.began.wait()
    bench.loop.steer("use tabs")
    slow.all_there.set()
    done = await task
    assert done.answer == "as you like"
    roles = [(m["role"], m["content"]) for m in bench.chats[1].messages[-2:]]
    assert roles == [("tool", "done 1"), ("user", "use tabs")]
    assert [d["prompt"] for d in bench.of("turn.question")] == ["q", "use tabs"]
    assert bench.resumed() == bench.messages


async def test_a_typed_line_that_a_hook_stops_reaches_nobody(make: Make) -> None:
    slow = Slow(expect=99)
    bench = await make(("preGeneration", "grep -q hunter2 && exit 2; exit 0"), tools=[slow])
    task = asyncio.create_task(bench.turn("q", say("", ("slow", {"n": 1})), say("ok")))
    await slow.began.wait()
    bench.loop.steer("the password is hunter2")
    slow.all_there.set()
    assert (await task).status == "completed"
    assert not any(b"hunter2" in chat.body for chat in bench.chats)
    assert "hunter2" not in json.dumps(bench.events)
    assert bench.resumed() == bench.messages


async def test_a_cancel_in_mid_tool_ends_it_and_leaves_a_valid_history(make: Make) -> None:
    bench = await make()
    task = asyncio.create_task(
        bench.turn("q", say("", bash("touch began; sleep 60; touch ended"), bash("touch second")), say("never"))
    )
    while not (bench.workspace / "began").exists():
        await asyncio.sleep(0.01)
    started = time.monotonic()
    task.cancel()
    done = await task
    assert done.status == "cancelled"
    assert time.monotonic() - started < 3
    assert [path.name for path in bench.workspace.iterdir()] == ["began"]
    assert bench.outputs() == ["[cancelled by the user before it finished]"] * 2
    bench.valid()
    assert (await bench.turn("and now?", say("I go on"))).answer == "I go on"
    check(bench.chats[-1].messages[1:])


async def test_a_cancel_in_mid_answer_keeps_what_was_shown_and_closes_the_connection(make: Make) -> None:
    bench = await make()
    task = asyncio.create_task(bench.turn("q", say("word " * 200, piece=5, delay=0.02)))
    while "model.delta" not in bench.names:
        await asyncio.sleep(0.01)
    task.cancel()
    done = await task
    assert done.status == "cancelled"
    assert done.answer.startswith("word ")
    assert bench.chats[0].gone.wait(2)
    assert bench.messages[-1]["content"] == done.answer
    assert bench.resumed() == bench.messages


async def test_a_cancel_while_the_last_hooks_run_still_ends_the_turn_in_good_order(make: Make) -> None:
    bench = await make(("postGeneration", "touch began; sleep 60"), ("postGeneration", "touch never"))
    task = asyncio.create_task(bench.turn("q", say("the answer")))
    while not (bench.workspace / "began").exists():
        await asyncio.sleep(0.01)
    started = time.monotonic()
    task.cancel()
    done = await task
    assert time.monotonic() - started < 3
    assert (done.status, done.answer) == ("completed", "the answer")
    assert bench.names[-1] == "turn.end"
    assert bench.notices == ["the postGeneration hooks were ended by a cancel"]


async def test_a_cancelled_turns_last_hooks_are_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.guest.loop.POST_HOOKS_WITHIN", 0.5)
    bench = await make(("postGeneration", "sleep 60"))
    task = asyncio.create_task(bench.turn("q", say("word " * 200, piece=5, delay=0.02)))
    while "model.delta" not in bench.names:
        await asyncio.sleep(0.01)
    task.cancel()
    done = await asyncio.wait_for(task, 8)
    assert done.status == "cancelled"
    assert bench.notices == ["the postGeneration hooks took over 0.5 s and were ended"]
    assert bench.names[-1] == "turn.end"


async def test_every_kind_of_end_leaves_the_history_that_a_resume_reads(make: Make) -> None:
    bench = await make(
        ("preGeneration", "grep -q secret && { echo a secret >&2; exit 2; }; exit 0"),
        ("preToolCall", "grep -q forbidden && { echo not that >&2; exit 2; }; exit 0"),
        max_turns=2,
    )
    await bench.turn("one", say("", bash("echo 1")), say("first"))
    await bench.turn("a secret", say("never asked"))
    await bench.turn("two", say("thinking", bash("echo forbidden"), bash("echo fine")), say("second"))
    await bench.turn("three", say("", ("no_such_tool", {})), say("third"))
    await bench.turn("four", say("", bash("echo a")), say("", bash("echo b")))
    await bench.turn("five", Reply(500, {"error": "broken"}))
    await bench.turn("six", Say("cut in the mid", cut=True, piece=4))
    bench.valid()
    assert bench.resumed() == bench.messages


# ---- a server that goes away


async def test_a_server_that_was_gone_for_one_question_is_asked_by_the_next(make: Make) -> None:
    bench = await make()
    done = await bench.turn("one", say("half an answer", cut=True, piece=4))
    assert done.status == "failed"
    assert "half" in done.answer
    assert (await bench.turn("two", say("here again"))).answer == "here again"
    bench.valid()


async def test_a_call_that_changes_something_begins_only_when_the_record_has_it(make: Make) -> None:
    """Else a host that is killed in between would have a resumed model make the call again."""
    bench = await make()
    seen: list[tuple[str, bool]] = []

    async def recorded() -> None:
        await asyncio.sleep(0.1)
        seen.append((bench.names[-1], (bench.workspace / "made").exists()))

    bench.loop._recorded = recorded
    await bench.turn("q", say("", bash("touch made")), say("", ("plan", {"steps": []})), say("ok"))
    assert seen == [("tool.start", False)]
    assert (bench.workspace / "made").exists()
