"""`sbx hook`: try one, import another agent's, list a chain."""

from __future__ import annotations

import json
import os

import pytest
import yaml

pytestmark = pytest.mark.engine

GUARD = """#!/usr/bin/env python3
import json, os, sys
asked = json.load(sys.stdin)
print("uid", os.getuid(), "home", os.listdir(os.environ["HOME"]), file=sys.stderr)
if "rm" in asked["tool"]["input"]["command"]:
    print(json.dumps({"action": "deny", "reason": "no removing in " + asked["cwd"]}))
"""


@pytest.fixture
def guard(tmp_path):
    file = tmp_path / "guard.py"
    file.write_text(GUARD)
    return file


def test_a_file_is_run_as_in_a_run(sbx, guard):
    ask = ("hook", "test", guard, "--event", "preToolCall", "--tool", "bash")
    done = sbx(*ask, "--input", '{"command": "rm x"}', "--json", "--expect", "deny")
    assert done.code == 0, done.said
    found = json.loads(done.stdout)
    assert (found["verdict"], found["exit"], found["hook"]) == ("deny", 0, "guard")
    assert found["reason"].startswith("no removing in /")
    assert found["stderr"] == "uid 64001 home []\n"
    assert found["ms"] > 0
    other = sbx(*ask, "--input", '{"command": "ls"}', "--expect", "deny")
    assert other.code == 7
    assert "verdict  continue" in other.stdout
    assert not list(sbx.sessions.iterdir()), "trying a hook is no session"


def test_the_samples_of_a_ready_made_hook_are_compared(sbx):
    done = sbx("hook", "test", "redact", "--samples")
    assert done.code == 0, done.said
    assert done.stdout.splitlines()[-1] == "7 of 7 samples as expected"


def test_a_hook_that_answers_otherwise_than_its_sample_is_code_7(sbx, monkeypatch, tmp_path):
    from runner.cli import hook_trying
    from runner.kits import readymade

    real = readymade.samples

    def wrong(program):
        return [readymade.Sample(s.name, s.given, s.args, '{"action": "deny"}') for s in real(program)[:1]]

    monkeypatch.setattr(readymade, "samples", wrong)
    monkeypatch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path / "state"))
    (result,) = hook_trying.run_samples(readymade.find_program("redact"), "")
    assert not result["ok"]
    assert result["expected"] == {"action": "deny"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["redakt", "--tool", "bash"], 3, "did you mean redact"),
        (["./missing.py", "--tool", "bash"], 3, "there is no such file"),
        (["redact"], 2, "which event?"),
        (["redact", "--event", "preTool"], 2, "did you mean preToolCall"),
        (["redact", "--event", "preToolCall"], 2, "is about a tool"),
        (["redact", "--tool", "bash", "--input", "{"], 2, "--input is not JSON"),
        (["redact", "--tool", "bash", "--input", "@none.json"], 2, "cannot be read"),
        (["redact", "--tool", "bash", "--timeout", "0"], 2, "not a positive duration"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(sbx, arguments, code, said):
    done = sbx("hook", "test", *arguments)
    assert (done.code, done.stdout) == (code, "")
    assert said in done.stderr


def test_claude_codes_settings_become_a_block_that_runs(sbx, make_kit, work, tmp_path):
    settings = {
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "Bash",
                    "hooks": [{"type": "command", "command": "grep -q secret && { echo no >&2; exit 2; }; exit 0"}],
                }
            ],
            "Notification": [{"hooks": [{"type": "command", "command": "true"}]}],
        }
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    done = sbx("hook", "import", tmp_path / "settings.json")
    assert done.code == 0
    assert "warning: Notification: there is no such event here" in done.stderr
    hooks = yaml.safe_load(done.stdout)["hooks"]
    calls = [{"name": "bash", "input": {"command": f"echo {word} > {word}"}} for word in ("secret", "plain")]
    kit = make_kit(hooks, [{"round": 1, "calls": calls}, {"text": "Done."}])
    ran = sbx("run", kit, work, "--demo", "-p", "go")
    assert ran.code == 0, ran.said
    assert [path.name for path in work.iterdir()] == ["plain"]
    listed = json.loads(sbx("hook", "ls", kit, "--json").stdout)
    assert [(row["event"], row["matcher"], row["dialect"]) for row in listed] == [("preToolCall", "^Bash$", "claude")]


def test_the_chain_is_listed_in_the_order_it_runs(sbx, make_kit):
    audit = {"command": "cat >> log", "where": "host", "name": "audit"}
    kit = make_kit(
        {"preToolCall": [{"command": "python3 a.py", "timeout": "5s", "onError": "fail"}], "postToolCall": [audit]}, []
    )
    done = sbx("hook", "ls", kit, "--hook", "preToolCall=./b.sh", "--json")
    assert done.code == 0, done.said
    rows = json.loads(done.stdout)
    assert [(r["event"], r["name"], r["user"], r["onError"], r["timeout"], r["source"]) for r in rows] == [
        ("preToolCall", "a", "hook", "fail", 5.0, "agent"),
        ("preToolCall", "b", "hook", "warn", 10.0, "command line"),
        ("postToolCall", "audit", "you, on the host", "warn", 10.0, "agent"),
    ]
    shown = sbx("hook", "ls", kit).stdout.splitlines()
    assert shown[0].split() == ["EVENT", "NAME", "MATCHER", "USER", "ONERROR", "TIMEOUT", "SOURCE", "COMMAND"]
    assert len(shown) == 3


def test_a_kept_sandbox_is_known_by_its_name(sbx, make_kit, work):
    kit = make_kit({"stop": [{"command": "true", "name": "last-word"}]}, [{"text": "Hello."}])
    made = sbx("run", kit, work, "--demo", "-p", "go", "--keep", "--name", "hooked")
    assert made.code == 0, made.said
    try:
        done = sbx("hook", "ls", "hooked", "--json")
        assert done.code == 0, done.said
        assert [row["name"] for row in json.loads(done.stdout)] == ["last-word"]
    finally:
        assert sbx("rm", "hooked").code == 0
