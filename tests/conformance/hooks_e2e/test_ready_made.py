"""The ready-made hooks in a real run, asked by a scripted model."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

SECONDS = 30.0


def python(name: str, arguments: str = "") -> str:
    return f'python3 "$SBX_HOOKS_DIR/{name}.py" {arguments}'.strip()


def bash(command: str) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command}}


def test_policy_path_gate_and_redact_guard_one_run(sbx, make_kit, work):
    token = "ghp_" + "a1B2" * 9
    (work / "settings").write_text(f"TOKEN={token}\n")
    (work / "closed").mkdir()
    (work / "closed" / "draft").write_text("x")
    kit = make_kit(
        {
            "preToolCall": [
                {"command": python("policy"), "matcher": "^bash$", "onError": "fail"},
                {"command": python("path_gate", "closed"), "onError": "fail"},
            ],
            "postToolCall": [{"command": python("redact"), "onError": "fail"}],
        },
        [
            {
                "round": 1,
                "calls": [
                    bash("r'm' -rf closed"),
                    bash("echo x > closed/../closed/draft"),
                    bash("cat settings"),
                    bash("cd closed && touch new"),
                ],
            },
            {"round": 2, "text": "It holds {outputs}"},
        ],
    )
    done = sbx("run", kit, work, "--demo", "-p", "go")
    assert done.code == 0, done.said
    assert [(denied["by"], denied["reason"]) for denied in sbx.events("tool.denied")] == [
        ("policy-hook", "recursive deletion (rm -r) is not allowed"),
        ("path_gate", "writes under closed are not allowed"),
        ("path_gate", "writes under closed are not allowed"),
    ]
    assert (work / "closed" / "draft").read_text() == "x"
    assert [path.name for path in (work / "closed").iterdir()] == ["draft"]
    (ran,) = sbx.events("tool.end")
    assert "[redacted: a GitHub token]" in ran["output"] and set(ran["original"]) == {"bytes", "sha256"}
    assert token not in done.said
    # One line each for the people who watch.
    assert "🪝 bash [denied by a hook: recursive deletion (rm -r) is not allowed]" in done.stderr
    assert "🪝 redact [rewrote the output]" in done.stderr


def test_a_spent_budget_ends_the_turn(sbx, make_kit, work):
    budget = {"command": python("budget", "--tokens 300"), "onError": "fail"}
    kit = make_kit(
        {"preGeneration": [budget], "preToolCall": [budget]},
        [{"round": 1, "calls": [bash("echo first"), bash("echo " + "x" * 1200)]}, {"text": "on and on"}],
    )
    done = sbx("run", kit, work, "--demo", "-p", "go", "--json")
    assert [call["input"]["command"] for call in sbx.events("tool.start")] == ["echo first"]
    (denied,) = sbx.events("tool.denied")
    assert denied["reason"].startswith("the turn's budget is spent: about ")
    (end,) = sbx.events("turn.end")
    assert (end["status"], end["reason"], end["rounds"]) == ("completed", "terminated", 1)
    assert done.code == 0, done.said


def test_the_turn_ends_only_when_the_tests_pass(sbx, make_kit, work):
    kit = make_kit(
        {"stop": [{"command": python("test_gate", "-- test -e fixed"), "onError": "fail", "timeout": "60s"}]},
        [
            {"question": "(?s)tests.*fail", "round": 1, "call": bash("touch fixed")},
            {"question": "(?s)tests.*fail", "text": "Fixed."},
            {"text": "I think it works."},
        ],
    )
    done = sbx("run", kit, work, "--demo", "-p", "go")
    assert done.code == 0, done.said
    assert (work / "fixed").exists()
    assert [event["verdict"] for event in sbx.events("hook")] == ["deny", "continue"]
    assert len(sbx.events("turn.pushed")) == 1


class TestRelay:
    """`relay.py` runs on the host: it reaches a socket that nothing in the sandbox can."""

    @pytest.fixture
    def listener(self, tmp_path: Path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(tmp_path / "s"))
            server.settimeout(SECONDS)
            server.listen(64)
            yield server

    def kit(self, make_kit, tmp_path: Path) -> Path:
        command = python("relay", f"--spool {tmp_path / 'spool'} unix:{tmp_path / 's'}")
        relay = {"command": command, "where": "host"}
        events = ("sessionStart", "preGeneration", "preToolCall", "postToolCall", "postGeneration", "sessionEnd")
        return make_kit(
            {event: [relay] for event in events},
            [{"round": 1, "calls": [bash("echo 1"), bash("echo 2")]}, {"text": "Done."}],
        )

    def test_it_needs_a_grant(self, sbx, make_kit, tmp_path, work):
        done = sbx("run", self.kit(make_kit, tmp_path), work, "--demo", "-p", "go")
        assert done.code == 6
        assert "host-hooks" in done.stderr

    def test_every_event_arrives_in_order(self, sbx, make_kit, tmp_path, work, listener):
        done = sbx("run", self.kit(make_kit, tmp_path), work, "--demo", "-p", "go", "--grant", "host-hooks")
        assert done.code == 0, done.said
        arrived = []
        while not arrived or arrived[-1]["event"] != "sessionEnd":
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                arrived.append(json.loads(file.read()))
        assert [event["event"] for event in arrived] == [
            "sessionStart",
            "preGeneration",
            "preToolCall",
            "postToolCall",
            "preToolCall",
            "postToolCall",
            "postGeneration",
            "sessionEnd",
        ]
        assert [event["output"] for event in arrived if event["event"] == "postToolCall"] == ["1", "2"]
        assert {event["verdict"] for event in sbx.events("hook")} == {"continue"}
