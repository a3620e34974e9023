"""What a user gets wrong: one clear message, the right code, nothing started, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from runner.scripted.answers import Pause, Raw
from runner.scripted.server import ScriptedServer
from tests.conformance.main.conftest import Done, Sbx

pytestmark = pytest.mark.engine


def one_message(done: Done, code: int, *said: str) -> None:
    assert done.code == code, done.said
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "agent.yaml"),
        (b"\x00\x01\x02binary", "agent.yaml"),
        (b"- a list", "mapping"),
        (b"model: m\n\tprovider: llmman\n", "tab"),
        (b"modle: m\n", "model"),
        (b"maxTurns: many\n", "maxTurns"),
        (b"hooks:\n  preToolcall:\n    - command: 'true'\n", "preToolCall"),
        (b"hooks:\n  preToolCall:\n    - command: ''\n", "hooks.preToolCall[0]"),
        (b"\xff\xfem\x00o\x00", "UTF-8"),
    ],
    ids=["empty", "binary", "list", "tab", "unknown key", "wrong type", "unknown event", "empty command", "UTF-16"],
)
def test_an_agent_file_that_is_wrong_is_code_2_and_named(sbx: Sbx, kit: Path, content: bytes, said: str) -> None:
    (kit / "agent.yaml").write_bytes(content)
    one_message(sbx("run", kit, sbx.root / "work", "--demo", "-p", "x"), 2, "[config error: ", str(kit), said)
    assert not sbx.sessions.exists()


def test_a_folder_without_a_kit_is_code_2(sbx: Sbx, kit: Path) -> None:
    (kit / "agent.yaml").unlink()
    one_message(sbx("run", kit, "--demo", "-p", "x"), 2, "neither spec.yaml nor agent.yaml")


def test_an_unknown_name_is_code_3_and_near_ones_are_listed(sbx: Sbx) -> None:
    one_message(sbx("run", "hook-demo", "--demo", "-p", "x"), 3, "hook-demo", "hooks-demo")


def test_a_workspace_that_is_no_folder(sbx: Sbx, kit: Path) -> None:
    file = sbx.root / "file"
    file.write_text("")
    one_message(sbx("run", kit, file, "--demo", "-p", "x"), 2, "is a file")
    one_message(sbx("run", kit, sbx.root / "nowhere", "--demo", "-p", "x"), 2, "does not exist")


@pytest.mark.parametrize("where", ["/", "home"])
def test_the_root_and_the_home_are_refused_without_a_grant(sbx: Sbx, kit: Path, where: str) -> None:
    home = sbx.root / "home"
    home.mkdir()
    done = sbx("run", kit, "/" if where == "/" else home, "--demo", "-p", "x", env={"HOME": str(home)})
    one_message(done, 6, "--grant home-workspace")


def test_a_question_that_is_empty(sbx: Sbx, kit: Path) -> None:
    one_message(sbx("run", kit, "--demo", "-p", ""), 2, "empty")
    one_message(sbx("run", kit, "--demo", "-p", "-", stdin=" \n"), 2, "empty")
    one_message(sbx("run", kit, "--demo", "-p", "@nowhere.txt"), 2, "nowhere.txt")


def test_no_terminal_and_no_question(sbx: Sbx, kit: Path) -> None:
    one_message(sbx("run", kit, "--demo"), 2, "no terminal", "-p")


def test_no_engine(sbx: Sbx, kit: Path) -> None:
    done = sbx("run", kit, sbx.root / "work", "--demo", "-p", "x", env={"DOCKER_HOST": f"unix://{sbx.root}/no.sock"})
    one_message(done, 4, f"{sbx.root}/no.sock", "DOCKER_HOST")


def test_json_stays_json_when_something_is_wrong(sbx: Sbx, kit: Path) -> None:
    import json

    done = sbx("run", "no-such-kit", "--json", "--demo", "-p", "x")
    assert done.code == 3
    assert json.loads(done.stdout)["error"]["code"] == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_mid_turn_ends_all_of_it(sbx: Sbx, kit: Path, number: signal.Signals, code: int) -> None:
    with ScriptedServer(lambda request: Raw([Pause(60)])) as server:
        run = subprocess.Popen(
            sbx.command("run", kit, sbx.root / "work", "--base-url", server.url, "--model", "scripted", "-p", "x"),
            env=sbx.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not server.chats and run.poll() is None:
            assert time.monotonic() < deadline, "the question never reached the model"
            os.sched_yield()
        run.send_signal(number)
        stdout, stderr = run.communicate(timeout=30)
        assert server.chats[0].gone.wait(5)
    assert run.returncode == code, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert sbx.events("session.end") == [{"status": "interrupted", "code": code}]


def test_a_reader_that_goes_away_ends_the_run_quietly(sbx: Sbx, kit: Path) -> None:
    command = " ".join(map(str, sbx.command("run", kit, sbx.root / "work", "--demo", "-q", "-p", "hello")))
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        env=sbx.env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1)
    assert done.stderr == ""


def test_a_run_that_takes_too_long_is_code_124(sbx: Sbx, kit: Path) -> None:
    with ScriptedServer(lambda request: Raw([Pause(60)])) as server:
        done = sbx("run", kit, sbx.root / "work", "--base-url", server.url, "--model", "m", "--timeout", "4", "-p", "x")
    one_message(done, 124, "4 s")
