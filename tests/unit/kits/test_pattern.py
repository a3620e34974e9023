"""Regular expressions as the public format means them."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.kits import pattern as pattern_module
from runner.kits.pattern import PatternError, compile_pattern

MATCHES = [
    (r"^(latest|[0-9]+\.[0-9]+\.[0-9]+)$", "1.2.3"),
    ("a|ab", "ab"),
    ("[[:alpha:]]+", "abc"),
    ("[[:^digit:]x]+", "ab"),
    (r"\Aab\z", "ab"),
    ("x(?i)AB", "xab"),
    ("(?i:A)b", "ab"),
    ("a{2,3}", "aaa"),
    ("a{2,}?", "aaaa"),
    ("a{,2}", "a{,2}"),
    (r"\pL\p{Lu}[\p{N}]", "éÉ5"),
    (r"\PL", "5"),
    ("[]a-]+", "]a-"),
    (r"\x41\x{1F600}\101", "A\U0001f600A"),
    (r"\Qa.b*\E+", "a.b**"),
    ("(?P<year>[0-9]{4})-(?<month>[0-9]{2})", "2026-11"),
    (r"\bfoo\b.*\B", "foo x."),
    ("(?s)a.b", "a\nb"),
    ("(?m)a$\n^b", "a\nb"),
    (r"^(/[a-z0-9]([a-z0-9-]*[a-z0-9])?){0,2}$", "/acme/prod"),
    (r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$", "dl.packages.example"),
    ("", ""),
    ("(a*)*", "aaa"),
]
MISSES = [
    ("[0-9]+", "v1"),
    ("[0-9]+", "1v"),
    ("^a", "ab"),
    (r"\d", "٣"),
    ("a.b", "a\nb"),
    ("a{2,3}", "aaaa"),
    ("(?i:a)B", "ab"),
    ("x", ""),
]
REFUSED = [
    ("(?=a)", "look-around"),
    ("(?<!a)b", "look-around"),
    (r"(a)\1", "backreferences"),
    ("(a", "a '\\(' is not closed"),
    ("a)", "unexpected"),
    ("[a", "ends too early"),
    ("*a", "nothing to repeat"),
    ("a**", "repeats a repetition"),
    ("[z-a]", "runs backwards"),
    ("a{1001}", "is not valid"),
    ("a{3,2}", "is not valid"),
    ("(((a{99}){99}){99}){99}", "too large"),
    ("(" * 200, "nested too deeply"),
    (r"\y", "unknown escape"),
    ("[[:foo:]]", "unknown class"),
    (r"\p{Greek}", "unknown class"),
    ("\\", "ends too early"),
    ("(?x)a", "unknown flag"),
    (r"\x{110000}", "not valid"),
]


@pytest.mark.parametrize(("pattern", "value"), MATCHES)
def test_a_whole_value_matches(pattern, value):
    assert compile_pattern(pattern).matches(value)


@pytest.mark.parametrize(("pattern", "value"), MISSES)
def test_a_value_does_not_match(pattern, value):
    assert not compile_pattern(pattern).matches(value)


@pytest.mark.parametrize(("pattern", "message"), REFUSED)
def test_what_the_syntax_lacks_is_refused(pattern, message):
    with pytest.raises(PatternError, match=message):
        compile_pattern(pattern)


def test_a_pattern_that_makes_others_hang_takes_no_time():
    started = time.perf_counter()
    assert not compile_pattern("(a+)+$").matches("a" * 5000 + "b")
    assert time.perf_counter() - started < 1


def test_a_match_that_would_take_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(pattern_module, "MAX_STEPS", 10_000)
    with pytest.raises(PatternError, match="too costly"):
        compile_pattern("(a{0,100}){0,4}").matches("a" * 500)


atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "(?:ab)", "(?:a|b)", "(?:|a)", r"\d", "1"])
pieces = st.builds(lambda atom, times: atom + times, atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "+?"]))
patterns = st.lists(pieces, max_size=4).map("".join) | st.builds(
    lambda left, right: f"{''.join(left)}|{''.join(right)}", st.lists(pieces, max_size=3), st.lists(pieces, max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(patterns, st.text("ab1", max_size=6))
def test_where_both_have_the_same_syntax_it_agrees_with_re(pattern, value):
    assert compile_pattern(pattern).matches(value) == (re.fullmatch(pattern, value) is not None)
