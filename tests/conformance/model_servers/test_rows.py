"""The rows of the table of servers as they really answer, each by its name. Both forms, both ways to the server."""

from __future__ import annotations

import pytest

from runner.guest.model.items import Notice, ReasoningDelta, Retrying, TextDelta, Waiting
from runner.scripted import Call as Scripted
from runner.scripted import Chunks, Pause, Raw, Reply, Say
from runner.scripted.answers import CUT
from tests.conformance.model_servers.conftest import Ask
from tests.conformance.model_servers.forms import both, call, calls, chunk, whole

LS = '{"command": "ls"}'


# ---- calls and their pieces


async def test_name_id_and_first_argument_bytes_come_in_one_delta(ask: Ask) -> None:
    outcome = await ask(
        both(
            [calls(call('{"comm')), calls(call('and": "ls"}', name=None, id=None))],
            calls(call(LS)),
            "tool_calls",
        )
    )
    [made] = outcome.answer.calls
    assert (made.id, made.name, made.arguments, made.error) == ("a", "bash", {"command": "ls"}, "")


async def test_a_repeated_name_is_taken_once(ask: Ask) -> None:
    pieces = ['{"comm', 'and": ', '"ls"}']
    outcome = await ask(both([calls(call(p)) for p in pieces], calls(call(LS)), "tool_calls"))
    assert [(c.name, c.arguments) for c in outcome.answer.calls] == [("bash", {"command": "ls"})]


async def test_an_empty_name_later_changes_nothing(ask: Ask) -> None:
    outcome = await ask(
        both([calls(call('{"command": ')), calls(call('"ls"}', name="", id=""))], calls(call(LS)), "tool_calls")
    )
    assert [(c.name, c.arguments) for c in outcome.answer.calls] == [("bash", {"command": "ls"})]


async def test_two_calls_under_one_index_are_told_apart_by_a_new_id(ask: Ask) -> None:
    pwd = '{"command": "pwd"}'
    entries = [call(LS, id="a"), call(pwd, id="b")]
    outcome = await ask(both([calls(e) for e in entries], calls(*entries), "tool_calls"))
    assert [(c.id, c.arguments) for c in outcome.answer.calls] == [("a", {"command": "ls"}), ("b", {"command": "pwd"})]


async def test_changing_chunk_ids_start_no_new_call(ask: Ask) -> None:
    chunks = [
        {**chunk(calls(call('{"command"'))), "id": "chunk-1"},
        {**chunk(calls(call(': "ls"}', name=None, id=None))), "id": "chunk-2"},
        {**chunk({}, "tool_calls"), "id": "chunk-3"},
    ]
    outcome = await ask(Chunks(chunks, whole=whole(calls(call(LS)), "tool_calls", id="chunk-9")))
    assert [c.arguments for c in outcome.answer.calls] == [{"command": "ls"}]


async def test_whole_calls_without_ids_and_indexes_are_several(ask: Ask) -> None:
    entries = [call(LS, id=None, index=None), call('{"command": "pwd"}', id=None, index=None)]
    outcome = await ask(both([calls(e) for e in entries], calls(*entries), "tool_calls"))
    first, second = outcome.answer.calls
    assert (first.arguments, second.arguments) == ({"command": "ls"}, {"command": "pwd"})
    assert first.id and second.id and first.id != second.id


async def test_an_id_that_comes_twice_is_made_unique(ask: Ask) -> None:
    entries = [call(LS, id="a", index=0), call('{"command": "pwd"}', id="a", index=1)]
    outcome = await ask(both([calls(*entries)], calls(*entries), "tool_calls"))
    assert len({c.id for c in outcome.answer.calls}) == 2


async def test_arguments_as_an_object_are_taken_as_they_are(ask: Ask) -> None:
    entry = call({"command": "ls"})
    outcome = await ask(both([calls(entry)], calls(entry), "tool_calls"))
    [made] = outcome.answer.calls
    assert (made.arguments, made.error) == ({"command": "ls"}, "")


async def test_arguments_as_an_object_that_come_twice_are_one(ask: Ask) -> None:
    first, second = call({"command": "ls"}), call({"command": "ls", "timeout": 9}, name="")
    outcome = await ask(both([calls(first), calls(second)], calls(first, second), "tool_calls"))
    assert [c.arguments for c in outcome.answer.calls] == [{"command": "ls", "timeout": 9}]


@pytest.mark.parametrize("empty", ["", None, "null", "  "], ids=["empty", "absent", "null", "blanks"])
async def test_empty_arguments_are_an_empty_object(ask: Ask, empty: str | None) -> None:
    entry = call(empty, name="clock")
    outcome = await ask(both([calls(entry)], calls(entry), "tool_calls"))
    [made] = outcome.answer.calls
    assert (made.arguments, made.error) == ({}, "")


async def test_empty_arguments_are_checked_against_the_schema(ask: Ask) -> None:
    entry = call("")
    outcome = await ask(both([calls(entry)], calls(entry), "tool_calls"))
    [made] = outcome.answer.calls
    assert made.problem == "schema" and "`command` is missing" in made.error


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ('{"command": 7}', "command must be string, not integer"),
        ('{"command": "ls", "timeout": "9"}', "timeout must be integer, not string"),
        ('{"command": "ls", "tiemout": 9}', "`tiemout` is not an argument; there are: command, timeout"),
        ('["ls"]', "the arguments are array, not an object"),
        ('"ls"', "the arguments are string, not an object"),
    ],
)
async def test_arguments_of_a_wrong_type_are_an_error_that_names_it(ask: Ask, given: str, says: str) -> None:
    outcome = await ask(both([calls(call(given))], calls(call(given)), "tool_calls"))
    [made] = outcome.answer.calls
    assert says in made.error


@pytest.mark.parametrize(
    "given", ['{"command": "ls', "ls -la", '{"command": "ls"}}', '{"command": NaN}', '{"a": "\\ud83d"}']
)
async def test_malformed_arguments_are_a_tool_error_and_never_an_empty_object(ask: Ask, given: str) -> None:
    outcome = await ask(both([calls(call(given))], calls(call(given)), "tool_calls"))
    [made] = outcome.answer.calls
    assert (made.arguments, made.problem) == (None, "malformed")
    assert made.error.startswith("the arguments")


@pytest.mark.parametrize("finish", ["stop", None, "tool_calls"])
async def test_tool_calls_count_whatever_the_finish_reason(ask: Ask, finish: str | None) -> None:
    outcome = await ask(both([calls(call(LS))], calls(call(LS)), finish))
    assert [c.error for c in outcome.answer.calls] == [""]


@pytest.mark.parametrize("finish", ["tool_calls", None, "stop"])
async def test_text_without_calls_is_an_answer_whatever_the_finish_reason(ask: Ask, finish: str | None) -> None:
    outcome = await ask(both([{"content": "hello"}], {"content": "hello"}, finish))
    assert (outcome.answer.text, outcome.answer.calls) == ("hello", ())


async def test_an_answer_cut_off_at_the_limit_says_so(ask: Ask) -> None:
    outcome = await ask(both([{"content": "once upon"}], {"content": "once upon"}, "length"))
    assert (outcome.answer.text, outcome.answer.cut_off) == ("once upon", True)


@pytest.mark.parametrize(
    "last", ['{"command": "rm -rf /tm', '{"command": "rm -rf /tm"}'], ids=["open", "closed by the server"]
)
async def test_a_cut_off_call_does_not_run_and_the_ones_before_it_do(ask: Ask, last: str) -> None:
    entries = [call(LS, id="a", index=0), call(last, id="b", index=1)]
    outcome = await ask(both([calls(e) for e in entries], calls(*entries), "length"))
    assert [c.problem for c in outcome.answer.calls] == ["", "cut-off"]


@pytest.mark.parametrize("name", ["Bash", "shell", ""])
async def test_a_call_to_a_tool_that_does_not_exist_is_an_error_naming_those_there_are(ask: Ask, name: str) -> None:
    outcome = await ask(both([calls(call(LS, name=name))], calls(call(LS, name=name)), "tool_calls"))
    [made] = outcome.answer.calls
    assert made.problem == "unknown-tool" and "bash, clock" in made.error


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        "<function=bash><parameter=command>ls</parameter></function>",
        '{"name": "bash", "arguments": {"command": "ls"}}',
        '[TOOL_CALLS] [{"name": "bash"}]',
    ],
)
async def test_a_call_written_as_text_is_shown_with_one_notice_and_not_run(ask: Ask, text: str) -> None:
    outcome = await ask(both([{"content": text[:9]}, {"content": text[9:]}], {"content": text}))
    assert (outcome.answer.text, outcome.answer.calls) == (text, ())
    assert len(outcome.of(Notice)) == 1


# ---- content


async def test_null_content_beside_calls_is_empty_text(ask: Ask) -> None:
    outcome = await ask(both([{"content": None}, calls(call(LS))], {"content": None, **calls(call(LS))}, "tool_calls"))
    assert outcome.answer.text == "" and len(outcome.answer.calls) == 1


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_a_turn_with_nothing_at_all_is_an_error_that_says_so(ask: Ask, content: str | None) -> None:
    outcome = await ask(both([{"content": content}], {"content": content}))
    assert (outcome.failed.kind, outcome.failed.message) == ("empty", "the model answered with nothing at all")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_in_its_own_field_is_kept_apart(ask: Ask, key: str) -> None:
    outcome = await ask(both([{key: "hm, "}, {key: "yes"}, {"content": "42"}], {key: "hm, yes", "content": "42"}))
    assert (outcome.answer.text, outcome.answer.reasoning, outcome.streamed) == ("42", "hm, yes", "42")


async def test_a_think_block_is_kept_apart(ask: Ask) -> None:
    pieces = ["<th", "ink>hm</th", "ink>\n\n4", "2"]
    outcome = await ask(both([{"content": p} for p in pieces], {"content": "".join(pieces)}))
    assert (outcome.answer.text, outcome.answer.reasoning, outcome.streamed) == ("42", "hm", "42")
    assert "".join(i.text for i in outcome.of(ReasoningDelta)) == "hm"


async def test_reasoning_is_never_sent_back(ask: Ask) -> None:
    history = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "42", "reasoning_content": "hm", "reasoning": "hm"},
        {"role": "user", "content": "why"},
    ]
    outcome = await ask(Say("so"), history=history)
    assert outcome.requests[0].messages[1] == {"role": "assistant", "content": "42"}


# ---- the stream itself


async def test_chunks_that_carry_nothing_are_skipped(ask: Ask) -> None:
    stream = Chunks(
        [
            ": keep-alive\n\n",
            {"choices": []},
            {"choices": [], "usage": None},
            chunk({"role": "assistant", "content": ""}),
            "event: ping\ndata: {}\n\n",
            chunk({"content": "hi"}),
            {**chunk({}, "stop"), "usage": None},
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}},
        ],
        whole=whole({"content": "hi"}, usage={"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}),
    )
    outcome = await ask(stream)
    assert outcome.answer.text == "hi"
    assert outcome.answer.usage == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    assert [i.text for i in outcome.of(TextDelta)] == ["hi"]


async def test_the_end_of_the_stream_after_a_finish_reason_is_an_end(ask: Ask) -> None:
    outcome = await ask(both([{"content": "hi"}], {"content": "hi"}, done=False))
    assert outcome.answer.text == "hi"


async def test_a_stream_that_stays_open_after_its_finish_reason_is_an_end(ask: Ask) -> None:
    stream = Chunks(
        [chunk({"content": "hi"}), chunk({}, "stop"), Pause(30)], done=False, whole=whole({"content": "hi"})
    )
    outcome = await ask(stream, watchdog_timeout=0.2)
    assert outcome.answer.text == "hi"


async def test_an_error_object_in_mid_stream_is_an_error_that_keeps_what_had_arrived(ask: Ask, streaming: bool) -> None:
    error = {"error": {"message": "the GPU fell off", "code": 500}}
    outcome = await ask(Chunks([chunk({"content": "so far"}), error], whole=error))
    assert outcome.failed.kind == "http" and "the GPU fell off" in outcome.failed.message
    if streaming:
        assert outcome.failed.partial is not None and outcome.failed.partial.text == "so far"


async def test_zero_deltas_are_an_error(ask: Ask) -> None:
    outcome = await ask(Chunks([], whole={"choices": []}))
    assert outcome.failed.kind == "empty"


async def test_an_empty_body_is_an_error(ask: Ask) -> None:
    outcome = await ask(Reply(200, ""))
    assert outcome.failed.kind == "empty"


async def test_a_cut_connection_is_an_error_that_keeps_what_had_arrived(ask: Ask, streaming: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    cut = Chunks([chunk({"content": "so far"}), Pause(0.1), CUT])
    outcome = await ask(cut if streaming else Raw([head, b'{"choices": [{"mess', Pause(0.1), CUT]))
    assert outcome.failed.kind == "broken"
    if streaming:
        assert outcome.failed.partial is not None and outcome.failed.partial.text == "so far"
    assert len(outcome.requests) == 1


async def test_a_stream_that_just_ends_is_an_error_that_keeps_what_had_arrived(ask: Ask, streaming: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    torn = (
        b'data: {"choices": [{"delta": {"content": "so far"}}]}\n\ndata: {"choi' if streaming else b'{"choices": [{"mes'
    )
    outcome = await ask(Raw([head, torn]))
    assert outcome.failed.kind == "broken"
    if streaming:
        assert outcome.failed.partial is not None and outcome.failed.partial.text == "so far"


@pytest.mark.parametrize(
    "body",
    [
        {"error": "no such luck"},
        {"error": {"message": "no such luck", "type": "x"}},
        "no such luck",
        {"detail": "no such luck"},
    ],
    ids=["text", "object", "plain", "detail"],
)
async def test_the_text_of_an_error_is_shown_whatever_its_wrapping(ask: Ask, body: object) -> None:
    outcome = await ask(Reply(500, body))
    assert outcome.failed.kind == "http" and "HTTP 500: no such luck" in outcome.failed.message
    assert len(outcome.requests) == 1


async def test_a_server_that_answers_in_the_other_form_is_understood(ask: Ask, streaming: bool) -> None:
    if streaming:
        outcome = await ask(Reply(200, whole({"content": "hi"})))
    else:
        outcome = await ask(Chunks([chunk({"content": "hi"}), chunk({}, "stop")]))
    assert (outcome.answer.text, outcome.streamed) == ("hi", "hi")


# ---- waiting and retrying


async def test_a_model_that_loads_is_waited_for_and_the_user_told(ask: Ask) -> None:
    loading = Reply(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
    outcome = await ask(loading, loading, Say("hi"), loading_poll=0.02)
    assert outcome.answer.text == "hi" and len(outcome.requests) == 3
    assert "Loading model" in outcome.of(Waiting)[0].why
    assert not outcome.of(Retrying)


async def test_loading_longer_than_the_first_token_timeout_is_an_error(ask: Ask) -> None:
    outcome = await ask(Reply(503, "loading model"), loading_poll=0.02, first_token_timeout=0.2)
    assert outcome.failed.kind == "timeout" and "firstTokenTimeout" in outcome.failed.message


async def test_no_byte_at_all_is_waited_for_and_the_user_told(ask: Ask) -> None:
    outcome = await ask(Say("hi", wait=0.3), news_every=0.05)
    assert outcome.answer.text == "hi" and outcome.of(Waiting)


async def test_no_byte_at_all_beyond_the_first_token_timeout_is_an_error(ask: Ask) -> None:
    outcome = await ask(Say("hi", wait=30), first_token_timeout=0.2)
    assert outcome.failed.kind == "timeout" and "firstTokenTimeout" in outcome.failed.message
    assert len(outcome.requests) == 1


async def test_comments_and_empty_deltas_do_not_reset_the_first_token_timeout(ask: Ask) -> None:
    idle = [item for _ in range(100) for item in (": still here\n\n", chunk({"content": ""}), Pause(0.02))]
    outcome = await ask(Chunks(idle), first_token_timeout=0.3)
    assert outcome.failed.kind == "timeout" and "firstTokenTimeout" in outcome.failed.message


async def test_silence_between_deltas_is_bounded_by_the_watchdog(ask: Ask) -> None:
    outcome = await ask(Chunks([chunk({"content": "so far"}), Pause(30)]), watchdog_timeout=0.2)
    assert outcome.failed.kind == "timeout" and "watchdogTimeout" in outcome.failed.message
    assert outcome.failed.partial is not None and outcome.failed.partial.text == "so far"


@pytest.mark.parametrize("status", [503, 429])
async def test_a_busy_server_is_asked_again_and_the_user_told(ask: Ask, status: int) -> None:
    outcome = await ask(Reply(status, {"error": "server busy"}), Say("hi"))
    assert outcome.answer.text == "hi" and len(outcome.requests) == 2
    [retry] = outcome.of(Retrying)
    assert retry.attempt == 2 and "server busy" in retry.why


async def test_retries_are_bounded(ask: Ask) -> None:
    outcome = await ask(Reply(429, "slow down"))
    assert outcome.failed.kind == "busy" and "given up after 3 attempts" in outcome.failed.message
    assert len(outcome.requests) == 3


async def test_retry_after_is_kept_to(ask: Ask) -> None:
    outcome = await ask(Reply(429, "slow down", {"retry-after": "0.3"}), Say("hi"))
    [retry] = outcome.of(Retrying)
    assert 0.3 <= retry.seconds < 0.5


async def test_a_retry_after_beyond_the_total_bound_fails_at_once(ask: Ask) -> None:
    outcome = await ask(Reply(429, "slow down", {"retry-after": "3600"}))
    assert outcome.failed.kind == "busy" and len(outcome.requests) == 1


# ---- what the request holds


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("parallel_tool_calls", False, "Unsupported parameter: parallel_tool_calls"),
        ("top_k", 40, {"error": {"message": "Unrecognized request argument supplied: top_k"}}),
        ("seed", 1, {"error": {"message": "'seed' is not supported by this model"}}),
    ],
)
async def test_a_key_that_a_400_names_is_dropped_once_with_a_warning(
    ask: Ask, key: str, value: object, text: object
) -> None:
    outcome = await ask(Reply(400, text), Say("hi"), sampling={key: value, "temperature": 0.5})
    assert outcome.answer.text == "hi"
    first, second = outcome.requests
    assert first.json[key] == value and key not in second.json and second.json["temperature"] == 0.5
    [notice] = outcome.of(Notice)
    assert key in notice.text


async def test_a_400_after_a_dropped_key_is_an_error(ask: Ask) -> None:
    outcome = await ask(
        Reply(400, "unknown parameter top_k"),
        Reply(400, "unknown parameter min_p"),
        sampling={"top_k": 1, "min_p": 0.1},
    )
    assert outcome.failed.kind == "http" and "min_p" in outcome.failed.message and len(outcome.requests) == 2


async def test_a_400_that_names_no_key_is_an_error(ask: Ask) -> None:
    outcome = await ask(Reply(400, {"error": {"message": "roles must alternate"}}), sampling={"temperature": 0.5})
    assert outcome.failed.kind == "http" and "roles must alternate" in outcome.failed.message
    assert len(outcome.requests) == 1


@pytest.mark.parametrize(
    "overflow",
    [
        Reply(400, {"error": {"message": "too big", "code": "context_length_exceeded"}}),
        Reply(
            400,
            {"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9000 tokens) exceeds"}},
        ),
        Reply(500, {"error": "the request exceeds the available context size, try increasing it"}),
        Reply(400, {"object": "error", "message": "This model's maximum context length is 4096 tokens."}),
        Reply(413, "Payload Too Large"),
        Reply(200, {"error": {"message": "Context size has been exceeded."}}),
    ],
    ids=["code", "type", "500", "vllm", "413", "200 with an error"],
)
async def test_context_overflow_is_recognised_and_never_retried(ask: Ask, overflow: Reply) -> None:
    outcome = await ask(overflow, Say("hi"))
    assert outcome.failed.kind == "overflow" and len(outcome.requests) == 1


async def test_nothing_at_all_near_the_end_of_the_window_is_overflow(ask: Ask) -> None:
    usage = {"prompt_tokens": 4090, "completion_tokens": 0, "total_tokens": 4090}
    nothing = Chunks([chunk({}, "stop"), {"choices": [], "usage": usage}], whole=whole({"content": ""}, usage=usage))
    outcome = await ask(nothing, context_window=4096)
    assert outcome.failed.kind == "overflow" and "4096" in outcome.failed.message


async def test_an_answer_limit_that_is_too_large_is_no_overflow(ask: Ask) -> None:
    text = (
        "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 4096 "
        "tokens and your request has 100 input tokens (9000 > 4096 - 100)."
    )
    outcome = await ask(Reply(400, {"error": {"message": text}}), Say("hi"), sampling={"max_tokens": 9000})
    assert outcome.answer.text == "hi" and "max_tokens" not in outcome.requests[1].json


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (Reply(302, "", {"location": "https://login.example/"}), "a redirect to https://login.example/"),
        (
            Reply(200, "<!doctype html><title>Welcome to nginx!</title>", {"content-type": "text/html"}),
            "Welcome to nginx!",
        ),
        (Reply(403, "<html><body>Blocked by policy</body></html>", {"content-type": "text/html"}), "Blocked by policy"),
        (Reply(200, "It works!\nmore"), "It works!"),
    ],
    ids=["redirect", "page", "block page", "text"],
)
async def test_what_is_no_model_server_is_called_that_with_its_first_line(ask: Ask, page: Reply, says: str) -> None:
    outcome = await ask(page)
    assert outcome.failed.kind == "not-a-server"
    assert outcome.failed.message.startswith("not a model server") and says in outcome.failed.message
    assert len(outcome.requests) == 1


async def test_history_keeps_string_arguments_and_one_tool_message_for_each_id(ask: Ask) -> None:
    made = [
        {"id": i, "type": "function", "function": {"name": "bash", "arguments": a}}
        for i, a in (("a", LS), ("b", "{bad"))
    ]
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": made},
        {"role": "tool", "tool_call_id": "zz", "content": "orphan"},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "a", "content": "again"},
        {"role": "user", "content": "next"},
    ]
    outcome = await ask(Say("ok"), history=history)
    sent = outcome.requests[0].messages
    assert [(t["role"], t.get("tool_call_id")) for t in sent] == [
        ("user", None),
        ("assistant", None),
        ("tool", "a"),
        ("tool", "b"),
        ("user", None),
    ]
    assert [c["function"]["arguments"] for c in sent[1]["tool_calls"]] == [LS, "{}"]
    assert sent[2]["content"] == "x" and "did not run" in sent[3]["content"]


async def test_routing_text_in_arguments_is_a_tool_error(ask: Ask) -> None:
    leaked = {"command": "ls -la assistant to=functions.bash json"}
    outcome = await ask(Say(calls=[Scripted("bash", leaked)]))
    [made] = outcome.answer.calls
    assert made.problem == "leak" and "routing text" in made.error


async def test_a_well_formed_answer_comes_through(ask: Ask) -> None:
    outcome = await ask(Say("héllo 🪝 wörld", reasoning="hm", calls=[Scripted("bash", {"command": "echo ü"})], piece=1))
    answer = outcome.answer
    assert (answer.text, answer.reasoning, answer.finish) == ("héllo 🪝 wörld", "hm", "tool_calls")
    assert [c.arguments for c in answer.calls] == [{"command": "echo ü"}]
