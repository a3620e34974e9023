from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.frontends.safe import head, safe, safe_line, strict

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
HOSTILE = st.text(st.characters() | st.sampled_from("\x1b\x9b\x07\r\n\t\u202e\u2066\ud800\x00["), max_size=200)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("a\rb", "a\\rb"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("\ud800", "\\ud800"),
        ("👩‍👩‍👧 é שלום", "👩‍👩‍👧 é שלום"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_and_the_rest_is_kept(text: str, shown: str):
    assert safe(text) == shown


@given(HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(text: str):
    assert not OBEYED.search(safe(text))
    assert not OBEYED.search(strict(text))
    line = safe_line(text)
    assert not OBEYED.search(line)
    assert "\n" not in line
    for each in head(text, 3, 20)[0]:
        assert not OBEYED.search(each)
        assert "\n" not in each


def test_what_a_person_approves_shows_characters_without_a_glyph():
    assert strict("rm\u200b -r\u00a0x\u00ad") == "rm\\u200b -r\\xa0x\\xad"


def test_a_line_of_64_mib_is_cut_and_says_how_much():
    text = "x" * (64 * 1024 * 1024)
    assert safe_line(text) == "x" * 400 + f" … [{64 * 1024 * 1024 - 400} more characters]"
    assert head(text + "\nlast", 1, 10) == (["x" * 10 + f" … [{64 * 1024 * 1024 - 10} more characters]"], 1)


@pytest.mark.parametrize(
    ("text", "lines", "more"),
    [("", [], 0), ("a", ["a"], 0), ("a\n", ["a"], 0), ("a\r\nb\r\n", ["a", "b"], 0), ("a\nb\nc", ["a", "b"], 1),
     ("a\n\nc\nd\n", ["a", ""], 2)],
)  # fmt: skip
def test_the_head_of_an_output_says_how_many_lines_are_left(text: str, lines: list[str], more: int):
    assert head(text, 2) == (lines, more)
