"""Several hooks together: order, what each sees, where the chain ends, and what may be told of it."""

from __future__ import annotations

import asyncio
import json

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPPER = 'python3 -c \'import json,sys; d=json.load(sys.stdin); print(json.dumps({"prompt": d["prompt"].upper()}))\''
SAVE = 'cat > "$TMPDIR/seen.json"'


def answer(document: object) -> str:
    text = json.dumps(document).replace("'", "'\\''")
    return f"printf %s '{text}'"


async def test_each_hook_sees_what_the_one_before_made_of_it(bench):
    hooks = (bench.hook("preGeneration", UPPER), bench.hook("preGeneration", SAVE))
    done = await bench.chain(*hooks).pre_generation("hello")
    assert done.prompt == "HELLO"
    assert bench.seen()["prompt"] == "HELLO"


async def test_the_first_deny_ends_the_chain(bench, call):
    hooks = (bench.hook("preToolCall", "exit 2"), bench.hook("preToolCall", SAVE))
    assert (await bench.chain(*hooks).pre_tool_call(call())).denied_by == "h0-0"
    assert bench.verdicts == ["deny"]
    assert not (bench.root / "guard-tmp" / "seen.json").exists()


async def test_a_deny_after_a_rewrite_denies_and_the_second_hook_saw_the_rewrite(bench, call):
    rewrite = bench.hook("preToolCall", answer({"input": {"command": "echo"}}))
    deny = bench.hook("preToolCall", SAVE + "; echo no >&2; exit 2")
    done = await bench.chain(rewrite, deny).pre_tool_call(call(command="rm"))
    assert done.denied == "no"
    assert bench.seen()["tool"]["input"] == {"command": "echo"}
    assert bench.verdicts == ["rewrite", "deny"]


async def test_a_deny_after_a_result_denies(bench, call):
    hooks = (bench.hook("preToolCall", answer({"result": "cached"})), bench.hook("preToolCall", "exit 2"))
    done = await bench.chain(*hooks).pre_tool_call(call())
    assert done.denied is not None and done.result is None


async def test_a_deny_after_an_ask_asks_nobody(bench, call):
    hooks = (bench.hook("preToolCall", answer({"decision": "ask"})), bench.hook("preToolCall", "exit 2"))
    done = await bench.chain(*hooks).pre_tool_call(call())
    assert done.denied is not None and not done.ask


async def test_context_of_all_hooks_is_kept_in_order(bench):
    hooks = [bench.hook("preGeneration", answer({"context": text})) for text in ("one", "two")]
    assert (await bench.chain(*hooks).pre_generation("q")).context == ("one", "two")


async def test_each_run_is_one_event_with_its_time_and_call(bench, call):
    await bench.one("preToolCall", "true", name="guard").pre_tool_call(call(id="c9"))
    (event,) = bench.hook_events
    assert event["event"] == "preToolCall"
    assert event["hook"] == "guard"
    assert event["verdict"] == "continue"
    assert event["call"] == "c9"
    assert 0 < event["ms"] < 5000


async def test_without_hooks_nothing_is_started_and_nothing_told(bench, call):
    chain = bench.chain()
    assert (await chain.pre_generation("q")).prompt == "q"
    assert (await chain.pre_tool_call(call())).input == {"command": "ls"}
    assert (await chain.post_tool_call(call(), "o", False)).output == "o"
    assert bench.events == []


async def test_two_sessions_in_one_workspace_do_not_disturb_each_other(bench, call):
    guard = "sleep 0.1; jq -c '{context: .tool.id}'"
    chains = [bench.one("preToolCall", guard) for _ in range(2)]
    done = await asyncio.gather(*(c.pre_tool_call(call(id=f"c{i}")) for i, c in enumerate(chains)))
    assert [d.context for d in done] == [("c0",), ("c1",)]


class TestStoppedQuestion:
    QUESTION = "My password: hunter2 — can you store it in a file?"

    def told(self, bench) -> str:
        return json.dumps(bench.events, ensure_ascii=False)

    async def test_the_response_is_the_hooks(self, bench):
        document = {"action": "stop", "reason": "a password", "response": "🔐 It holds a password."}
        done = await bench.one("preGeneration", answer(document)).pre_generation(self.QUESTION)
        assert done.stopped is not None
        assert done.stopped.response == "🔐 It holds a password."
        assert done.prompt == ""

    @pytest.mark.parametrize(
        "command",
        [
            "cat >&2; exit 2",
            'jq -c "{action: \\"stop\\", reason: .prompt, response: .prompt}"',
            'jq -c "{action: \\"stop\\", reason: (\\"found \\" + (.prompt | split(\\" \\")[2]))}"',
        ],
    )
    async def test_its_text_reaches_no_event_even_when_the_guard_quotes_it(self, bench, command):
        done = await bench.one("preGeneration", command).pre_generation(self.QUESTION)
        assert done.stopped is not None
        assert "hunter2" not in self.told(bench)
        assert "hunter2" not in done.stopped.reason + done.stopped.response

    async def test_nor_does_the_stderr_of_a_hook_that_failed_before(self, bench):
        hooks = (bench.hook("preGeneration", "cat >&2; exit 1"), bench.hook("preGeneration", "exit 2"))
        await bench.chain(*hooks).pre_generation(self.QUESTION)
        assert bench.verdicts == ["error", "stop"]
        assert "hunter2" not in self.told(bench)

    async def test_nor_that_of_a_guard_whose_failure_stops_it(self, bench):
        done = await bench.one("preGeneration", "cat >&2; exit 1", on_error="fail").pre_generation(self.QUESTION)
        assert done.stopped is not None and done.stopped.failed
        assert "hunter2" not in self.told(bench)

    async def test_a_question_that_was_masked_is_not_told_either(self, bench):
        hooks = (
            bench.hook("preGeneration", "cat >&2; exit 1"),
            bench.hook("preGeneration", answer({"prompt": "My […]"})),
        )
        done = await bench.chain(*hooks).pre_generation(self.QUESTION)
        assert done.prompt == "My […]"
        assert "hunter2" not in self.told(bench)


async def test_an_output_that_was_masked_is_not_told_by_the_stderr_of_another_hook(bench, call):
    hooks = (bench.hook("postToolCall", "cat >&2; exit 1"), bench.hook("postToolCall", answer({"output": "***"})))
    done = await bench.chain(*hooks).post_tool_call(call(), "key sk-12345678", False)
    assert done.output == "***"
    assert "sk-12345678" not in json.dumps(bench.events)
