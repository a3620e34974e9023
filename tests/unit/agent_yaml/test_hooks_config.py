"""*Configuration* of the reference: hooks in `agent.yaml`, in a mixin's `hooks.yaml`, and on the command line."""

from __future__ import annotations

import pytest

from runner.errors import ConfigError, UsageError
from runner.kits.agent import host_hooks, load
from runner.kits.hooks import counts, load_hooks, parse_hook_options, program_name
from runner.wire.agent import Hook


@pytest.fixture
def hooks(tmp_path):
    def reader(text: str) -> tuple[Hook, ...]:
        file = tmp_path / "agent.yaml"
        file.write_text(text)
        return load(file).to_wire().hooks

    return reader


@pytest.fixture
def refused(hooks, tmp_path):
    def refusal(text: str) -> str:
        with pytest.raises(ConfigError) as error:
            hooks(text)
        message = str(error.value)
        prefix = f"[config error: {tmp_path / 'agent.yaml'}: "
        assert message.startswith(prefix)
        return message.removeprefix(prefix)

    return refusal


EXAMPLE = """
hooks:
  preToolCall:
    - matcher: ^bash$
      command: node "$SBX_HOOKS_DIR/bash-guard.js"
      timeout: 5s
      onError: fail
"""


def test_the_references_example(hooks):
    (hook,) = hooks(EXAMPLE)
    assert hook.event == "preToolCall"
    assert hook.matcher == "^bash$"
    assert hook.command == 'node "$SBX_HOOKS_DIR/bash-guard.js"'
    assert (hook.timeout, hook.on_error, hook.name, hook.user) == (5.0, "fail", "bash-guard", "hook")


def test_the_defaults(hooks):
    (hook,) = hooks("hooks: {preToolCall: [{command: x}]}")
    assert (hook.timeout, hook.on_error, hook.dialect, hook.persistent, hook.where) == (
        10,
        "warn",
        "",
        False,
        "sandbox",
    )


class TestRefused:
    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("{command: ''}", "`command`: the command is empty"),
            ("{command: '  '}", "`command`: the command is empty"),
            ("{}", "`command`: is required"),
            ("{comand: x}", "unknown key 'comand'; did you mean command?"),
            ("{command: [a, b]}", "`command`: must be a text"),
            ("{command: x, matcher: '('}", "`matcher`: '(' is not a valid regular expression"),
            ("{command: x, timeout: 0}", "`timeout`: 0 is not a positive duration"),
            ("{command: x, timeout: -5s}", "`timeout`: '-5s' is not a positive duration"),
            ("{command: x, timeout: 1000h}", "longer than a day"),
            ("{command: x, onError: stop}", "`onError`: 'stop' is not allowed"),
            ("{command: x, user: root}", "`user`: 'root' is not allowed; allowed: hook, owner"),
            ("{command: x, dialect: codex}", "`dialect`: 'codex' is not allowed; allowed: claude"),
            ("{command: x, persistent: 1}", "`persistent`: must be true or false"),
            ("{command: x, where: cloud}", "`where`: 'cloud' is not allowed; allowed: sandbox, host"),
            ("{command: x, name: 'a b'}", "`name`: 'a b' is not a name"),
            ("{command: x, name: policy}", "`name`: 'policy' is who else may deny a call"),
            ("{command: x, where: host, persistent: true}", "`where: host` and `persistent` do not go together"),
            ("{command: x, where: host, user: owner}", "on the host a hook runs as you"),
            ("x", "must be a mapping"),
        ],
    )
    def test_each_with_its_place_and_the_allowed_values(self, refused, entry, said):
        message = refused(f"hooks:\n  preToolCall:\n    - command: fine\n    - {entry}\n")
        assert message.startswith("hooks.preToolCall[1]: ")
        assert said in message
        assert "(line 4)" in message

    def test_an_unknown_event_with_the_near_one_and_all_allowed(self, refused):
        message = refused("hooks: {preToolcall: [{command: x}]}")
        assert message.startswith("hooks.preToolcall: unknown event 'preToolcall'; did you mean preToolCall?")
        assert "preGeneration, preToolCall, postToolCall, postGeneration" in message

    @pytest.mark.parametrize("event", ["preGeneration", "postGeneration", "stop", "sessionStart", "textDelta"])
    def test_a_matcher_outside_tool_events(self, refused, event):
        message = refused(f"hooks: {{{event}: [{{command: x, matcher: bash}}]}}")
        assert message.startswith(f"hooks.{event}[0]: `matcher` is for tool events only")
        assert "preToolCall, postToolCall, permissionRequest" in message

    @pytest.mark.parametrize("event", ["postGeneration", "preModelRequest", "textDelta", "message"])
    def test_a_dialect_under_an_event_that_it_does_not_have(self, refused, event):
        message = refused(f"hooks: {{{event}: [{{command: x, dialect: claude}}]}}")
        assert "the dialect claude has no such event" in message

    @pytest.mark.parametrize("value", ["[]", "3", "x"])
    def test_hooks_that_are_no_mapping(self, refused, value):
        assert refused(f"hooks: {value}").startswith("hooks: must be a mapping of events to lists of hooks")

    def test_an_event_that_is_no_list(self, refused):
        assert refused("hooks: {preToolCall: x}").startswith("hooks.preToolCall: must be a list of hooks")

    def test_two_hooks_with_one_name(self, refused):
        message = refused("hooks: {stop: [{command: a, name: n}], preToolCall: [{command: b, name: n}]}")
        assert "two hooks are named 'n'" in message


class TestUser:
    @pytest.mark.parametrize("event", ["preGeneration", "preToolCall", "permissionRequest"])
    def test_a_guard_has_an_identity_of_its_own(self, hooks, event):
        assert hooks(f"hooks: {{{event}: [{{command: x}}]}}")[0].user == "hook"

    @pytest.mark.parametrize("event", ["postToolCall", "postGeneration", "stop", "sessionStart", "message"])
    def test_others_run_as_the_owner_unless_persistent(self, hooks, event):
        assert hooks(f"hooks: {{{event}: [{{command: x}}]}}")[0].user == "owner"
        assert hooks(f"hooks: {{{event}: [{{command: x, persistent: true}}]}}")[0].user == "hook"

    def test_what_is_written_wins(self, hooks):
        assert hooks("hooks: {preGeneration: [{command: x, user: owner}]}")[0].user == "owner"


class TestNames:
    @pytest.mark.parametrize(
        ("command", "name"),
        [
            ('node "$SBX_HOOKS_DIR/bash-guard.js"', "bash-guard"),
            ("python3 -u /a/redact.py --all", "redact"),
            ("MODE=1 timeout 5 ./guard.sh", "guard"),
            ("exec node x.mjs", "x"),
            ("jq .", "jq"),
            ("sh -c 'echo'", "echo"),
            ("python3", "python3"),
            ("'unfinished", "unfinished"),
            ("$(x)", "x"),
            ("日本", "hook"),
        ],
    )
    def test_the_default_is_the_programs_file_name(self, command, name):
        assert program_name(command) == name

    def test_the_same_program_twice_gets_a_number(self, hooks):
        found = hooks(
            "hooks: {preGeneration: [{command: ./a.sh}], preToolCall: [{command: ./a.sh}, {command: ./a.sh}]}"
        )
        assert [hook.name for hook in found] == ["a", "a-2", "a-3"]


class TestSources:
    def test_the_order_is_kit_agent_command_line_policy_and_names_stay_apart(self, tmp_path):
        (tmp_path / "agent.yaml").write_text("hooks: {preToolCall: [{command: ./g.sh, name: g}]}")
        (tmp_path / "hooks.yaml").write_text("preToolCall: [{command: ./g.sh}]")
        wire = load(tmp_path / "agent.yaml").to_wire(
            kit_hooks=load_hooks(tmp_path / "hooks.yaml", kit="m", config_dir="/opt/m"),
            cli_hooks=parse_hook_options(["preToolCall=./g.sh"]),
        )
        assert [(hook.name, hook.source) for hook in wire.hooks] == [
            ("g", "kit m"),
            ("g-2", "agent"),
            ("g-3", "command line"),
        ]
        assert wire.hooks[0].config_dir == "/opt/m"

    @pytest.mark.parametrize("text", ["hooks: {stop: [{command: x}]}", "stop: [{command: x}]"])
    def test_a_mixins_file_may_begin_with_hooks_or_with_the_events(self, tmp_path, text):
        (tmp_path / "hooks.yaml").write_text(text)
        assert [h.event for h in load_hooks(tmp_path / "hooks.yaml", kit="m")] == ["stop"]

    def test_a_mixin_cannot_run_hooks_on_the_host(self, tmp_path):
        (tmp_path / "hooks.yaml").write_text("stop: [{command: x, where: host}]")
        with pytest.raises(ConfigError, match="cannot run hooks on the host"):
            load_hooks(tmp_path / "hooks.yaml", kit="m")

    def test_an_agents_hooks_on_the_host_are_named_for_the_grant(self, tmp_path):
        (tmp_path / "agent.yaml").write_text("hooks: {stop: [{command: x, where: host, name: relay}, {command: y}]}")
        assert host_hooks(load(tmp_path / "agent.yaml")) == ["relay"]

    @pytest.mark.parametrize(
        ("option", "said"),
        [
            ("preToolCall", "is not EVENT=COMMAND"),
            ("preTool=x", "unknown event 'preTool'; did you mean preToolCall?"),
            ("preToolCall=", "the command is empty"),
        ],
    )
    def test_a_wrong_option_is_refused(self, option, said):
        with pytest.raises(UsageError, match=said.replace("?", r"\?")):
            parse_hook_options([option])

    def test_an_options_command_may_hold_equal_signs(self):
        assert parse_hook_options(["stop=A=1 ./x"])[0].command == "A=1 ./x"


def test_what_is_taken_and_does_less_than_it_says_is_told(tmp_path):
    (tmp_path / "agent.yaml").write_text("hooks: {textDelta: [{command: ./b}]}")
    warnings = load(tmp_path / "agent.yaml").warnings
    assert any("the hook b starts a process for every delta" in warning for warning in warnings)


def test_the_banner_counts_and_marks_guards_that_are_not_fail(hooks):
    text = "hooks: {preGeneration: [{command: a, onError: fail}, {command: b}], stop: [{command: c}]}"
    assert counts(hooks(text)) == "preGeneration×2 (1 not onError: fail) stop×1"
    assert counts(()) == ""
