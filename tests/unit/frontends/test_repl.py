from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.frontends.terminal_driver import TerminalProgram

UP = "\x1b[A"
CTRL_C = "\x03"
CTRL_D = "\x04"
ENTER = "\r"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def repl(state: Path) -> Iterator[TerminalProgram]:
    program = TerminalProgram("tests.unit.frontends.repl_program", [str(state)])
    yield program
    program.close()


def told(state: Path) -> dict[str, Any]:
    return json.loads((state / "told.json").read_text())


def test_an_answer_streams_in_and_ctrl_d_ends(repl: TerminalProgram, state: Path):
    repl.sees("preGeneration×2 preToolCall×1")
    repl.sees("›")
    repl.type("hello there" + ENTER)
    repl.sees("› hello there")
    repl.sees("Hello \\x1b]0;evil\\x07world")
    repl.sees("and more")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert "\x1b]0;evil" not in repl.raw
    assert told(state)["prompts"] == ["hello there"]
    assert repl.text.count("world\r\n") == 1


def test_a_line_of_any_length_is_shown_whole_and_once(repl: TerminalProgram):
    repl.sees("›")
    repl.type("flood" + ENTER)
    repl.sees("last")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert repl.text.count("word") == 40_000


def test_a_stopped_question_enters_neither_the_file_nor_the_arrow_keys(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("first" + ENTER)
    repl.sees("and more")
    repl.type("my password: hunter2" + ENTER)
    repl.sees("🪝 question [stopped by a hook: a password] (no-secrets)")
    repl.sees("🔐 stopped")
    repl.type(UP + " again" + ENTER)
    repl.sees("and more")
    repl.type(UP + UP + UP + " up" + ENTER)
    repl.sees("and more")
    repl.type("/quit" + ENTER)
    assert repl.ends() == 0
    assert told(state)["prompts"] == ["first", "my password: hunter2", "first again", "first up"]
    history = state / "history"
    assert "hunter2" not in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_a_question_that_a_hook_rewrote_is_kept_as_rewritten(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("mask s3cret" + ENTER)
    repl.sees("masked")
    repl.type(CTRL_D)
    repl.ends()
    lines = (state / "history").read_text().splitlines()
    assert [line for line in lines if line.startswith("+")] == ["+mask ***"]


def test_history_is_there_in_the_next_session_and_empty_in_another_state_folder(
    repl: TerminalProgram, state: Path, tmp_path_factory: pytest.TempPathFactory
):
    repl.sees("›")
    repl.type("first" + ENTER)
    repl.sees("and more")
    repl.type(CTRL_D)
    repl.ends()
    for folder, prompts in ((state, ["first!"]), (tmp_path_factory.mktemp("other"), ["!"])):
        again = TerminalProgram("tests.unit.frontends.repl_program", [str(folder)])
        again.sees("›")
        again.type(UP + "!" + ENTER)
        again.sees("and more")
        again.type(CTRL_D)
        again.ends()
        again.close()
        assert told(folder)["prompts"] == prompts


def test_ctrl_c_ends_the_turn_and_not_the_program(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("hang" + ENTER)
    repl.sees("half an ans")
    repl.type(CTRL_C)
    repl.sees("turn cancelled")
    repl.type("next" + ENTER)
    repl.sees("and more")
    repl.type(CTRL_C)
    repl.sees("Ctrl-D or /quit ends")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["prompts"] == ["hang", "next"]


def test_the_finished_screen_holds_questions_and_answers_once_and_no_spinner(repl: TerminalProgram):
    repl.sees("›")
    repl.type("one" + ENTER)
    repl.sees("and more")
    repl.type("steer" + ENTER)
    repl.has_on_screen("waiting for the model")
    repl.type("left" + ENTER)
    repl.sees("steered")
    repl.type("ty")
    repl.has_on_screen("› ty")
    repl.type(CTRL_C + CTRL_D)
    assert repl.ends() == 0
    told = repl.screen.split("/help lists the commands\n")[1].strip("\n").split("\n")
    assert told == [
        "› one",
        "Hello \\x1b]0;evil\\x07world",
        "and more",
        "› steer",
        "› left",
        "steered",
    ]


def test_what_was_being_typed_is_still_there_when_a_turn_ends_or_a_person_is_asked(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("consent" + ENTER)
    repl.has_on_screen("thinking")
    repl.type("go" + ENTER + "later")
    repl.has_on_screen("run it? once, session, reject, never ›")
    assert "never › later" not in repl.screen
    repl.type("reject" + ENTER)
    repl.has_on_screen("asked")
    repl.has_on_screen("› later")
    repl.type(ENTER)
    repl.sees("and more")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["answers"] == [{"choice": "reject"}]
    assert told(state)["prompts"] == ["consent", "later"]


def test_a_signal_ends_the_turn_as_the_key_does(repl: TerminalProgram):
    repl.sees("›")
    repl.type("hang" + ENTER)
    repl.sees("half an ans")
    repl.interrupt()
    repl.sees("turn cancelled")
    repl.type(CTRL_D)
    assert repl.ends() == 0


def test_a_spinner_says_what_is_waited_for(repl: TerminalProgram):
    repl.sees("›")
    repl.type("steer" + ENTER)
    repl.has_on_screen("waiting for the model 0 s")
    repl.type(CTRL_D)
    assert repl.ends() == 0


def test_a_line_typed_in_mid_turn_steers(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("steer" + ENTER)
    repl.has_on_screen("waiting for the model")
    repl.type("the other file" + ENTER)
    repl.sees("steered")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["steered"] == ["the other file"]
    assert told(state)["prompts"] == ["steer"]


def test_a_line_that_came_too_late_for_its_turn_is_the_next_question(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("late" + ENTER)
    repl.sees("the answer")
    repl.type("and this" + ENTER)
    repl.sees("and more")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["prompts"] == ["late", "and this"]


def test_a_line_for_a_turn_that_was_cancelled_is_not_asked(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("hang" + ENTER)
    repl.sees("half an ans")
    repl.type("more" + ENTER)
    repl.sees("› more")
    repl.type(CTRL_C)
    repl.sees("turn cancelled")
    repl.sees("not taken: more")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["prompts"] == ["hang"]


def test_consent_shows_the_input_and_takes_only_its_own_answers(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("consent" + ENTER)
    repl.sees("› consent")
    repl.type("go" + ENTER)
    repl.sees("bash asks to run:")
    repl.sees("rm -r \\u202e x\\x1b[2J")
    repl.sees("once, session, reject, never ›")
    repl.type("yes" + ENTER)
    repl.sees("answer with one of: once, session, reject, never")
    repl.type("once" + ENTER)
    repl.sees("asked")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["answers"] == [{"choice": "once"}]
    assert "yes" not in told(state)["steered"]


def test_ctrl_c_at_a_question_refuses_and_ends_the_turn(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("consent" + ENTER)
    repl.sees("› consent")
    repl.type("go" + ENTER)
    repl.sees("once, session, reject, never ›")
    repl.type(CTRL_C)
    repl.sees("turn cancelled")
    repl.type(CTRL_D)
    assert repl.ends() == 0
    assert told(state)["answers"] == [{"choice": "reject"}]


def test_slash_commands(repl: TerminalProgram, state: Path):
    repl.sees("›")
    repl.type("/help" + ENTER)
    for word in ("/help", "/log", "/new", "/quit", "/shout", "in capitals"):
        repl.sees(word)
    repl.type("/new" + ENTER)
    repl.sees("a fresh conversation")
    repl.type("/log" + ENTER)
    repl.sees("the record")
    repl.type("/shout abc" + ENTER)
    repl.sees("ABC")
    repl.type("/nonsense" + ENTER)
    repl.sees("there is no /nonsense")
    repl.type("/etc/passwd is what?" + ENTER)
    repl.sees("and more")
    repl.type("/quit" + ENTER)
    assert repl.ends() == 0
    assert told(state)["prompts"] == ["/etc/passwd is what?"]
    assert told(state)["new"] == 1


def test_a_failed_turn_is_told_and_the_conversation_goes_on(repl: TerminalProgram):
    repl.sees("›")
    repl.type("fail" + ENTER)
    repl.sees("error: no model server")
    repl.type("again" + ENTER)
    repl.sees("and more")
    repl.type(CTRL_D)
    assert repl.ends() == 0


def test_a_guest_that_goes_away_ends_the_program_with_its_code(repl: TerminalProgram):
    repl.sees("›")
    repl.type("die" + ENTER)
    repl.sees("error: the guest went away")
    assert repl.ends() == 4
