"""*Beyond the four*: the further events."""

from __future__ import annotations

import json

import pytest

from runner.guest.hooks import MAX_PUSHES, TextFilter

pytestmark = pytest.mark.asyncio(loop_scope="module")


def answer(document: object) -> str:
    text = json.dumps(document).replace("'", "'\\''")
    return f"printf %s '{text}'"


class TestSession:
    async def test_the_start_may_add_context(self, bench):
        assert (await bench.one("sessionStart", answer({"context": "c"})).session_start()).context == ("c",)

    async def test_the_start_may_refuse_the_session(self, bench):
        done = await bench.one("sessionStart", "echo closed >&2; exit 2").session_start()
        assert done.stopped is not None and done.stopped.reason == "closed"

    async def test_the_end_is_told(self, bench):
        await bench.one("sessionEnd", "cat > seen.json").session_end("completed")
        assert bench.seen()["status"] == "completed"


class TestPermission:
    ALLOWS = (
        {"action": "allow"},
        {"decision": "approve"},
        {"hookSpecificOutput": {"decision": {"behavior": "allow"}}},
    )

    @pytest.mark.parametrize("document", ALLOWS, ids=json.dumps)
    async def test_allow_spares_the_person(self, bench, call, document):
        done = await bench.one("permissionRequest", answer(document)).permission_request(call())
        assert (done.allowed, done.by) == (True, "h0")

    async def test_any_deny_wins(self, bench, call):
        deny = {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "no"}}}
        hooks = [bench.hook("permissionRequest", answer(d)) for d in ({"action": "allow"}, deny)]
        done = await bench.chain(*hooks).permission_request(call())
        assert (done.allowed, done.reason) == (False, "no")

    async def test_no_opinion_leaves_it_to_the_person(self, bench, call):
        assert (await bench.one("permissionRequest", "true").permission_request(call())).allowed is None

    async def test_a_forced_prompt_can_be_denied_and_never_allowed(self, bench, call):
        allow = bench.one("permissionRequest", answer({"action": "allow"}))
        assert (await allow.permission_request(call(), forced=True)).allowed is None
        deny = bench.one("permissionRequest", "exit 2")
        assert (await deny.permission_request(call(), forced=True)).allowed is False

    async def test_an_allow_that_would_change_the_input_is_refused(self, bench, call):
        document = {"hookSpecificOutput": {"decision": {"behavior": "allow", "updatedInput": {"command": "x"}}}}
        assert (await bench.one("permissionRequest", answer(document)).permission_request(call())).allowed is False


class TestModelRequest:
    async def test_model_and_system_prompt_of_one_request(self, bench):
        chain = bench.one("preModelRequest", answer({"model": "small", "system": "be brief"}))
        done = await chain.pre_model_request("large", "be long", 2)
        assert (done.model, done.system) == ("small", "be brief")

    async def test_it_is_told_which_request(self, bench):
        await bench.one("preModelRequest", "cat > seen.json").pre_model_request("large", "be long", 2)
        assert bench.seen()["request"] == {"model": "large", "system": "be long", "round": 2}

    async def test_it_may_stop_the_turn(self, bench):
        done = await bench.one("preModelRequest", "exit 2").pre_model_request("m", "s", 1)
        assert done.stopped is not None and not done.stopped.failed


class TestMessage:
    MESSAGE = {"role": "tool", "tool_call_id": "c1", "content": "key sk-123"}  # noqa: RUF012

    async def test_what_is_kept_is_rewritten(self, bench):
        chain = bench.one("message", answer({"message": {**self.MESSAGE, "content": "***"}}))
        assert (await chain.message(self.MESSAGE)).message["content"] == "***"

    @pytest.mark.parametrize("change", [{"role": "user"}, {"tool_call_id": "c2"}, {"tool_calls": [{"id": "x"}]}])
    async def test_a_rewrite_that_loses_role_or_id_is_a_failure_and_the_message_stays(self, bench, change):
        done = await bench.one("message", answer({"message": {**self.MESSAGE, **change}})).message(self.MESSAGE)
        assert done.message == self.MESSAGE
        assert bench.verdicts == ["error"]


class TestStop:
    @pytest.mark.parametrize(
        "document", [{"decision": "block", "reason": "run the tests"}, {"action": "deny", "reason": "run the tests"}]
    )
    async def test_a_refusal_pushes_the_turn_on_with_its_reason(self, bench, document):
        assert (await bench.one("stop", answer(document)).stop("done", 0)).reason == "run the tests"

    async def test_exit_code_2_too(self, bench):
        assert (await bench.one("stop", "echo run the tests >&2; exit 2").stop("done", 0)).reason == "run the tests"

    async def test_it_is_told_the_answer_and_how_often_it_pushed(self, bench):
        await bench.one("stop", "cat > seen.json").stop("done", 3)
        assert (bench.seen()["answer"], bench.seen()["pushed"]) == ("done", 3)

    async def test_at_most_eight_times(self, bench):
        chain = bench.one("stop", "exit 2")
        assert [bool((await chain.stop("done", n)).reason) for n in (MAX_PUSHES - 1, MAX_PUSHES)] == [True, False]

    async def test_continue_false_ends_the_turn_whatever_another_hook_wants(self, bench):
        hooks = [bench.hook("stop", answer(d)) for d in ({"decision": "block", "reason": "x"}, {"continue": False})]
        assert (await bench.chain(*hooks).stop("done", 0)).reason == ""


class TestTextDelta:
    HOLDING = """
import json, sys
held, attempt = "", 1
for line in sys.stdin:
    asked = json.loads(line)
    if asked["attempt"] != attempt:
        held, attempt = "", asked["attempt"]
    held = (held + asked["text"]).replace("sk-", "***")
    out, held = (held, "") if asked["flush"] else (held[:-3], held[-3:])
    print(json.dumps({"text": out}), flush=True)
"""

    @pytest.fixture
    def text(self, bench):
        file = bench.script("holding.py", self.HOLDING)
        return TextFilter(bench.one("textDelta", f"exec python3 {file}", persistent=True))

    async def test_it_may_hold_back_and_is_flushed_once_at_the_end(self, bench, text):
        shown = [await text.feed(piece) for piece in ("key s", "k-12")]
        assert "".join(shown) + await text.flush() == "key ***12"

    async def test_it_starts_over_on_a_retry(self, bench, text):
        await text.feed("abcdef")
        await text.restart()
        assert await text.feed("wxyz") + await text.flush() == "wxyz"

    async def test_a_whole_answer_is_one_event(self, bench, text):
        for _ in range(50):
            await text.feed("word ")
        await text.flush()
        (event,) = bench.hook_events
        assert event["runs"] == 51

    async def test_with_fail_a_failing_filter_lets_nothing_out(self, bench):
        text = TextFilter(bench.one("textDelta", "exit 1", on_error="fail"))
        assert await text.feed("secret") == ""
        assert "exited with code 1" in text.failed

    async def test_with_warn_the_text_goes_through(self, bench):
        text = TextFilter(bench.one("textDelta", "exit 1"))
        assert await text.feed("word") == "word"
        assert text.failed == ""

    async def test_without_hooks_text_passes_untouched(self, bench):
        text = TextFilter(bench.chain())
        assert not text.active
        assert await text.feed("word") == "word"
