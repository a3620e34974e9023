"""*Failure* of the reference: what a hook that goes wrong comes to."""

from __future__ import annotations

import asyncio
import time

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILURES = {
    "exit code 1": ("exit 1", "exited with code 1"),
    "missing program": ("no-such-program", "command not found"),
    "not executable": ('"$MM_CONFIG_DIR/plain.txt"', "not executable"),
    "crash": ("kill -ABRT $$", "SIGABRT"),
    "crash of a child": ("sh -c 'kill -ABRT $$'; exit 134", "SIGABRT"),
    "killed": ("kill -KILL $$", "SIGKILL"),
    "timeout": ("sleep 30", "took longer than 0.5 s"),
    "not JSON": ("echo hello", "not JSON"),
    "over 1 MiB": ("head -c 1100000 /dev/zero | tr '\\0' ' '", "more than 1 MiB"),
    "64 MiB": ("head -c 67108864 /dev/zero", "more than 1 MiB"),
    "action: error": ('echo \'{"action":"error","reason":"disk full"}\'', "disk full"),
}


@pytest.fixture(params=FAILURES, ids=str)
def failing(request, bench):
    bench.script("plain.txt", "no program", mode=0o644)
    command, said = FAILURES[request.param]
    return command, said, 0.5 if request.param == "timeout" else 5.0


async def test_with_fail_a_failing_guard_denies_the_call(bench, call, failing):
    command, said, timeout = failing
    done = await bench.one("preToolCall", command, on_error="fail", timeout=timeout).pre_tool_call(call())
    assert done.denied is not None and said in done.denied
    assert bench.verdicts == ["error"]


async def test_with_warn_and_ignore_the_call_goes_on_and_the_event_tells_which(bench, call, failing):
    command, said, timeout = failing
    for on_error in ("warn", "ignore"):
        done = await bench.one("preToolCall", command, on_error=on_error, timeout=timeout).pre_tool_call(call())
        assert done.denied is None
        assert done.input == {"command": "ls"}
        assert bench.hook_events[-1]["on_error"] == on_error
        assert said in bench.hook_events[-1]["reason"]


ENDS = {
    "preGeneration": lambda chain, call: chain.pre_generation("q"),
    "preToolCall": lambda chain, call: chain.pre_tool_call(call),
    "postToolCall": lambda chain, call: chain.post_tool_call(call, "out", False),
    "postGeneration": lambda chain, call: chain.post_generation("q", "a", "", {}),
    "sessionStart": lambda chain, call: chain.session_start(),
    "permissionRequest": lambda chain, call: chain.permission_request(call),
    "preModelRequest": lambda chain, call: chain.pre_model_request("m", "s", 1),
    "message": lambda chain, call: chain.message({"role": "user", "content": "x"}),
    "stop": lambda chain, call: chain.stop("a", 0),
}


def failed(result) -> bool:
    """Whether a turn may not go on, or a call not run."""
    if getattr(result, "stopped", None):
        return result.stopped.failed
    if getattr(result, "allowed", None) is False:
        return True
    return bool(getattr(result, "denied", None) or getattr(result, "failed", ""))


@pytest.mark.parametrize("event", ENDS)
@pytest.mark.parametrize("on_error", ["fail", "warn", "ignore"])
async def test_on_error_decides_for_every_event(bench, call, event, on_error):
    result = await ENDS[event](bench.one(event, "echo broken >&2; exit 1", on_error=on_error), call())
    assert failed(result) is (on_error == "fail")
    assert bench.verdicts == ["error"]


async def test_a_failed_hooks_stderr_is_in_its_event_and_a_good_ones_is_not(bench, call):
    await bench.one("preToolCall", "echo broken >&2; exit 1").pre_tool_call(call())
    await bench.one("preToolCall", "echo chatty >&2").pre_tool_call(call())
    assert bench.hook_events[0]["stderr"] == "broken\n"
    assert "stderr" not in bench.hook_events[1]


async def test_at_the_timeout_the_whole_tree_ends_within_a_second(bench, call):
    tree = 'trap "" TERM; (setsid sleep 71 & ) ; (sleep 72 | sleep 73) & sleep 74'
    began = time.monotonic()
    await bench.one("preToolCall", tree, timeout=0.3).pre_tool_call(call())
    assert time.monotonic() - began < 1.3
    assert running("sleep 7[1-4]") == []


async def test_a_background_child_that_holds_stdout_is_drained_not_waited_for(bench, call):
    began = time.monotonic()
    done = await bench.one("preToolCall", 'echo \'{"context":"c"}\'; sleep 75 &', timeout=20).pre_tool_call(call())
    assert done.context == ("c",)
    assert bench.verdicts == ["context"]
    assert time.monotonic() - began < 2
    assert running("sleep 75") == []


async def test_a_cancel_ends_the_hook_that_runs(bench, call):
    chain = bench.one("preToolCall", 'touch "$TMPDIR/started"; sleep 76', timeout=60)
    task = asyncio.create_task(chain.pre_tool_call(call()))
    while not (bench.root / "guard-tmp" / "started").exists():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running("sleep 76") == []


async def test_a_hook_that_ignores_sigterm_ends_at_its_timeout(bench, call):
    began = time.monotonic()
    await bench.one("preToolCall", 'trap "" TERM INT HUP; while :; do sleep 0.1; done', timeout=0.3).pre_tool_call(
        call()
    )
    assert time.monotonic() - began < 1.3


async def test_a_refusal_that_was_said_counts_however_the_guard_ended(bench, call):
    deny = 'echo \'{"action":"deny","reason":"no"}\''
    for end in ("; exit 1", "; kill -9 $$", "; sleep 30"):
        done = await bench.one("preToolCall", deny + end, on_error="ignore", timeout=0.5).pre_tool_call(call())
        assert done.denied == "no", end


def running(pattern: str) -> list[str]:
    import re
    from pathlib import Path

    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if re.fullmatch(pattern, line):
                found.append(line)
    return found
