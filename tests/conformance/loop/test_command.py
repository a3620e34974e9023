"""The same through the real command: what needs the wire, the container and the record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.scripted import Call, Request, Say, Script, ScriptedServer
from tests.conformance.main.conftest import REPO, Done, Sbx, engine, kit, sbx  # noqa: F401 - fixtures
from tests.unit.frontends.terminal_driver import TerminalProgram

pytestmark = pytest.mark.engine

SERVER = Path(__file__).with_name("mcp_server.py").read_text()


def call(name: str, /, **given: Any) -> Say:
    return Say(calls=[Call(name, given)])


class Model:
    """A scripted server whose answers are given one after the other, the last for ever."""

    def __init__(self) -> None:
        self.answers: list[Say] = []
        self.asked = threading.Event()
        self.server = ScriptedServer(Script(self._answer))

    def _answer(self, request: Request) -> Say:
        self.asked.set()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    with made.server:
        yield made


Ask = Callable[..., Done]


@pytest.fixture
def ask(sbx: Sbx, kit: Path, model: Model) -> Ask:  # noqa: F811
    """Asks one question of the kit's agent; further lines for its `agent.yaml`, then the model's answers."""

    def run(more: str, *answers: Say, prompt: str = "q", options: tuple[str, ...] = ()) -> Done:
        (kit / "agent.yaml").write_text(f"provider: llmman\nmodel: scripted\n{more}")
        model.answers[:] = answers
        return sbx("run", kit, kit.parent / "work", "--base-url", model.server.url, *options, "-p", prompt)

    return run


def outputs(model: Model) -> list[str]:
    return [m["content"] for m in model.server.chats[-1].messages if m["role"] == "tool"]


def test_the_edit_tools_are_offered_and_those_that_can_do_nothing_here_are_not(ask: Ask, model: Model) -> None:
    assert ask("", Say("ok")).code == 0
    offered = set(model.server.chats[0].tools)
    assert {"bash", "read_file", "write_file", "edit_file", "list_files", "search", "plan"} <= offered
    assert not {"ask_user", "fetch_content", "read_skill"} & offered


def test_instructions_reach_the_prompt_and_a_skill_is_read(ask: Ask, model: Model, kit: Path) -> None:  # noqa: F811
    (kit.parent / "work" / "AGENTS.md").write_text("Use tabs.")
    (kit / "skills" / "pdf").mkdir(parents=True)
    (kit / "skills" / "pdf" / "SKILL.md").write_text("---\nname: pdf\ndescription: Fill in forms.\n---\nStep one.\n")
    (kit / "style.md").write_text("Be brief.")
    done = ask("context: style.md\n", call("read_skill", name="pdf"), Say("ok"))
    assert done.code == 0
    assert "AGENTS.md: about 3 tokens" in done.stderr
    system = model.server.chats[0].system
    assert "Use tabs." in system and "Be brief." in system and "- pdf: Fill in forms." in system
    assert "Step one." in outputs(model)[0]


def test_an_mcp_server_runs_in_the_sandbox_as_the_owner(ask: Ask, model: Model, kit: Path) -> None:  # noqa: F811
    (kit / "server.py").write_text(SERVER)
    work = kit.parent / "work"
    os.chown(work, 1234, 1234)
    more = 'mcp: {t: {command: [python3, /run/sbx/config/server.py], env: {MARK: hello}, deny: ["h*"]}}\n'
    done = ask(more, call("t__env"), Say("ok"))
    assert done.code == 0, done.said
    assert "t__echo" in model.server.chats[0].tools
    assert "t__hang" not in model.server.chats[0].tools
    assert outputs(model) == [f"1234 hello {work}"]


def test_an_mcp_server_that_dies_is_told_and_the_turn_goes_on(ask: Ask, model: Model, kit: Path) -> None:  # noqa: F811
    (kit / "server.py").write_text(SERVER)
    done = ask(
        "mcp: {t: {command: [python3, /run/sbx/config/server.py]}}\n",
        call("t__die"),
        call("t__echo", text="alive"),
        Say("ok"),
    )
    assert done.code == 0, done.said
    assert outputs(model)[1] == "alive"
    assert "the MCP server t ended with code 3 (going down); it is started again" in done.stderr


def test_structured_output_is_valid_on_stdout_or_the_code_is_1(ask: Ask) -> None:
    more = "structuredOutput: {type: object, required: [count], properties: {count: {type: integer}}}\n"
    done = ask(more, Say("three"), Say('```json\n{"count": 3}\n```'))
    assert (done.code, json.loads(done.stdout)) == (0, {"count": 3})
    done = ask(more, Say("three"))
    assert done.code == 1
    assert "not as structuredOutput wants it" in done.stderr


def test_a_schema_that_is_none_is_code_2(ask: Ask) -> None:
    done = ask("structuredOutput: {type: nothing}\n", Say("x"))
    assert done.code == 2
    assert "structuredOutput" in done.stderr


def test_a_trace_holds_every_request_and_answer(ask: Ask, sbx: Sbx, model: Model) -> None:  # noqa: F811
    assert ask("trace: {enabled: true}\n", call("bash", command="echo hello"), Say("the answer")).code == 0
    folder = max(sbx.sessions.iterdir()) / "trace"
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    chats = [line for line in index if line["url"].endswith("/chat/completions")]
    assert [line["status"] for line in chats] == [200, 200]
    for line, chat in zip(chats, model.server.chats, strict=True):
        assert json.loads((folder / f"{line['number']:06d}-request.json").read_text()) == chat.json
    assert '"the answer' in (folder / f"{chats[1]['number']:06d}-answer.txt").read_text().replace('"content":"', '"')
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_without_trace_there_is_none(ask: Ask, sbx: Sbx) -> None:  # noqa: F811
    ask("", Say("ok"))
    assert not (max(sbx.sessions.iterdir()) / "trace").exists()


def test_a_session_killed_in_mid_tool_is_resumed_and_nothing_runs_twice(
    ask: Ask,
    sbx: Sbx,  # noqa: F811
    kit: Path,  # noqa: F811
    model: Model,
) -> None:
    work = kit.parent / "work"
    work.chmod(0o777)
    model.answers[:] = [call("bash", command="echo ran >> ran; sleep 300")]
    arguments = ("run", kit, work, "--base-url", model.server.url)
    process = subprocess.Popen(
        sbx.command(*arguments, "-p", "do it"), env=sbx.env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not (work / "ran").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    model.answers[:] = [Say("I look first")]
    done = sbx(*arguments, "--continue", "-p", "and now?")
    assert (done.code, done.stdout.strip()) == (0, "I look first"), done.said
    assert (work / "ran").read_text() == "ran\n"
    messages = model.server.chats[-1].messages[1:]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["content"].startswith("[no result: the session ended while this call ran")
    assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]
    assert len(list(sbx.sessions.iterdir())) == 1


def test_a_stopped_question_never_comes_back_with_a_resume(sbx: Sbx, kit: Path, model: Model) -> None:  # noqa: F811
    model.answers[:] = [Say("hello")]
    hook = ("--hook", "preGeneration=grep -q hunter2 && { echo no passwords >&2; exit 2; }; exit 0")
    arguments = ("run", kit, kit.parent / "work", "--base-url", model.server.url, *hook)
    assert sbx(*arguments, "-p", "my password is hunter2").code == 0
    done = sbx(*arguments, "--continue", "-p", "what did I say?")
    assert done.code == 0, done.said
    assert not any(b"hunter2" in chat.body for chat in model.server.chats)
    assert "prompt blocked by a hook" in model.server.chats[-1].messages[1]["content"]


def test_a_conversation_is_compacted_left_and_taken_up_again(
    sbx: Sbx,  # noqa: F811
    kit: Path,  # noqa: F811
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = kit.parent / "work"
    arguments = ("run", kit, work, "--base-url", model.server.url, "--rm")
    model.answers[:] = [Say("the first answer")]
    assert sbx(*arguments, "-p", "the first question").code == 0
    (first,) = sbx.sessions.iterdir()
    for name, value in sbx.env().items():
        monkeypatch.setenv(name, value)
    terminal = TerminalProgram("runner", [str(each) for each in arguments])
    try:
        terminal.has_on_screen("/help lists")
        terminal.type("/sessions\r")
        terminal.has_on_screen(f"{first.name}  1 turn, completed")
        terminal.type("/resume nothing-like-it\r")
        terminal.has_on_screen("no session 'nothing-like-it'")
        terminal.type(f"/resume {first.name}\r")
        terminal.has_on_screen(f"session {first.name} goes on here: 2 messages")
        model.answers[:] = [Say("the second answer")]
        terminal.type("the second question\r")
        terminal.has_on_screen("the second answer")
        assert [m["content"] for m in model.server.chats[-1].messages[1:]] == [
            "the first question",
            "the first answer",
            "the second question",
        ]
        model.answers[:] = [Say("all of it, in short")]
        terminal.type("/compact\r")
        terminal.has_on_screen("compacted: 4 messages became a summary")
        model.answers[:] = [Say("the third answer")]
        terminal.type("the third question\r")
        terminal.has_on_screen("the third answer")
        terminal.type("\x04")
        assert terminal.ends() == 0
    finally:
        terminal.close()
    record = [json.loads(line) for line in (first / "record.jsonl").read_text().splitlines()]
    assert sum(line["name"] == "turn.end" for line in record) == 3
    assert record[-1]["name"] == "session.end"
    model.answers[:] = [Say("the fourth answer")]
    assert sbx(*arguments, "--resume", first.name, "-p", "the fourth question").code == 0
    sent = model.server.chats[-1].messages[1:]
    assert sent[0]["content"].endswith("all of it, in short")
    assert [m["content"] for m in sent[2:]] == ["the third question", "the third answer", "the fourth question"]
