"""*Protocol* of the reference: what a hook is told, and every spelling of what it may answer."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAVE = 'cat > "$TMPDIR/seen.json"'
"""For guards, whose own folder is the one place they may write."""
SAVE_AS_OWNER = "cat > seen.json"


def answer(document: object) -> str:
    text = json.dumps(document).replace("'", "'\\''")
    return f"printf %s '{text}'"


class TestPayload:
    async def test_pre_generation_carries_the_prompt(self, bench):
        await bench.one("preGeneration", SAVE).pre_generation("a question")
        seen = bench.seen()
        assert seen["event"] == "preGeneration"
        assert seen["prompt"] == "a question"
        assert seen["cwd"] == str(bench.workspace)
        assert seen["model"] == "m1"

    async def test_pre_tool_call_carries_the_tool(self, bench, call):
        await bench.one("preToolCall", SAVE).pre_tool_call(call(command="ls -l"))
        assert bench.seen()["tool"] == {"id": "c1", "name": "bash", "input": {"command": "ls -l"}}

    async def test_post_tool_call_carries_output_and_is_error(self, bench, call):
        await bench.one("postToolCall", SAVE_AS_OWNER).post_tool_call(call(), "the output", True)
        seen = bench.seen()
        assert (seen["output"], seen["isError"], seen["tool"]["name"]) == ("the output", True, "bash")

    async def test_post_generation_carries_the_turn(self, bench):
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        await bench.one("postGeneration", SAVE_AS_OWNER).post_generation("q", "a", "went wrong", usage)
        seen = bench.seen()
        assert (seen["prompt"], seen["answer"], seen["error"], seen["usage"]) == ("q", "a", "went wrong", usage)

    async def test_stdin_is_one_object_and_then_ends(self, bench, call):
        await bench.one("preToolCall", 'wc -l > "$TMPDIR/lines"; cat >> "$TMPDIR/lines"').pre_tool_call(call())
        assert (bench.root / "guard-tmp" / "lines").read_text().strip() == "0"

    @pytest.mark.parametrize(
        "text",
        ["Ärger", "日本語", "😀 \U0010ffff", "a\x00b", "\u2028 \x1b[31m", "line\nline\r\n", '"quotes" \\', "\ufeff"],
        ids=ascii,
    )
    async def test_every_character_arrives_as_itself(self, bench, text):
        await bench.one("preGeneration", SAVE).pre_generation(text)
        assert bench.seen()["prompt"] == text

    async def test_text_is_sent_as_utf_8_so_that_grep_finds_it(self, bench):
        done = await bench.one("preGeneration", "grep -q Passwörter && exit 2 || exit 0").pre_generation("Passwörter")
        assert done.stopped is not None

    async def test_a_lone_surrogate_stays_an_escape(self, bench):
        await bench.one("preGeneration", SAVE).pre_generation("half \ud83d here")
        raw = (bench.root / "guard-tmp" / "seen.json").read_bytes()
        assert b"half \\ud83d here" in raw

    async def test_32_mib_arrive(self, bench):
        text = "x" * (32 * 1024 * 1024)
        await bench.one("preGeneration", 'wc -c > "$TMPDIR/size"').pre_generation(text)
        assert int((bench.root / "guard-tmp" / "size").read_text()) > len(text)


class TestReading:
    """A hook may treat its stdin and stdout as it likes."""

    BIG = "x" * (4 * 1024 * 1024)

    @pytest.mark.parametrize(
        "command",
        {
            "never reads": "true",
            "closes stdin": "exec 0<&-; sleep 0.05",
            "reads one byte": "head -c 1 > /dev/null",
            "reads slowly": "for i in 1 2 3; do head -c 65536 >/dev/null; sleep 0.02; done; cat > /dev/null",
            "writes before reading": "head -c 900000 /dev/zero | tr '\\0' ' '; cat > /dev/null",
            "closes stdout": "exec 1>&-; cat > /dev/null",
            "answers nothing": "cat > /dev/null",
            "answers white space": "cat > /dev/null; printf '\\n  \\n'",
            "answers null": "cat > /dev/null; echo null",
            "answers an empty object": "cat > /dev/null; echo {}",
        }.items(),
        ids=lambda item: item[0],
    )
    async def test_and_works_with_a_payload_of_many_mib(self, bench, command):
        done = await bench.one("preGeneration", command[1], on_error="fail").pre_generation(self.BIG)
        assert done.stopped is None
        assert done.prompt == self.BIG
        assert bench.verdicts == ["continue"]

    async def test_a_hook_may_change_directory(self, bench, call):
        done = await bench.one("preToolCall", 'cd /; cat > "$TMPDIR/seen.json"; exit 2').pre_tool_call(call())
        assert done.denied == "exit code 2"

    async def test_a_hook_whose_workspace_is_gone_starts_in_the_root_folder(self, bench, call):
        bench.workspace.rmdir()
        chain = bench.one("postToolCall", 'printf \'{"context":"%s"}\' "$(pwd)"', user="owner")
        assert (await chain.post_tool_call(call(), "out", False)).context == ("/",)

    async def test_a_hook_may_delete_the_workspace_and_the_next_one_still_runs(self, bench, call):
        rm = bench.hook("preToolCall", 'cd /; rm -rf "$CLAUDE_PROJECT_DIR"/*', user="owner")
        (bench.workspace / "file").write_text("x")
        done = await bench.chain(rm, bench.hook("preToolCall", "exit 2")).pre_tool_call(call())
        assert done.denied == "exit code 2"


DENIALS = {
    "action: deny": {"action": "deny", "reason": "no"},
    "action: stop": {"action": "stop", "reason": "no"},
    "decision: deny": {"decision": "deny", "reason": "no"},
    "decision: block": {"decision": "block", "reason": "no"},
    "permissionDecision: deny": {"permissionDecision": "deny", "permissionDecisionReason": "no"},
    "hookSpecificOutput.permissionDecision: deny": {
        "hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}
    },
    "continue: false": {"continue": False, "stopReason": "no"},
    "deny beside allow": {"decision": "approve", "action": "deny", "reason": "no"},
    "deny beside continue: true": {"continue": True, "decision": "block", "reason": "no"},
    "deny beside an input": {"action": "deny", "reason": "no", "input": {"command": "echo"}},
    "deny beside ask": {"permissionDecision": "ask", "decision": "deny", "reason": "no"},
    "deny beside error": {"action": "error", "decision": "deny", "reason": "no"},
}


@pytest.mark.parametrize("document", DENIALS.values(), ids=DENIALS.keys())
class TestDenials:
    async def test_before_a_call_the_call_is_denied(self, bench, call, document):
        done = await bench.one("preToolCall", answer(document), on_error="ignore").pre_tool_call(call())
        assert done.denied == "no"
        assert bench.verdicts == ["deny"]

    async def test_before_the_model_the_turn_is_stopped(self, bench, document):
        done = await bench.one("preGeneration", answer(document), on_error="ignore").pre_generation("q")
        assert done.stopped is not None and done.stopped.reason == "no"
        assert not done.stopped.failed
        assert bench.verdicts == ["stop"]


NO_OPINION = [
    {"action": "allow"},
    {"action": "continue"},
    {"decision": "approve"},
    {"decision": "allow"},
    {"permissionDecision": "allow"},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}},
    {"continue": True},
    {"decision": None},
    {"some": "unknown field", "nested": {"action": "deny"}},
]


@pytest.mark.parametrize("document", NO_OPINION, ids=json.dumps)
async def test_allow_is_no_opinion_and_the_next_guard_may_still_deny(bench, call, document):
    first = bench.hook("preToolCall", answer(document), on_error="fail")
    done = await bench.chain(first, bench.hook("preToolCall", "exit 2")).pre_tool_call(call())
    assert done.denied == "exit code 2"
    assert bench.verdicts == ["continue", "deny"]
    assert not done.ask


UNCLEAR = {
    "unknown decision": '{"decision":"maybe"}',
    "unknown action": '{"action":"DENY!"}',
    "wrong type of decision": '{"decision":1}',
    "wrong type of action": '{"action":["deny"]}',
    "wrong type of continue": '{"continue":"false"}',
    "wrong type of hookSpecificOutput": '{"hookSpecificOutput":"deny"}',
    "wrong type of input": '{"input":"ls"}',
    "wrong type of terminate": '{"terminate":"yes"}',
    "two objects": '{"action":"allow"}{"action":"deny"}',
    "two objects on two lines": '{}\n{"action":"allow"}',
    "an object and text": '{"action":"allow"} thanks',
    "a decision among text": 'checking...\n{"action":"allow"}\ndone',
    "an array": '[{"action":"deny"}]',
    "a boolean": "false",
    "a text": '"deny"',
    "the same key twice": '{"action":"deny","action":"allow"}',
    "the same key twice below": '{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecision":"allow"}}',
    "two different inputs": '{"input":{"command":"a"},"hookSpecificOutput":{"updatedInput":{"command":"b"}}}',
    "NaN in an input": '{"input":{"timeout":NaN}}',
    "an infinity in an input": '{"input":{"timeout":1e999}}',
    "half a character in an input": '{"input":{"command":"\\ud83d"}}',
    "deep nesting": '{"a":' * 100_000,
    "an input nested too deeply": '{"input":{"a":' + "[" * 80 + "]" * 80 + "}}",
}


@pytest.mark.parametrize("text", UNCLEAR.values(), ids=UNCLEAR.keys())
class TestGuardThatCannotBeUnderstood:
    async def test_denies_the_call_whatever_on_error_says(self, bench, call, text):
        file = bench.script("answer", text, 0o644)
        done = await bench.one("preToolCall", f"cat {file}", on_error="ignore").pre_tool_call(call())
        assert done.denied is not None and "cannot be understood" in done.denied
        assert bench.verdicts == ["error"]

    async def test_where_it_only_observes_it_failed(self, bench, call, text):
        if "input" in text:
            return  # no field of this event
        file = bench.script("answer", text, 0o644)
        done = await bench.one("postToolCall", f"cat {file}", on_error="warn").post_tool_call(call(), "out", False)
        assert (done.output, done.context, done.failed) == ("out", (), "")
        assert bench.verdicts == ["error"]


class TestOddJson:
    async def test_a_byte_order_mark_is_skipped(self, bench, call):
        file = bench.config / "answer"
        file.write_bytes(b'\xef\xbb\xbf{"action":"deny","reason":"bom"}')
        done = await bench.one("preToolCall", f"cat {file}").pre_tool_call(call())
        assert done.denied == "bom"

    async def test_latin_1_denies_with_what_can_be_read(self, bench, call):
        file = bench.config / "answer"
        file.write_bytes('{"action":"deny","reason":"verboten für alle"}'.encode("latin-1"))
        done = await bench.one("preToolCall", f"cat {file}").pre_tool_call(call())
        assert done.denied == "verboten f\ufffdr alle"

    async def test_latin_1_never_becomes_a_tools_input(self, bench, call):
        file = bench.config / "answer"
        file.write_bytes('{"input":{"command":"rm für"}}'.encode("latin-1"))
        done = await bench.one("preToolCall", f"cat {file}", on_error="ignore").pre_tool_call(call())
        assert done.denied is not None and "not UTF-8" in done.denied

    async def test_nan_in_a_field_that_nobody_reads_does_not_hide_a_denial(self, bench, call):
        done = await bench.one("preToolCall", 'echo \'{"score":NaN,"action":"deny","reason":"no"}\'').pre_tool_call(
            call()
        )
        assert done.denied == "no"


class TestRefusalByExitCode:
    async def test_code_2_denies_and_stderr_is_the_reason(self, bench, call):
        done = await bench.one("preToolCall", "echo not here >&2; exit 2", on_error="ignore").pre_tool_call(call())
        assert done.denied == "not here"
        assert done.denied_by == "h0"

    async def test_code_2_stops_a_question(self, bench):
        done = await bench.one("preGeneration", "echo not here >&2; exit 2", on_error="ignore").pre_generation("q")
        assert done.stopped is not None and done.stopped.reason == "not here"
        assert done.stopped.marker == "[prompt blocked by a hook: not here]"

    async def test_code_2_wins_over_an_allow_on_stdout(self, bench, call):
        command = 'echo \'{"decision":"approve"}\'; echo no >&2; exit 2'
        assert (await bench.one("preToolCall", command).pre_tool_call(call())).denied == "no"

    async def test_after_a_call_its_stderr_becomes_context(self, bench, call):
        chain = bench.one("postToolCall", "echo run the formatter >&2; exit 2")
        done = await chain.post_tool_call(call(), "out", False)
        assert done.context == ("run the formatter",)
        assert done.output == "out"


class TestReplacing:
    @pytest.mark.parametrize(
        "document",
        [
            {"input": {"command": "echo safe"}},
            {"hookSpecificOutput": {"updatedInput": {"command": "echo safe"}}},
            {"hookSpecificOutput": {"tool_input": {"command": "echo safe"}}},
            {"input": {"command": "echo safe"}, "hookSpecificOutput": {"updatedInput": {"command": "echo safe"}}},
        ],
        ids=json.dumps,
    )
    async def test_an_input_is_replaced_as_a_whole(self, bench, call, document):
        asked = call(command="rm x", timeout=5)
        done = await bench.one("preToolCall", answer(document)).pre_tool_call(asked)
        assert done.input == {"command": "echo safe"}
        assert asked.input == {"command": "rm x", "timeout": 5}
        assert bench.verdicts == ["rewrite"]

    async def test_a_question_is_replaced(self, bench):
        done = await bench.one("preGeneration", answer({"prompt": "better"})).pre_generation("worse")
        assert done.prompt == "better"

    async def test_an_output_and_its_error_flag_are_replaced(self, bench, call):
        chain = bench.one("postToolCall", answer({"output": "masked", "isError": True}))
        done = await chain.post_tool_call(call(), "secret", False)
        assert (done.output, done.is_error, done.rewritten) == ("masked", True, True)

    @pytest.mark.parametrize(
        "document", [{"context": "c"}, {"hookSpecificOutput": {"additionalContext": "c"}}], ids=json.dumps
    )
    async def test_context_is_added(self, bench, call, document):
        assert (await bench.one("preGeneration", answer(document)).pre_generation("q")).context == ("c",)
        assert (await bench.one("preToolCall", answer(document)).pre_tool_call(call())).context == ("c",)
        assert (await bench.one("postToolCall", answer(document)).post_tool_call(call(), "o", False)).context == ("c",)


async def test_ask_means_a_person_must_consent(bench, call):
    for document in ({"permissionDecision": "ask"}, {"hookSpecificOutput": {"permissionDecision": "ask"}}):
        done = await bench.one("preToolCall", answer(document)).pre_tool_call(call())
        assert done.ask and done.denied is None
        assert bench.verdicts[-1] == "ask"


async def test_a_question_that_a_hook_wants_to_ask_about_is_stopped_since_nobody_is_asked_there(bench):
    done = await bench.one("preGeneration", answer({"permissionDecision": "ask"})).pre_generation("q")
    assert done.stopped is not None


async def test_a_result_answers_in_the_tools_place(bench, call):
    done = await bench.one("preToolCall", answer({"result": "from the cache"})).pre_tool_call(call())
    assert (done.result, done.result_is_error, done.answered_by) == ("from the cache", False, "h0")
    assert bench.verdicts == ["result"]


async def test_terminate_ends_the_turn_after_this_batch(bench, call):
    assert (await bench.one("preToolCall", answer({"terminate": True})).pre_tool_call(call())).terminate
    assert (await bench.one("postToolCall", answer({"terminate": True})).post_tool_call(call(), "o", False)).terminate
