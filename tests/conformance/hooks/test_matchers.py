"""`matcher`: searched in the tool's name, and never a way to hang the guest."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ran(bench, call, pattern: str | None, tool: str, **keys) -> bool:
    before = len(bench.hook_events)
    await bench.one("preToolCall", "true", matcher=pattern, **keys).pre_tool_call(call(tool))
    return len(bench.hook_events) > before


@pytest.mark.parametrize(
    ("pattern", "tool", "expected"),
    [
        (None, "bash", True),
        ("^bash$", "bash", True),
        ("^bash$", "bash_output", False),
        ("bash", "bash_output", True),  # searched, so a part of the name is enough
        ("bash|write_file", "write_file", True),
        ("^mcp__", "mcp__files__read", True),
        ("", "anything", True),
        ("^Bash$", "bash", False),  # our names only, without a dialect
        ("(?i)^BASH$", "bash", True),
        ("^bash$", "bash\n", True),  # `$` also stands before a last line's end: the guard runs
        ("^bash$", "bash\nx", False),
        ("^bash", "x\nbash", False),
    ],
)
async def test_it_is_searched_in_the_tools_name(bench, call, pattern, tool, expected):
    assert await ran(bench, call, pattern, tool) is expected


async def test_with_a_dialect_it_is_searched_in_both_names(bench, call):
    for pattern in ("^bash$", "^Bash$"):
        assert await ran(bench, call, pattern, "bash", dialect="claude")
    assert not await ran(bench, call, "^Write$", "bash", dialect="claude")


async def test_an_expression_that_backtracks_for_ever_counts_as_a_match_and_holds_nothing_up(bench, call):
    chain = bench.one("preToolCall", "exit 2", matcher="^(a+)+$")
    began = time.monotonic()
    done = await chain.pre_tool_call(call("a" * 60 + "!"))
    assert done.denied is not None
    assert time.monotonic() - began < 3
    assert any(name == "notice" for name, _ in bench.events)


async def test_a_doubtful_expression_still_decides_rightly(bench, call):
    assert await ran(bench, call, "^(ab)+$", "ababab")
    assert not await ran(bench, call, "^(ab)+$", "ababa")
