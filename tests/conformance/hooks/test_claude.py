"""`dialect: claude`: a guard written to Claude Code's documented input and answers, and to nothing of ours."""

from __future__ import annotations

import json

import pytest

from runner.guest.hooks import ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAVE = 'cat > "$TMPDIR/seen.json"'

GUARD = """#!/usr/bin/env python3
import json, sys
asked = json.load(sys.stdin)
if asked["hook_event_name"] != "PreToolUse" or asked["tool_name"] != "Bash":
    sys.exit(0)
if "rm -rf" in asked["tool_input"]["command"]:
    print("destructive", file=sys.stderr)
    sys.exit(2)
if asked["tool_input"]["command"].startswith("curl"):
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask",
                                             "permissionDecisionReason": "network"}}))
"""


@pytest.fixture
def guard(bench):
    file = bench.script("guard.py", GUARD)
    return bench.one("preToolCall", str(file), dialect="claude", matcher="Bash", on_error="fail")


async def test_a_guard_that_asks_for_bash_denies_ours(guard, call):
    assert (await guard.pre_tool_call(call(command="rm -rf /"))).denied == "destructive"


async def test_it_asks_and_lets_pass_as_it_does_there(guard, call):
    assert (await guard.pre_tool_call(call(command="curl x"))).ask
    passed = await guard.pre_tool_call(call(command="ls"))
    assert not passed.ask and passed.denied is None


async def test_without_the_dialect_only_our_names_are_sent(bench, call):
    await bench.one("preToolCall", SAVE).pre_tool_call(call())
    assert not {"hook_event_name", "tool_name", "tool_input"} & bench.seen().keys()


async def test_pre_tool_use(bench, call):
    await bench.one("preToolCall", SAVE, dialect="claude").pre_tool_call(call(command="ls", timeout=5))
    seen = bench.seen()
    assert seen["hook_event_name"] == "PreToolUse"
    assert seen["session_id"] == "s1"
    assert seen["cwd"] == str(bench.workspace)
    assert seen["tool_name"] == "Bash"
    assert seen["tool_input"] == {"command": "ls", "timeout": 5000}  # milliseconds there, seconds here
    assert seen["tool_use_id"] == "c1"
    assert "transcript_path" in seen and "permission_mode" in seen
    assert "event" not in seen and "tool" not in seen


@pytest.mark.parametrize(
    ("name", "given", "theirs", "there"),
    [
        ("write_file", {"path": "/a", "content": "x"}, "Write", {"file_path": "/a", "content": "x"}),
        ("read_file", {"path": "/a", "offset": 1}, "Read", {"file_path": "/a", "offset": 1}),
        ("mcp__files__read", {"path": "/a"}, "mcp__files__read", {"path": "/a"}),
    ],
)
async def test_tools_and_their_keys_have_the_other_names(bench, name, given, theirs, there):
    await bench.one("preToolCall", SAVE, dialect="claude").pre_tool_call(ToolCall("c1", name, given))
    assert (bench.seen()["tool_name"], bench.seen()["tool_input"]) == (theirs, there)


async def test_an_updated_input_comes_back_in_our_names(bench):
    reply = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"file_path": "/b", "content": "y"}}}
    chain = bench.one("preToolCall", f"echo '{json.dumps(reply)}'", dialect="claude")
    done = await chain.pre_tool_call(ToolCall("c1", "write_file", {"path": "/a", "content": "x"}))
    assert done.input == {"path": "/b", "content": "y"}


async def test_user_prompt_submit(bench):
    await bench.one("preGeneration", SAVE, dialect="claude").pre_generation("a question")
    assert (bench.seen()["hook_event_name"], bench.seen()["prompt"]) == ("UserPromptSubmit", "a question")


async def test_plain_text_after_a_question_is_context_as_it_is_there(bench):
    done = await bench.one("preGeneration", "echo today is Monday", dialect="claude").pre_generation("q")
    assert done.context == ("today is Monday",)


async def test_plain_text_elsewhere_is_no_opinion(bench, call):
    done = await bench.one("preToolCall", "echo checked 3 rules", dialect="claude", on_error="fail").pre_tool_call(
        call()
    )
    assert done.denied is None
    assert bench.verdicts == ["continue"]


async def test_broken_json_is_still_a_failure(bench, call):
    done = await bench.one("preToolCall", "echo '{\"a\":'", dialect="claude", on_error="fail").pre_tool_call(call())
    assert done.denied is not None


async def test_post_tool_use_and_its_block(bench, call):
    reply = '{"decision":"block","reason":"format it"}'
    chain = bench.one("postToolCall", f"cat > seen.json; echo '{reply}'", dialect="claude")
    done = await chain.post_tool_call(call(), "out", False)
    seen = bench.seen()
    assert (seen["hook_event_name"], seen["tool_response"]["stdout"]) == ("PostToolUse", "out")
    assert (done.context, done.output) == (("format it",), "out")


async def test_their_stop_is_our_stop(bench):
    chain = bench.one("stop", 'cat > seen.json; echo \'{"decision":"block","reason":"test first"}\'', dialect="claude")
    assert (await chain.stop("done", 1)).reason == "test first"
    seen = bench.seen()
    assert (seen["hook_event_name"], seen["stop_hook_active"], seen["last_assistant_message"]) == ("Stop", True, "done")
