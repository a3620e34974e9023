"""A secret in a question, in a tool's output, in what a hook writes to stderr: afterwards it is nowhere."""

from __future__ import annotations

import json

import pytest

from tests.conformance.hooks_e2e.conftest import everything_under

pytestmark = pytest.mark.engine

PASSWORD = "hunter2-Blue-Falcon"
TOKEN = "ghp_" + "Q7" * 18
OF_THE_HOOK = "ghp_" + "Z9" * 18

STOPS = """#!/usr/bin/env python3
import json, sys
asked = json.load(sys.stdin)
if "password" in asked["prompt"]:
    print("this must not be asked: " + asked["prompt"], file=sys.stderr)
    sys.exit(2)
"""
FAILS = "cat >&2; exit 1"
"""Fails, and quotes all that it was given."""


def test_none_of_three_secrets_is_kept_anywhere(sbx, make_kit, work):
    (work / "settings").write_text(f"TOKEN={TOKEN}\n")
    kit = make_kit(
        {
            "preGeneration": [
                {"command": FAILS, "name": "quotes-the-question"},
                {"command": '"$MM_CONFIG_DIR/stops.py"', "onError": "fail"},
            ],
            "preToolCall": [{"command": f"echo cannot log in with {OF_THE_HOOK} >&2; exit 1", "name": "own-secret"}],
            "postToolCall": [
                {"command": FAILS, "name": "quotes-the-output"},
                {"command": 'python3 "$SBX_HOOKS_DIR/redact.py"', "onError": "fail"},
            ],
        },
        [
            {"question": "settings", "round": 1, "call": {"name": "bash", "input": {"command": "cat settings"}}},
            {"question": "settings", "text": "It holds {output}"},
            {"text": "I know of: {question}"},
        ],
        files={"stops.py": STOPS},
        trace=True,
    )
    said = []
    stopped = sbx("run", kit, work, "--demo", "-p", f"keep my password {PASSWORD} please")
    assert stopped.code == 0, stopped.said
    said.append(stopped.said)
    first = max(sbx.sessions.iterdir()).name
    assert sbx.events("turn.blocked") and not sbx.events("model.request")

    asked = sbx("run", kit, work, "--demo", "-p", "what is in the settings?", "--resume", first)
    assert asked.code == 0, asked.said
    assert "[redacted: a GitHub token]" in asked.stdout
    said.append(asked.said)
    said += [sbx("log", *options).said for options in ((), ("--full",), ("--json",), ("--hooks",), ("--stats",))]
    resumed = sbx("run", kit, work, "--demo", "-p", "what do you know?", "--resume", first, "--json")
    assert json.loads(resumed.stdout)["answer"].startswith("I know of:")
    said.append(resumed.said)

    kept = everything_under(sbx.root / "state") + everything_under(sbx.root / "cache")
    for secret in (PASSWORD, TOKEN, OF_THE_HOOK):
        assert secret.encode() not in kept
        assert not any(secret in text for text in said)
    # What went wrong is told all the same.
    failed = {event["hook"]: event for event in sbx.events("hook") if event["verdict"] == "error"}
    assert failed.keys() == {"quotes-the-question", "own-secret", "quotes-the-output"}
    assert failed["own-secret"]["stderr"] == "cannot log in with […]\n"


def test_a_front_end_shows_each_thing_that_a_hook_did_in_one_line(sbx, make_kit, work):
    kit = make_kit(
        {
            "preGeneration": [{"command": """echo '{"prompt": "say hello"}'""", "name": "rephrase"}],
            "preToolCall": [
                {"command": """echo '{"input": {"command": "echo replaced"}}'""", "name": "replace"},
                {"command": "exit 9", "name": "broken"},
            ],
            "postToolCall": [{"command": """echo '{"output": "masked"}'""", "name": "mask"}],
        },
        [
            {"question": "^say hello$", "round": 1, "call": {"name": "bash", "input": {"command": "echo asked"}}},
            {"question": "^say hello$", "text": "Hello; {output}"},
        ],
    )
    done = sbx("run", kit, work, "--demo", "-p", "go", "--stats")
    assert done.code == 0, done.said
    assert done.stdout.startswith("Hello; masked")
    shown = [line for line in done.stderr.splitlines() if line.startswith("🪝")]
    assert shown == [
        "🪝 rephrase [rewrote the question]",
        "🪝 replace [rewrote the input]",
        "🪝 broken [failed in preToolCall: exited with code 9]",
        "🪝 mask [rewrote the output]",
    ]
    # The summary of --stats.
    assert "hooks:   4 (1 error, 3 rewrite)" in done.stderr
    table = sbx("log", "--hooks").stdout.splitlines()
    assert table[0].split() == ["TIME", "EVENT", "HOOK", "VERDICT", "MS", "REASON"]
    assert [line.split()[1:4] for line in table[1:]] == [
        ["preGeneration", "rephrase", "rewrite"],
        ["preToolCall", "replace", "rewrite"],
        ["preToolCall", "broken", "error"],
        ["postToolCall", "mask", "rewrite"],
    ]
    document = json.loads(sbx("run", kit, work, "--demo", "-p", "go", "--json").stdout)
    assert document["answer"].startswith("Hello; masked")
