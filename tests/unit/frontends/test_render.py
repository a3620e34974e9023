from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import ImageError
from runner.frontends.banner import Banner, banner_lines, count_hooks
from runner.frontends.render import Renderer, error_lines
from runner.frontends.terminal import Styled, painted
from runner.wire.agent import EVENTS
from runner.wire.messages import Event
from tests.unit.frontends.scripted import BANNER
from tests.unit.frontends.test_safe import HOSTILE, OBEYED


def shown(kind: str, /, **data: Any) -> list[str]:
    return [line.text for line in Renderer().lines(Event(kind, data))]


def test_a_denied_call_names_tool_and_reason():
    reason = "recursive deletion (rm -r) is not allowed"
    lines = shown("tool.denied", id="1", name="bash", by="bash-guard", reason=reason)
    assert lines == ["🪝 bash [denied by a hook: recursive deletion (rm -r) is not allowed]"]


def test_a_call_that_a_person_refused_is_not_told_as_a_hooks():
    assert shown("tool.denied", id="1", name="bash", by="consent", reason="rejected") == [
        "✋ bash [denied by the user: rejected]"
    ]


def test_a_bash_call_looks_like_its_command():
    assert shown("tool.start", id="1", name="bash", input={"command": "cat todo.txt"}) == ["$ cat todo.txt"]
    assert shown("tool.start", id="1", name="bash", input={"command": "a\nb"}) == ["$ a", "> b"]


def test_another_tools_call_shows_its_arguments():
    start = shown("tool.start", id="1", name="read_file", input={"path": "a b", "offset": 3})
    assert start == ['⚙ read_file path="a b" offset=3']


def test_an_output_is_folded_and_a_failure_told():
    output = "\n".join(str(number) for number in range(10)) + "\n"
    assert shown("tool.end", id="1", name="bash", output=output, is_error=True, exit=2, ms=12) == [
        *(f"  {number}" for number in range(6)),
        "  … 4 more lines",
        "✗ bash [exit 2, 12 ms]",
    ]


@pytest.mark.parametrize(
    ("verdict", "event", "line"),
    [
        ("continue", "preToolCall", []),
        ("deny", "preToolCall", []),
        ("stop", "preGeneration", []),
        ("rewrite", "preGeneration", ["🪝 h [rewrote the question]"]),
        ("rewrite", "preToolCall", ["🪝 h [rewrote the input]"]),
        ("context", "preGeneration", ["🪝 h [added context]"]),
        ("error", "preToolCall", ["🪝 h [failed in preToolCall: why]"]),
    ],
)
def test_each_verdict_is_at_most_one_line(verdict: str, event: str, line: list[str]):
    assert shown("hook", event=event, hook="h", verdict=verdict, reason="why", ms=1) == line


def test_a_failing_hooks_stderr_is_shown_unless_it_is_to_be_ignored():
    failing = {"event": "postToolCall", "hook": "h", "verdict": "error", "reason": "exit 1", "stderr": "boom\n"}
    assert shown("hook", **failing, on_error="warn") == ["🪝 h [failed in postToolCall: exit 1]", "   boom"]
    assert shown("hook", **failing, on_error="ignore") == []


def test_a_stopped_question_tells_who_and_why():
    assert shown("turn.blocked", hook="no-secrets", reason="a password", response="🔐") == [
        "🪝 question [stopped by a hook: a password] (no-secrets)"
    ]


def test_a_steering_line_that_was_stopped_shows_the_hooks_response():
    renderer = Renderer()
    renderer.lines(Event("turn.question", {"turn": 1, "prompt": "q"}))
    blocked = renderer.lines(Event("turn.blocked", {"turn": 1, "hook": "h", "reason": "r", "response": "no"}))
    assert [line.text for line in blocked] == ["🪝 line [stopped by a hook: r] (h)", "  no"]


def test_a_refused_host_is_told_and_an_allowed_one_is_not():
    entry = {"host": "example.org", "port": 443, "reason": "no rule allows it"}
    assert shown("network", **entry, outcome="denied") == ["⛔ network [example.org:443 refused: no rule allows it]"]
    assert shown("network", **entry, outcome="allowed") == []


def test_a_long_wait_is_told_a_few_times_not_every_second():
    renderer = Renderer()
    told = [second for second in range(1, 400) if renderer.lines(Event("model.wait", {"seconds": second, "why": "w"}))]
    assert told == [5, 15, 30, 60, 120, 240, 360]


def test_every_model_server_that_was_tried_is_told_with_its_reason():
    lines = shown(
        "model.resolved", url="http://b/v1", tried=[{"url": "http://a/v1", "reason": "refused"}], warnings=["w"]
    )
    assert lines == ["model server http://a/v1: refused", "model server http://b/v1 is used", "warning: w"]


def test_a_failed_turn_tells_its_error():
    assert shown("turn.end", status="failed", error="no model\n  - a: refused") == [
        "turn failed: no model",
        "    - a: refused",
    ]
    assert shown("turn.end", status="completed", answer="a") == []


def test_an_error_tells_what_where_and_what_to_do():
    error = ImageError("the build failed", place="node", hint="run sbx doctor", log="E: \x1b[31mno")
    assert [line.text for line in error_lines(error)] == [
        "error: the build failed",
        "  at node",
        "  run sbx doctor",
        "  | E: \\x1b[31mno",
    ]


def test_the_banner_counts_hooks_and_marks_what_is_weaker():
    banner = Banner(
        **{**vars(BANNER), "not_failing": ["bash-guard"], "relaxations": ["--network bridge"], "warnings": ["w"]}
    )
    lines = banner_lines(banner)
    text = [line.text for line in lines]
    assert "  hooks:     preGeneration×2 preToolCall×1" in text
    assert Styled("  guards without `onError: fail`: bash-guard", "yellow") in lines
    assert Styled("  relaxed: --network bridge", "red") in lines
    for value in ("0.1.0", "/kits/hooks-demo/agent.yaml", "demo", "scripted", "bash", "sbx/hooks-demo:abc", "none"):
        assert any(value in line for line in text)


def test_hooks_are_counted_in_the_order_of_a_turn():
    assert count_hooks(["postToolCall", "preGeneration", "postToolCall"], EVENTS) == (
        ("preGeneration", 1),
        ("postToolCall", 2),
    )


def test_colours_are_closed_on_every_line():
    assert painted(Styled("a\nb", "red"), True) == "\x1b[31ma\x1b[0m\n\x1b[31mb\x1b[0m"
    assert painted(Styled("a", "red"), False) == "a"


NAMES = st.sampled_from(
    ["tool.start", "tool.end", "tool.denied", "hook", "turn.blocked", "turn.end", "notice", "model.resolved",
     "model.wait", "model.retry", "model.answer", "network", "model.delta", "\x1b[2J"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["id", "name", "input", "by", "reason", "output", "is_error", "exit", "ms", "hook", "event", "verdict", "on_error",
     "stderr", "level", "text", "url", "tried", "warnings", "seconds", "why", "attempt", "calls", "cut_off", "finish",
     "status", "error", "answer", "call", "host", "response", "outcome", "port"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["bash", "deny", "denied", "error", "rewrite", "failed", "warning", "preToolCall", "result", "ask"]
)
VALUES = st.recursive(
    HOSTILE | WORDS | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE | KEYS | st.just("command"), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.builds(Event, NAMES, st.dictionaries(KEYS, VALUES, max_size=8)), max_size=4))
@settings(max_examples=120, deadline=None)
def test_no_event_of_a_hostile_guest_crashes_or_reaches_the_terminal_raw(events: list[Event]):
    renderer = Renderer()
    for event in events:
        for line in renderer.lines(event):
            assert not OBEYED.search(line.text)
            assert "\n" not in line.text
