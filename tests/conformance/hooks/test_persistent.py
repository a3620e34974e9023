"""Persistent hooks: one process for the session, one JSON line in, one out."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = """
import json, os, sys
count = 0
for line in sys.stdin:
    asked = json.loads(line)
    count += 1
    {body}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def server(bench):
    def make(body: str, event: str = "preToolCall", **keys):
        file = bench.script("server.py", SERVER.format(body=body.replace("\n", "\n    ")))
        return bench.one(event, f"exec python3 {file}", persistent=True, **keys)

    return make


async def test_one_process_answers_the_whole_session(server, call):
    chain = server('answer = {"context": f"{os.getpid()} {count}"}')
    first, second = [(await chain.pre_tool_call(call())).context[0].split() for _ in range(2)]
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("1", "2")


async def test_it_runs_as_the_guards_identity_whatever_its_event(server, call):
    chain = server('answer = {"context": str(os.getuid())}', event="postToolCall")
    assert (await chain.post_tool_call(call(), "o", False)).context == ("64001",)


async def test_it_may_deny(server, call):
    chain = server('answer = {"action": "deny", "reason": asked["tool"]["input"]["command"]}')
    assert (await chain.pre_tool_call(call(command="rm"))).denied == "rm"


async def test_calls_at_the_same_time_each_get_their_own_answer(server, call):
    chain = server('answer = {"context": asked["tool"]["id"]}')
    done = await asyncio.gather(*(chain.pre_tool_call(call(id=f"c{i}")) for i in range(20)))
    assert [d.context[0] for d in done] == [f"c{i}" for i in range(20)]


async def test_it_is_started_again_once_and_the_question_is_asked_again(server, bench, call):
    flag = bench.root / "guard-tmp" / "died"
    chain = server(
        f"if not os.path.exists('{flag}'):\n    open('{flag}', 'w'); os._exit(1)\nanswer = {{'context': 'ok'}}"
    )
    assert (await chain.pre_tool_call(call())).context == ("ok",)


async def test_after_its_second_death_it_has_failed_for_good(server, bench, call):
    chain = server("print('why', file=sys.stderr); sys.exit(3)", on_error="fail")
    first = await chain.pre_tool_call(call())
    assert first.denied is not None and "died twice" in first.denied
    assert bench.hook_events[0]["stderr"].strip() == "why"
    second = await chain.pre_tool_call(call())
    assert second.denied is not None and "not started again" in second.denied


async def test_exit_code_2_refuses(server, call):
    assert (await server("print('no', file=sys.stderr); sys.exit(2)").pre_tool_call(call())).denied == "no"


async def test_a_line_that_nobody_asked_for_never_answers_the_next_question(server, call):
    chain = server('answer = {}\nif count == 1: print("{}", flush=True)', on_error="ignore")
    assert (await chain.pre_tool_call(call())).denied is None
    while not chain._persistent["h0"]._running.has_unread:  # type: ignore[union-attr]
        await asyncio.sleep(0)
    done = await chain.pre_tool_call(call())
    assert done.denied is not None and "nobody asked for" in done.denied


async def test_an_answer_with_another_id_is_refused(server, call):
    chain = server('answer = {"id": asked["id"] - 1}', on_error="ignore")
    done = await chain.pre_tool_call(call())
    assert done.denied is not None and "another question" in done.denied


async def test_a_timeout_fails_and_the_late_answer_is_never_read(server, call):
    chain = server(
        'import time\nif asked["tool"]["id"] == "slow": time.sleep(5)\nanswer = {"context": asked["tool"]["id"]}',
        timeout=0.6,
    )
    assert (await chain.pre_tool_call(call(id="slow"))).context == ()
    assert (await chain.pre_tool_call(call(id="next"))).context == ("next",)


async def test_after_a_cancel_the_next_question_gets_its_own_answer(server, bench, call):
    flag = bench.root / "guard-tmp" / "asked"
    chain = server(
        f'import time\nif asked["tool"]["id"] == "slow": open("{flag}", "w"); time.sleep(5)\n'
        'answer = {"context": asked["tool"]["id"]}'
    )
    task = asyncio.create_task(chain.pre_tool_call(call(id="slow")))
    while not flag.exists():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await chain.pre_tool_call(call(id="next"))).context == ("next",)


async def test_a_line_over_1_mib_fails(server, call):
    done = await server('answer = {"context": "x" * 2_000_000}', on_error="fail").pre_tool_call(call())
    assert done.denied is not None and "more than 1 MiB" in done.denied


async def test_many_mib_of_payload_and_a_flood_on_stderr_work(server, call):
    chain = server(
        'print("e" * 1_000_000, file=sys.stderr)\nanswer = {"context": str(len(asked["tool"]["input"]["command"]))}'
    )
    done = await chain.pre_tool_call(call(command="x" * 8_000_000))
    assert done.context == ("8000000",)


async def test_closing_the_chain_ends_it(server, call):
    chain = server('answer = {"context": str(os.getpid())}')
    pid = int((await chain.pre_tool_call(call())).context[0])
    await chain.close()
    from pathlib import Path

    assert not Path(f"/proc/{pid}").exists()
