"""Which expressions are searched in the guest's own process."""

from __future__ import annotations

import re
import time

import pytest

from runner.guest.hooks.match import is_quick


@pytest.mark.parametrize(
    "pattern", ["^bash$", "bash|write_file", "^mcp__.*__write$", "(?i)edit", "[a-z_]+", "^(a|bc)d?$"]
)
def test_usual_expressions_are_quick(pattern):
    assert is_quick(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", r"(.)\1", "(?=a+)b", "a*b*c*d", "((a{1,9}){1,9}){1,9}"])
def test_what_may_backtrack_far_is_not(pattern):
    assert not is_quick(pattern)


def test_a_quick_expression_is_quick_on_its_worst_name():
    for pattern in ("a*a*b", "[a-z_]*.*!"):
        assert is_quick(pattern)
        began = time.perf_counter()
        re.search(pattern, "a" * 128)
        assert time.perf_counter() - began < 0.1
