"""`sbx hook import`: Claude Code's settings become our `hooks:` block, and what does not carry over is told."""

from __future__ import annotations

import json

import pytest

from runner.errors import ConfigError
from runner.kits.agent import load
from runner.kits.claude import import_claude_settings


@pytest.fixture
def imported(tmp_path):
    def run(hooks: object):
        file = tmp_path / "settings.json"
        file.write_text(json.dumps({"hooks": hooks}))
        text, warnings = import_claude_settings(file)
        (tmp_path / "agent.yaml").write_text(text)
        return load(tmp_path / "agent.yaml").to_wire().hooks, warnings

    return run


def settings(event: str, matcher: object = None, **hook: object) -> dict:
    group: dict = {"hooks": [{"type": "command", "command": "./guard.py", **hook}]}
    if matcher is not None:
        group["matcher"] = matcher
    return {event: [group]}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("UserPromptSubmit", "preGeneration"),
        ("PreToolUse", "preToolCall"),
        ("PermissionRequest", "permissionRequest"),
        ("PostToolUse", "postToolCall"),
        ("Stop", "stop"),
        ("SessionStart", "sessionStart"),
        ("SessionEnd", "sessionEnd"),
    ],
)
def test_events_carry_over_and_speak_the_dialect(imported, theirs, ours):
    (hook,), warnings = imported(settings(theirs))
    assert (hook.event, hook.dialect, hook.command) == (ours, "claude", "./guard.py")
    assert warnings == []


@pytest.mark.parametrize("event", ["PreCompact", "SubagentStop", "Notification", "PostToolUseFailure"])
def test_an_event_that_is_not_here_is_left_out_and_told(imported, event):
    hooks, warnings = imported(settings(event))
    assert hooks == ()
    assert warnings == [f"{event}: there is no such event here; left out"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Bash", "^Bash$"),  # a plain name is exact there, and ours are searched
        ("Edit|Write", "^(Edit|Write)$"),
        ("mcp__.*", "mcp__.*"),
        ("*", None),
        ("", None),
        (None, None),
        ("(?<tool>Bash).*", "(?P<tool>Bash).*"),
    ],
)
def test_matchers_keep_their_meaning(imported, theirs, ours):
    (hook,), warnings = imported(settings("PreToolUse", theirs))
    assert hook.matcher == ours
    assert warnings == []


def test_an_expression_that_is_none_here_makes_the_guard_run_for_every_tool(imported):
    (hook,), warnings = imported(settings("PreToolUse", r"[\p{L}"))
    assert hook.matcher is None
    assert "runs for every tool" in warnings[0]


def test_timeouts_are_seconds_and_a_minute_by_default(imported):
    assert imported(settings("PreToolUse", timeout=5))[0][0].timeout == 5
    assert imported(settings("PreToolUse"))[0][0].timeout == 60


def test_a_timeout_that_is_none_is_told(imported):
    (hook,), warnings = imported(settings("PreToolUse", timeout=-1))
    assert hook.timeout == 60
    assert "timeout -1" in warnings[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "prompt"}, "only commands"),
        ({"type": "http"}, "only commands"),
        ({"async": True}, "`async` does not carry over"),
        ({"if": "Bash(git *)"}, "`if` does not carry over"),
        ({"command": "~/.claude/hooks/g.sh"}, "beside agent.yaml"),
        ({"command": "$CLAUDE_PROJECT_DIR/.claude/hooks/g.sh"}, "lies in the workspace"),
        ({"command": "${CLAUDE_PLUGIN_ROOT}/g.sh"}, "is not there in a sandbox"),
        ({"command": ""}, "has no command"),
    ],
)
def test_what_does_not_carry_over_is_told(imported, change, said):
    _, warnings = imported(settings("PreToolUse", **change))
    assert any(said in warning for warning in warnings)


def test_a_command_with_quotes_and_line_breaks_arrives_as_it_was(imported):
    command = "sh -c 'echo \"$X\" # 1: {a}\n\ttrue'  \\ \u2028 é"
    (hook,), _ = imported(settings("PreToolUse", command=command))
    assert hook.command == command


def test_nothing_to_import_gives_an_empty_block(imported):
    assert imported({}) == ((), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "holds no `hooks` object"),
        ("{}", "holds no `hooks` object"),
        ('{"hooks": []}', "holds no `hooks` object"),
        ('{"hooks": {"Stop": {}}}', "must be a list"),
        ('{"hooks": {"Stop": [{}]}}', "must be an object with a list `hooks`"),
    ],
)
def test_a_file_that_is_no_such_settings_is_refused(tmp_path, text, said):
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        import_claude_settings(file)
