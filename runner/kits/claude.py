"""`sbx hook import FILE`: Claude Code's hook settings as a `hooks:` block of ours.

What carries over runs unchanged with `dialect: claude`. What does not is told, one warning each: a guard that is
silently left out looks like a guard that found nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.kits.document import read_text
from runner.kits.hooks import MAX_TIMEOUT
from runner.wire.agent import GUARD_EVENTS, TOOL_EVENTS

EVENTS = {
    "UserPromptSubmit": "preGeneration",
    "PreToolUse": "preToolCall",
    "PermissionRequest": "permissionRequest",
    "PostToolUse": "postToolCall",
    "Stop": "stop",
    "SessionStart": "sessionStart",
    "SessionEnd": "sessionEnd",
}
"""Its event → ours. Its `Stop` is our `stop`, which may push the turn on, not `postGeneration`, which observes."""

DEFAULT_TIMEOUT = 60
"""Seconds that a hook has there when it names none."""

_LIST = re.compile(r"[A-Za-z0-9_]+(\|[A-Za-z0-9_]+)*")
_MATCHERS_ELSEWHERE = frozenset({"SessionStart", "SessionEnd"})


def import_claude_settings(path: Path) -> tuple[str, list[str]]:
    """Reads a `settings.json` and writes the `hooks:` block that does the same.

    Returns:
        The YAML text, and one warning for each thing that does not carry over.

    Raises:
        ConfigError: the file is missing, not JSON, or holds no hooks.
    """
    settings = _settings(path)
    warnings: list[str] = []
    found: dict[str, list[dict[str, Any]]] = {}
    if settings.get("disableAllHooks") is True:
        warnings.append("`disableAllHooks` is true there; the hooks are imported all the same")
    for theirs, groups in settings["hooks"].items():
        ours = EVENTS.get(theirs)
        if ours is None:
            warnings.append(f"{theirs}: there is no such event here; left out")
            continue
        if not isinstance(groups, list):
            raise ConfigError("must be a list", place=f"{path}: hooks.{theirs}")
        for index, group in enumerate(groups):
            place = f"{theirs}[{index}]"
            if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
                raise ConfigError("must be an object with a list `hooks`", place=f"{path}: hooks.{place}")
            matcher = _matcher(theirs, ours, group.get("matcher"), place, warnings)
            for number, hook in enumerate(group["hooks"]):
                if made := _hook(hook, ours, matcher, f"{place}.hooks[{number}]", warnings):
                    found.setdefault(ours, []).append(made)
    return _yaml(found), warnings


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"is not JSON: {error}", place=str(path)) from None
    if not isinstance(settings, dict) or not isinstance(settings.get("hooks"), dict):
        raise ConfigError("holds no `hooks` object", place=str(path))
    return settings


def _matcher(theirs: str, ours: str, matcher: object, place: str, warnings: list[str]) -> str | None:
    """Their matcher as an expression that is searched: a plain name or a list of names there means exactly these."""
    if matcher in (None, "", "*"):
        return None
    if not isinstance(matcher, str):
        warnings.append(f"{place}: its matcher is not a text; the hook runs for every tool")
        return None
    if ours not in TOOL_EVENTS:
        what = "runs at every start and end" if theirs in _MATCHERS_ELSEWHERE else "always runs, as it does there"
        warnings.append(f"{place}: `matcher` {matcher!r} is for tool events only here; the hook {what}")
        return None
    if _LIST.fullmatch(matcher):
        return f"^({matcher})$" if "|" in matcher else f"^{matcher}$"
    expression = matcher.replace("(?<", "(?P<") if re.search(r"\(\?<[A-Za-z_]", matcher) else matcher
    try:
        re.compile(expression)
    except re.error as error:
        warnings.append(f"{place}: matcher {matcher!r} is no expression here ({error}); the hook runs for every tool")
        return None
    return expression


def _hook(hook: object, event: str, matcher: str | None, place: str, warnings: list[str]) -> dict[str, Any] | None:
    if not isinstance(hook, dict):
        warnings.append(f"{place}: is not an object; left out")
        return None
    kind = hook.get("type", "command")
    if kind != "command":
        warnings.append(f"{place}: hooks of type {kind!r} do not exist here, only commands; left out")
        return None
    command = hook.get("command")
    if not isinstance(command, str) or not command.strip():
        warnings.append(f"{place}: has no command; left out")
        return None
    if isinstance(hook.get("args"), list):
        import shlex

        command = shlex.join([command, *map(str, hook["args"])])
    made: dict[str, Any] = {"command": command}
    if matcher is not None:
        made["matcher"] = matcher
    made["timeout"] = _timeout(hook.get("timeout"), place, warnings)
    made["dialect"] = "claude"
    if event in GUARD_EVENTS:
        warnings += _guard_warnings(hook, command, place)
    for key in sorted(hook.keys() - {"type", "command", "timeout", "args", "statusMessage"}):
        effect = {
            "if": "the hook runs for every call that its matcher finds",
            "async": "the hook is waited for",
            "once": "the hook runs every time",
        }.get(key, "it has no effect here")
        warnings.append(f"{place}: `{key}` does not carry over: {effect}")
    for token in ("${CLAUDE_PLUGIN_ROOT}", "$CLAUDE_PLUGIN_ROOT", "$CLAUDE_ENV_FILE", "~/", "$HOME"):
        if token in command:
            warnings.append(f"{place}: `{token}` is not there in a sandbox; put the hook's files beside agent.yaml")
            break
    return made


def _guard_warnings(hook: dict[str, Any], command: str, place: str) -> list[str]:
    if "$CLAUDE_PROJECT_DIR" in command or "${CLAUDE_PROJECT_DIR}" in command or ".claude/" in command:
        return [f"{place}: this guard lies in the workspace, where tools can change it; copy it beside agent.yaml"]
    return []


def _timeout(value: object, place: str, warnings: list[str]) -> str:
    if value is None:
        return f"{DEFAULT_TIMEOUT}s"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        warnings.append(f"{place}: timeout {value!r} is not a positive number of seconds; {DEFAULT_TIMEOUT}s is used")
        return f"{DEFAULT_TIMEOUT}s"
    if value > MAX_TIMEOUT:
        warnings.append(f"{place}: timeout {value!r} is seconds there and more than a day; {MAX_TIMEOUT:.0f}s is used")
        return f"{MAX_TIMEOUT:.0f}s"
    return f"{value:g}s"


def _yaml(found: dict[str, list[dict[str, Any]]]) -> str:
    if not found:
        return "hooks: {}\n"
    lines = ["hooks:"]
    for event, hooks in found.items():
        lines.append(f"  {event}:")
        for hook in hooks:
            for index, (key, value) in enumerate(hook.items()):
                # JSON's texts are YAML's double-quoted ones, whatever is in them.
                lines.append(f"    {'-' if index == 0 else ' '} {key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
