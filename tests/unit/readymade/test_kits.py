"""The ready-made kits are what the loaders accept, and their guards cannot be passed over by failing."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.kits import agent
from runner.kits.validate import validate
from runner.wire.agent import GUARD_EVENTS

from .conftest import HOOKS, REPOSITORY

KITS = sorted(path.parent for path in (REPOSITORY / "sbx").glob("*/agent.yaml"))


def test_the_four_kits_are_there() -> None:
    assert [kit.name for kit in KITS] == ["ci", "coder", "hooks-demo", "shell"]


@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
def test_a_kit_is_valid_and_warns_at_most_of_what_is_to_come(kit: Path) -> None:
    (verdict,) = validate([kit])
    assert (verdict.errors, verdict.warnings, verdict.name) == ((), (), kit.name)
    for warning in agent.load(kit / "agent.yaml").warnings:
        assert "is not built yet" in warning


@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
def test_every_hook_of_a_kit_exists_and_every_guard_fails_closed(kit: Path) -> None:
    for hook in agent.load(kit / "agent.yaml").to_wire().hooks:
        program, quoted, *_ = hook.command.split()
        assert program in ("node", "python3", "sh")
        assert (HOOKS / quoted.strip('"').removeprefix("$SBX_HOOKS_DIR/")).is_file()
        if hook.event in GUARD_EVENTS and hook.user == "hook":
            assert hook.on_error == "fail", hook.name


def test_the_demo_is_guarded_and_watched_by_four_hooks() -> None:
    demo = agent.load(REPOSITORY / "sbx" / "hooks-demo" / "agent.yaml").to_wire()
    assert [(hook.event, hook.name, hook.user, hook.matcher) for hook in demo.hooks] == [
        ("preGeneration", "no-secrets", "hook", None),
        ("preGeneration", "add-context", "owner", None),
        ("preToolCall", "bash-guard", "hook", "^bash$"),
        ("postToolCall", "audit", "owner", None),
        ("postGeneration", "audit-turn", "owner", None),
    ]
    assert demo.urls == ("http://127.0.0.1:17434/v1", "http://host.docker.internal:17434/v1")
    assert demo.tools == ("bash",)
