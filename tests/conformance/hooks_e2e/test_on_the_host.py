"""`where: host`: for auditing and notices, outside the sandbox."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = pytest.mark.engine

CALL = {"name": "bash", "input": {"command": "echo ran > ran"}}
ANSWERS: list[dict[str, Any]] = [{"round": 1, "call": CALL}, {"text": "Done."}]


def test_it_may_deny_and_never_rewrite(sbx, make_kit, work):
    rewrites = '{"input": {"command": "echo other > other"}, "context": "planted", "result": "planted"}'
    kit = make_kit(
        {
            "preToolCall": [
                {"command": f"cat > /dev/null; echo '{rewrites}'", "where": "host", "name": "rewriter"},
                {"command": "echo not today >&2; exit 2", "where": "host", "name": "denier", "matcher": "^jobs$"},
            ]
        },
        [
            {"round": 1, "calls": [CALL, {"name": "jobs", "input": {}}]},
            {"text": "Read: {outputs}"},
        ],
    )
    done = sbx("run", kit, work, "--demo", "-p", "go", "--grant", "host-hooks")
    assert done.code == 0, done.said
    assert [path.name for path in work.iterdir()] == ["ran"]
    assert "planted" not in done.said
    (denied,) = sbx.events("tool.denied")
    assert (denied["by"], denied["reason"]) == ("denier", "not today")


def test_it_runs_as_the_user_outside_with_the_data_on_stdin_only(sbx, make_kit, work, tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()
    command = f'cd {seen}; id -u > uid; echo "$OLDPWD" > cwd; env > env; cat > stdin; cat "$MM_CONFIG_DIR/note" > note'
    kit = make_kit({"postToolCall": [{"command": command, "where": "host"}]}, ANSWERS, files={"note": "from the kit"})
    done = sbx(
        "run", kit, work, "--demo", "-p", "go", "--grant", "host-hooks", env={"OPENAI_API_KEY": "sk-not-for-hooks"}
    )
    assert done.code == 0, done.said
    assert int((seen / "uid").read_text()) == os.getuid()
    assert (seen / "cwd").read_text() == "/\n"
    environment = (seen / "env").read_text()
    assert "sk-not-for-hooks" not in environment and str(work) not in environment
    assert '"event":"postToolCall"' in (seen / "stdin").read_text()
    assert (seen / "note").read_text() == "from the kit"


def test_a_tool_that_edits_the_hooks_script_changes_nothing(sbx, make_kit, work, tmp_path):
    """The kit's folder may lie in the workspace: what runs on the host is a copy made before any tool ran."""
    edit = {"name": "bash", "input": {"command": "echo 'touch \"$1/owned\"' > kit/audit.sh"}}
    kit = make_kit(
        {"postToolCall": [{"command": f'sh "$MM_CONFIG_DIR/audit.sh" {tmp_path}', "where": "host"}]},
        [{"round": 1, "calls": [edit, CALL]}, {"text": "Done."}],
        files={"audit.sh": 'touch "$1/audited"'},
        name="work/kit",
    )
    done = sbx("run", kit, work, "--demo", "-p", "go", "--grant", "host-hooks")
    assert done.code == 0, done.said
    assert (kit / "audit.sh").read_text().startswith('touch "$1/owned')
    assert (tmp_path / "audited").exists() and not (tmp_path / "owned").exists()


def test_a_slow_observer_holds_up_no_turn_and_is_ended_with_the_session(sbx, make_kit, work, tmp_path):
    slow = {"command": f"sleep 600; touch {tmp_path}/late", "where": "host", "timeout": "1h"}
    kit = make_kit({"postToolCall": [slow]}, ANSWERS)
    done = sbx("run", kit, work, "--demo", "-p", "go", "--grant", "host-hooks")
    assert done.code == 0, done.said
    (end,) = sbx.events("turn.end")
    assert end["ms"] < 60_000
    assert not (tmp_path / "late").exists()


def test_a_failing_one_is_told_and_with_fail_ends_the_turn(sbx, make_kit, work):
    kit = make_kit(
        {
            "postToolCall": [
                {"command": "exit 3", "where": "host", "name": "soft"},
                {"command": "exit 4", "where": "host", "name": "hard", "onError": "fail"},
            ]
        },
        ANSWERS,
    )
    done = sbx("run", kit, work, "--demo", "-p", "go", "--grant", "host-hooks")
    assert done.code == 1
    failures = {event["hook"]: event["reason"] for event in sbx.events("hook")}
    assert failures == {"soft": "exited with code 3", "hard": "exited with code 4"}
