"""No ready-made hook is thrown by what it reads, and none repeats a secret that it read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import Run, program

JUDGES = ["bash-guard.js", "policy.py", "path_gate.py"]
OTHERS = ["no-secrets.js", "add-context.js", "audit.js", "redact.py", "budget.py", "test_gate.py", "relay.py"]
ARGUMENTS = {
    "path_gate.py": ["old-drafts"],
    "budget.py": ["--tokens", "10"],
    "relay.py": ["--spool", "spool", "unix:/nowhere"],
}
SECRET = "hunter2-s3cr3t"
BAD = {
    "empty": b"",
    "not JSON": f'{{"prompt": "{SECRET}'.encode(),
    "not UTF-8": b'{"prompt": "' + SECRET.encode() + b' \xff\xfe"}',
    "an array": json.dumps([SECRET]).encode(),
    "nested too deeply": b"[" * 200_000 + b"]" * 200_000,
}
WRONG_TYPES = {"event": 7, "cwd": [SECRET], "prompt": {"a": SECRET}, "tool": SECRET, "usage": SECRET, "session": 1}


@pytest.mark.parametrize("hook", JUDGES + OTHERS)
def test_an_event_that_cannot_be_read_is_never_a_yes(hook: str, run: Run) -> None:
    expected = "deny" if hook in JUDGES else "error"
    for name, data in BAD.items():
        outcome = run(hook, data, args=ARGUMENTS.get(hook, []))
        assert outcome.answer.get("action") == expected, name
        assert outcome.code == 0
        assert SECRET.encode() not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("hook", JUDGES + OTHERS)
def test_fields_of_the_wrong_type_are_an_error_that_quotes_nothing(hook: str, run: Run) -> None:
    outcome = run(hook, dict(WRONG_TYPES), args=ARGUMENTS.get(hook, []))
    assert SECRET.encode() not in outcome.stdout + outcome.stderr
    if hook != "relay.py":  # passes on whatever object it gets
        assert outcome.answer.get("action") in ("deny", "error")


def test_a_question_of_many_mebibytes_is_searched_to_its_end(run: Run) -> None:
    prompt = "All work and no play makes a long question. " * 50_000 + "My password: hunter2"
    outcome = run("no-secrets.js", {"event": "preGeneration", "cwd": "/", "prompt": prompt})
    assert outcome.answer["action"] == "stop"
    assert b"hunter2" not in outcome.stdout + outcome.stderr


def test_an_output_of_many_mebibytes_is_redacted_to_its_end(run: Run) -> None:
    output = "line of a build log, nothing in it\n" * 30_000 + "password=hunter2!\n"
    event = {"event": "postToolCall", "cwd": "/", "tool": {"id": "1", "name": "bash", "input": {}}, "output": output}
    answer = run("redact.py", event).answer
    assert answer["output"] == output.replace("hunter2!", "[redacted: a password]")


def test_lone_surrogates_and_nul_pass_through_redaction(run: Run) -> None:
    output = 'a\x00\ud800 token="abc123456" \U0010ffff'
    event = {"event": "postToolCall", "cwd": "/", "tool": {"id": "1", "name": "bash", "input": {}}, "output": output}
    assert run("redact.py", event).answer["output"] == output.replace("abc123456", "[redacted: a secret]")


@pytest.mark.parametrize("hook", ["no-secrets.js", "bash-guard.js", "policy.py", "redact.py"])
def test_a_kept_process_answers_line_by_line(hook: str, installed: Path) -> None:
    events = [
        {"event": "x", "cwd": "/", "prompt": "hi", "tool": {"name": "bash", "input": {"command": "ls"}}, "output": ""},
        {
            "event": "x",
            "cwd": "/",
            "prompt": "password: hunter2",
            "tool": {"name": "bash", "input": {"command": "rm -rf x"}},
            "output": "password: hunter2",
        },
    ]
    command = [*program(hook), str(installed / "hooks" / hook)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        answers = []
        for event in [*events, events[0]]:
            process.stdin.write(json.dumps(event).encode() + b"\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait() == 0
    assert answers[0] == {} and answers[2] == {}
    assert (
        answers[1].get("action") in ("stop", "deny") or answers[1].get("output") == "password: [redacted: a password]"
    )
