"""The demo's script and the format: answers quote the request, mistakes are named with their place."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigError
from runner.scripted import DEMO, Reply, Request, Say, Script, load_script

TOOLS = [{"type": "function", "function": {"name": "bash"}}]


def request(*messages: dict[str, Any], tools: list[Any] = TOOLS) -> Request:
    body = json.dumps({"model": "scripted", "messages": list(messages), "tools": tools})
    return Request("POST", "/v1/chat/completions", {}, body.encode())


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def after_call(question: str, output: str) -> Request:
    made = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    return request(
        user(question),
        {"role": "assistant", "content": "", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "a", "content": output},
    )


def say(script: Script, asked: Request) -> Say:
    answer = script.route(asked)
    assert isinstance(answer, Say), answer
    return answer


@pytest.fixture(scope="module")
def demo() -> Script:
    return load_script(DEMO)


FILES = "Which files are here, and what is today's date?"


@pytest.mark.parametrize(
    "facts", ["Today is 2026-11-30.\nFiles: notes.md, old-drafts, todo.txt", "Today is 2031-01-02.\nFiles: x.csv"]
)
def test_files_and_date_come_from_the_added_context_alone(demo: Script, facts: str) -> None:
    answer = say(demo, request(user(f"{FILES}\n\n[context added by a hook]\n{facts}")))
    assert facts in answer.text and not answer.calls


def test_without_context_the_demo_names_no_file(demo: Script) -> None:
    answer = say(demo, request(user(FILES)))
    assert not any(name in answer.text for name in ("notes.md", "todo.txt"))
    assert [c.name for c in answer.calls] == ["bash"]


def test_deleting_calls_rm(demo: Script) -> None:
    [call] = say(demo, request(user("Delete the old-drafts directory with rm -rf."))).calls
    assert (call.name, call.input) == ("bash", {"command": "rm -rf old-drafts"})


def test_a_denied_deletion_is_told_with_the_hooks_words(demo: Script) -> None:
    verdict = "[denied by a hook: recursive deletion (rm -r) is not allowed]"
    answer = say(demo, after_call("Delete the old-drafts directory with rm -rf.", verdict))
    assert verdict in answer.text and not answer.calls


def test_a_deletion_that_ran_is_not_told_as_denied(demo: Script) -> None:
    answer = say(demo, after_call("Delete the old-drafts directory with rm -rf.", "(no output, exit code 0)"))
    assert "(no output, exit code 0)" in answer.text and "not allowed" not in answer.text


@pytest.mark.parametrize("name", ["todo.txt", "plan.md"])
def test_a_file_is_read_and_its_text_quoted(demo: Script, name: str) -> None:
    question = f"What is in {name}?"
    [call] = say(demo, request(user(question))).calls
    assert call.input == {"command": f"cat {name}"}
    assert "- water the plants" in say(demo, after_call(question, "- water the plants")).text


def test_the_context_does_not_choose_the_file(demo: Script) -> None:
    asked = request(
        user("What is in todo.txt?\n\n[context added by a hook]\nFiles in the workspace: notes.md, todo.txt")
    )
    assert say(demo, asked).calls[0].input == {"command": "cat todo.txt"}


@pytest.mark.parametrize("question", [FILES, "hello", "What is in todo.txt?", "Delete the old-drafts folder"])
def test_every_spoken_answer_says_that_it_is_scripted(demo: Script, question: str) -> None:
    for asked in (request(user(question)), after_call(question, "x")):
        answer = say(demo, asked)
        assert answer.calls or "(scripted answer)" in answer.text


def test_a_long_question_is_answered_in_no_time(demo: Script) -> None:
    question = "What is in todo.txt? " + "a file without the other word " * 1000
    began = time.process_time()
    [call] = say(demo, request(user(question))).calls
    assert time.process_time() - began < 0.5  # a pattern that is tried at each character takes five seconds
    assert call.input == {"command": "cat todo.txt"}


def test_the_demo_calls_no_tool_that_is_not_offered(demo: Script) -> None:
    assert say(demo, request(user("What is in todo.txt?"), tools=[])).calls == ()


def load(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "script.yaml"
    path.write_text(text, encoding="utf-8")
    return load_script(path)


def test_named_groups_and_placeholders_quote_the_request(tmp_path: Path) -> None:
    script = load(
        tmp_path, "answers:\n- question: my name is (?P<name>\\w+)\n  text: 'Hello {name}, {{name}}, ${HOME}'\n"
    )
    assert say(script, request(user("my name is Ada"))).text == "Hello Ada, {name}, ${HOME}"


def test_an_answer_given_its_times_makes_room_for_the_next(tmp_path: Path) -> None:
    script = load(tmp_path, "answers:\n- {times: 2, status: 503, body: {error: loading model}}\n- {text: ok}\n")
    answers = [script.route(request(user("x"))) for _ in range(3)]
    assert [isinstance(a, Reply) for a in answers] == [True, True, False]


def test_a_request_that_no_entry_fits_is_told_so(tmp_path: Path) -> None:
    answer = load(tmp_path, "answers:\n- {question: a, text: b}\n").route(request(user("zzz")))
    assert isinstance(answer, Reply) and answer.status == 404 and "zzz" in answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("answers: []", ": answers", "at least one"),
        ("- a", "", "a script is a mapping"),
        ("", "", "a script is a mapping"),
        ("answers: [{txet: a}]", ": answers[0].txet", "unknown key"),
        ("answers: [{question: a}]", ": answers[0]", "says nothing"),
        ("answers: [{question: '(', text: a}]", ": answers[0].question", "regular expression"),
        ("answers: [{question: 3, text: a}]", ": answers[0].question", "text is expected"),
        ("answers: [{text: '{who}'}]", ": answers[0].text", "unknown placeholder {who}"),
        ("answers: [{text: a, status: 200}]", ": answers[0].text", "does not go with"),
        ("answers: [{call: {nmae: a}}]", ": answers[0].calls[0].nmae", "unknown key"),
        ("answers: [{text: a, round: 0}]", ": answers[0].round", "1 or more"),
        ("answers: [{text: a, round: true}]", ": answers[0].round", "a whole number"),
        ("answers: [{text: a, delay: -1}]", ": answers[0].delay", "no negative number"),
        ("answers: [{raw: [3]}]", ": answers[0].raw[0]", "is expected"),
        ("anwsers: []", ": anwsers", "unknown key"),
        ("answers: [{text: a}]\nmodels: x", ": models", "a list is expected"),
        ("answers: [\n  {text: 'a}\n", ":", "not YAML"),
        ("answers:\n\t- text: a", ":2:1", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value.place).startswith(f"{tmp_path}/script.yaml{place}") and says in caught.value.message


def test_a_script_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_script(tmp_path / "binary.yaml")
