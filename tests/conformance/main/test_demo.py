"""The demo's four questions, as the README shows them."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest

from runner.scripted.script import DEMO, load_script
from runner.scripted.server import ScriptedServer
from tests.conformance.main.conftest import Done, Sbx

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("demo_image")]

SECRET = "My password: hunter2 — can you store it in a file?"
FILES = "Which files are here, and what is today's date?"
DELETE = "Delete the old-drafts directory with rm -rf."
TODO = "What is in todo.txt?"


@pytest.fixture(params=["--demo", "a server on the host's loopback"])
def ask(request: pytest.FixtureRequest, sbx: Sbx, playground: Path):  # type: ignore[no-untyped-def]
    """Asks the demo agent, with the built-in model and with any server on this host's 127.0.0.1."""
    if request.param == "--demo":
        yield lambda question: sbx("run", "hooks-demo", playground, "--demo", "-p", question)
        return
    with ScriptedServer(load_script(DEMO)) as server:
        yield lambda question: sbx(
            "run", "hooks-demo", playground, "--base-url", server.url, "--model", "scripted", "-p", question
        )


def test_the_files_and_the_date_come_from_a_hook(ask, playground: Path) -> None:  # type: ignore[no-untyped-def]
    (playground / "todo.txt").rename(playground / "renamed.txt")
    done: Done = ask(FILES)
    assert done.code == 0
    for expected in ("notes.md", "old-drafts", "renamed.txt", datetime.date.today().isoformat()):
        assert expected in done.stdout
    assert "todo.txt" not in done.stdout


def test_a_denied_call_is_shown_and_did_not_run(ask, playground: Path) -> None:  # type: ignore[no-untyped-def]
    done: Done = ask(DELETE)
    assert done.code == 0
    assert "🪝 bash [denied by a hook: recursive deletion (rm -r) is not allowed]" in done.stderr
    assert "[denied by a hook: recursive deletion (rm -r) is not allowed]" in done.stdout
    assert (playground / "old-drafts" / "draft1.txt").is_file()


def test_a_tool_call_and_a_turn_are_audited_in_a_file_of_the_owners(ask, playground: Path) -> None:  # type: ignore[no-untyped-def]
    os.chown(playground, 1234, 1234)
    for path in playground.rglob("*"):
        os.chown(path, 1234, 1234)
    done: Done = ask(TODO)
    assert done.code == 0
    text = (playground / "todo.txt").read_text().rstrip("\n")
    assert text in done.stdout
    audit = playground / ".mm" / "hooks-audit.jsonl"
    call, turn = map(json.loads, audit.read_text().splitlines())
    assert (call["event"], call["tool"], call["input"]) == ("postToolCall", "bash", {"command": "cat todo.txt"})
    assert call["output"] == text
    assert (turn["event"], turn["prompt"]) == ("postGeneration", TODO)
    assert audit.stat().st_uid == 1234


def test_a_stopped_question_reaches_no_model_and_stays_nowhere(sbx: Sbx, playground: Path) -> None:
    with ScriptedServer(load_script(DEMO)) as server:
        done = sbx("run", "hooks-demo", playground, "--base-url", server.url, "--model", "scripted", "-p", SECRET)
        assert server.requests == []
    assert done.code == 0
    assert done.stdout.startswith("🔐")
    assert "a password" in done.stdout
    assert "never saw the question" in done.stdout
    assert "hunter2" not in done.said
    kept = [path for path in sbx.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert kept == []
    assert sbx.events("turn.blocked")[0]["reason"] == "the question holds a password"


def test_a_secret_that_passes_would_be_found(sbx: Sbx, playground: Path) -> None:
    """The search above can find what is there: a harmless word is in the record."""
    sbx("run", "hooks-demo", playground, "--demo", "-p", "What is in todo.txt? hunting")
    assert any(b"hunting" in path.read_bytes() for path in sbx.sessions.rglob("*") if path.is_file())
