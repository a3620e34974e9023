"""Plain data about commands: text at character boundaries, ends in words, arguments checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.guest.spawn.command import Captured, Exit, Identity
from runner.guest.tools import arguments, editing, words
from runner.guest.tools.base import environment_for
from runner.guest.tools.listing import shown_name


@given(st.text(min_size=1), st.integers(0, 400), st.integers(0, 400))
def test_wherever_valid_text_is_cut_its_parts_are_whole_characters_of_it(text, head, tail):
    whole = text.encode("utf-8", "replace")
    text = whole.decode()
    head, tail = min(head, len(whole)), min(tail, len(whole))
    cut = Captured(whole[:head] + whole[len(whole) - tail :], len(whole), True, head)
    first, last = cut.parts()
    assert text.startswith(first)
    assert text.endswith(last)
    assert head - len(first.encode()) in range(4)
    assert tail - len(last.encode()) in range(4)


@given(st.binary())
def test_any_bytes_become_text(data):
    assert Captured(data, len(data), False, len(data)).parts() == (data.decode("utf-8", "replace"), "")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (Exit(code=0), ""),
        (Exit(code=2), "exit code 2"),
        (Exit(code=0, ended=1), "1 background process was ended"),
        (Exit(code=1, ended=3), "exit code 1; 3 background processes were ended"),
        (Exit(signal=11), "was ended by SIGSEGV"),
        (Exit(signal=9), "was killed by SIGKILL, not by us"),
        (Exit(signal=9, oom_counted=False), "was killed by SIGKILL, not by us: perhaps out of memory"),
        (Exit(signal=9, oom=True), "out of memory: the kernel killed a process of it"),
        (Exit(code=137, oom=True), "out of memory: the kernel killed a process of it; exit code 137"),
        (Exit(signal=9, killed=True), "was ended before it finished"),
        (Exit(error="x: not found"), "could not be run: x: not found"),
        (Exit(), "ended, how is not known"),
        (Exit(code=0, stuck=2), "2 could not be ended: the kernel holds them"),
    ],
)
def test_every_end_has_words(end, told):
    assert words.ending(end) == told


def test_an_unknown_end_is_not_ok():
    assert not Exit().ok
    assert not Exit(error="lost").ok
    assert Exit(code=0).ok


def test_what_is_cut_is_told_in_its_place():
    cut = Captured(b"head\ntail\n", 1000, True, 5, "/tmp/x", 900)
    assert words.shown(cut) == (
        "head\n[… 990 of 1,000 bytes left out here; the whole output is in /tmp/x up to byte 900 …]\ntail\n"
    )


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 4},
        "yes": {"type": "boolean", "default": False},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("given_arguments", "checked"),
    [
        ({"name": "x"}, {"name": "x", "count": 4, "yes": False}),
        ({"name": "x", "count": "7", "yes": "True"}, {"name": "x", "count": 7, "yes": True}),
        ({"name": "x", "count": 2.0, "yes": None}, {"name": "x", "count": 2, "yes": False}),
    ],
)
def test_what_is_clear_is_taken(given_arguments, checked):
    assert arguments.check(SCHEMA, given_arguments) == checked


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "x",
        {},
        {"name": 1},
        {"name": None},
        {"name": "x", "other": 1},
        *({"name": "x", "count": value} for value in (0, 10, 1.5, "1e400", "nan", True, [], {})),
        *({"name": "x", "yes": value} for value in (1, "yes", [])),
    ],
)
def test_what_is_wrong_is_said(wrong):
    with pytest.raises(arguments.ArgumentError):
        arguments.check(SCHEMA, wrong)


def test_the_environment_takes_the_images_variables_but_not_its_home():
    environment = environment_for(
        Identity(0, 0, "root"), "/w", {"PATH": "/usr/local/go/bin:/bin", "HOME": "/root"}, {"CI": "no"}
    )
    assert environment["PATH"] == "/usr/local/go/bin:/bin"
    assert environment["HOME"] == "/home/agent"
    assert environment["CI"] == "no"
    assert environment["TAR_OPTIONS"] == "--no-same-owner"
    assert environment["GIT_CONFIG_VALUE_0"] == "/w"
    assert "TAR_OPTIONS" not in environment_for(Identity(1000, 1000, "agent"), "/w", {})


@given(
    st.text(alphabet="ab\n", max_size=40), st.text(alphabet="ab\n", min_size=1, max_size=3), st.text("xy\n", max_size=4)
)
def test_an_edit_of_every_place_is_what_replacing_gives(text, old, new):
    if old == new:
        return
    if old not in text:
        with pytest.raises(editing.EditError):
            editing.edit(text.encode(), old, new, True)
        return
    edit = editing.edit(text.encode(), old, new, True)
    assert edit.data.decode() == text.replace(old, new)
    assert edit.difference.startswith("@@ -")


def test_a_name_stays_on_one_line_whatever_it_holds():
    assert shown_name("a\nb\x1b[31m\udcff") == "a\\nb\\x1b[31m\\xff"
