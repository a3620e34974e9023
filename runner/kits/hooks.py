"""Hooks as a file describes them: the `hooks:` of `agent.yaml`, a mixin's `hooks.yaml`, `--hook EVENT=COMMAND`.

A guard that never runs looks exactly like a guard that found nothing to refuse. So whatever could make one silently
not run is an error before anything starts: an unknown event, an unknown key, an empty command, an expression that does
not compile, a `matcher` where no tool is, a timeout that is none.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from runner.errors import ConfigError, UsageError
from runner.kits.checking import Problem, check, duration, lines_of, nearest, one_of, read
from runner.wire.agent import EVENTS, GUARD_EVENTS, MORE_EVENTS, TOOL_EVENTS, Hook

ALL_EVENTS = EVENTS + MORE_EVENTS

ON_ERROR = ("fail", "warn", "ignore")
USERS = ("hook", "owner")
DIALECTS = ("claude",)
_WITHOUT_DIALECT = ("postGeneration", "preModelRequest", "textDelta", "message")
"""Events that Claude Code does not have. A hook of its own could not tell what it is asked."""

PLACES = ("sandbox", "host")

MAX_TIMEOUT = 24 * 3600.0
"""Seconds. More than a day is a slip of the unit (`timeout: 10000` meant as milliseconds and the like)."""

MAX_HOOKS = 200
"""Most hooks of one agent."""

MAX_COMMAND = 64 * 1024
"""Bytes. The kernel takes at most 128 KiB for one argument."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

RESERVED = frozenset({"consent", "policy", "limit"})
"""Who else may deny a call. A hook of that name would be taken for it."""

_RUNTIMES = ("node", "nodejs", "deno", "bun", "python", "python3", "ruby", "perl")
_SHELLS = ("sh", "bash", "dash")
_WRAPPERS = frozenset(
    (*_RUNTIMES, *_SHELLS, "env", "exec", "nice", "nohup", "setsid", "stdbuf", "time", "timeout", "uv", "npx")
)
"""Programs that run another; a hook is called by that one's name."""


def _command(value: str) -> str:
    if not value.strip():
        raise Problem("the command is empty")
    if "\0" in value:
        raise Problem("the command holds a NUL character")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_COMMAND:
        raise Problem(f"the command is longer than {MAX_COMMAND // 1024} KiB")
    return value


def _matcher(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise Problem(f"{value!r} is not a valid regular expression: {error}") from None
    return value


def _timeout(value: object) -> float:
    seconds = duration(value)
    if seconds > MAX_TIMEOUT:
        raise Problem(f"{value!r} is longer than a day, the most a hook may take")
    return seconds


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise Problem(
            f"{value!r} is not a name: letters, digits, '.', '_' and '-', at most 64, a letter or digit first"
        )
    if value in RESERVED:
        raise Problem(f"{value!r} is who else may deny a call; take another name")
    return value


class HookSpec(BaseModel):
    """One entry under an event."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)

    command: Annotated[str, AfterValidator(_command)]
    """Run by `sh -c` in the workspace."""
    name: Annotated[str, AfterValidator(_name)] | None = None
    """How banner, record and messages call it; the default is the program's file name, made unique."""
    matcher: Annotated[str, AfterValidator(_matcher)] | None = None
    """Regular expression searched in the tool's name; tool events only."""
    timeout: Annotated[float, BeforeValidator(_timeout)] = 10.0
    """`5s`, `500ms`, `3m`, or seconds as a number."""
    on_error: Annotated[str, AfterValidator(one_of(ON_ERROR))] = Field("warn", alias="onError")
    """What a failing hook comes to: `fail`, `warn` or `ignore`."""
    user: Annotated[str, AfterValidator(one_of(USERS))] | None = None
    """`hook` (uid 64001) or `owner` (the workspace's); the default depends on the event."""
    dialect: Annotated[str, AfterValidator(one_of(DIALECTS))] | None = None
    """Whose names the hook is spoken to in; our own without it."""
    persistent: bool = False
    """One process for the session, one JSON line in, one out."""
    where: Annotated[str, AfterValidator(one_of(PLACES))] = "sandbox"
    """`host` runs it outside, for auditing and notification only; needs the grant `host-hooks`."""


def _unknown_event(event: object) -> str:
    return f"unknown event {str(event)[:80]!r}{nearest(event, ALL_EVENTS)}; allowed: {', '.join(ALL_EVENTS)}"


Specs = Mapping[str, Sequence[HookSpec]]


def check_hooks(value: object, *, where: str) -> dict[str, list[HookSpec]]:
    """The mapping of events to lists of hooks.

    Args:
        value: what the YAML held.
        where: the file, and before the first dot of a key nothing.

    Raises:
        ConfigError: with the file, the place and the allowed values.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError("must be a mapping of events to lists of hooks", place=f"{where}: hooks")
    specs: dict[str, list[HookSpec]] = {}
    for event, entries in value.items():
        place = f"{where}: hooks.{event}"
        if event not in ALL_EVENTS:
            raise ConfigError(_unknown_event(event), place=place)
        if entries is None:
            continue
        if not isinstance(entries, list):
            raise ConfigError("must be a list of hooks, each with a `command`", place=place)
        for index, entry in enumerate(entries):
            spec = check(HookSpec, entry, where=where, at=f"hooks.{event}[{index}]", deep=False)
            if spec.matcher is not None and event not in TOOL_EVENTS:
                raise ConfigError(
                    f"`matcher` is for tool events only; allowed under: {', '.join(TOOL_EVENTS)}",
                    place=f"{place}[{index}]",
                )
            if spec.dialect and event in _WITHOUT_DIALECT:
                allowed = ", ".join(e for e in ALL_EVENTS if e not in _WITHOUT_DIALECT)
                raise ConfigError(
                    f"the dialect {spec.dialect} has no such event; allowed under: {allowed}", place=f"{place}[{index}]"
                )
            if spec.where == "host":
                _check_on_host(spec, event, f"{place}[{index}]")
            specs.setdefault(event, []).append(spec)
    if sum(map(len, specs.values())) > MAX_HOOKS:
        raise ConfigError(f"more than {MAX_HOOKS} hooks", place=f"{where}: hooks")
    return specs


def _check_on_host(spec: HookSpec, event: str, place: str) -> None:
    """A hook on the host audits and notifies: it is one process a run, as the user, and rewrites nothing."""
    if spec.persistent:
        raise ConfigError("`where: host` and `persistent` do not go together", place=place)
    if spec.user:
        raise ConfigError("`user` is for hooks in the sandbox; on the host a hook runs as you", place=place)
    if event == "textDelta":
        raise ConfigError("a hook on the host cannot filter the answer; `message` tells the whole of it", place=place)


def program_name(command: str) -> str:
    """The file name of what a command runs, without its ending: `guard` for `node "$SBX_HOOKS_DIR/guard.js"`."""
    try:
        words = shlex.split(command, comments=False)
    except ValueError:
        words = command.split()
    chosen = ""
    for word in words:
        if word.startswith("-") or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", word, re.DOTALL):
            continue
        file = PurePosixPath(word).name
        chosen = chosen or file
        if file not in _WRAPPERS and not re.fullmatch(r"[0-9.]+[smhd]?", file):
            chosen = file
            break
    stem = re.sub(r"\.(js|mjs|cjs|ts|py|sh|bash|rb|pl)$", "", chosen)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")
    return f"{stem}-hook" if stem in RESERVED else stem[:48] or "hook"


def default_user(event: str, *, persistent: bool) -> str:
    """Guards and persistent hooks run as an identity that no tool can touch; the others may write the workspace."""
    return "hook" if event in GUARD_EVENTS or persistent else "owner"


def to_wire(specs: Specs, *, source: str, config_dir: str = "") -> tuple[Hook, ...]:
    """The hooks as the guest is told them, in the order of a turn, each with a name of its own.

    Raises:
        ConfigError: two hooks carry the same written name.
    """
    used: set[str] = set()
    for entries in specs.values():
        for spec in entries:
            if spec.name in used:
                raise ConfigError(f"two hooks are named {spec.name!r}", place=f"{source}: hooks")
            used |= {spec.name} if spec.name else set()
    hooks = []
    for event in sorted(specs, key=ALL_EVENTS.index):
        for spec in specs[event]:
            name = spec.name or _unique(program_name(spec.command), used)
            used.add(name)
            hooks.append(
                Hook(
                    event=event,
                    command=spec.command,
                    name=name,
                    matcher=spec.matcher,
                    timeout=spec.timeout,
                    on_error=spec.on_error,
                    user=spec.user or default_user(event, persistent=spec.persistent),
                    dialect=spec.dialect or "",
                    persistent=spec.persistent,
                    where=spec.where,
                    source=source,
                    config_dir=config_dir,
                )
            )
    return tuple(hooks)


def chain(*groups: Iterable[Hook]) -> tuple[Hook, ...]:
    """The hooks of several sources as one chain, in the order given; a name that is taken gets a number."""
    used: set[str] = set()
    hooks = []
    for hook in (hook for group in groups for hook in group):
        name = _unique(hook.name, used)
        used.add(name)
        hooks.append(hook if name == hook.name else dataclasses.replace(hook, name=name))
    return tuple(hooks)


def _unique(name: str, used: Collection[str]) -> str:
    if name not in used:
        return name
    number = 2
    while f"{name}-{number}" in used:
        number += 1
    return f"{name}-{number}"


def load_hooks(path: Path, *, kit: str, config_dir: str = "") -> tuple[Hook, ...]:
    """The hooks that a mixin brings: `hooks.yaml` beside its `spec.yaml`, either `hooks:` or the events themselves.

    Args:
        path: the file.
        kit: the mixin's name, for `source`.
        config_dir: where the mixin's files lie in the container (`MM_CONFIG_DIR` for its hooks).

    Raises:
        ConfigError: the file is missing, unreadable or wrong, or asks for `where: host`, which no kit may.
    """
    document = read(path)
    with lines_of(document):
        events: object = document.data
        if "hooks" in document.data:
            if unknown := [key for key in document.data if key != "hooks"]:
                raise ConfigError("unknown key; allowed beside `hooks`: none", place=f"{path}: {unknown[0]}")
            events = document.data["hooks"]
        specs = check_hooks(events, where=str(path))
        for event, entries in specs.items():
            for index, spec in enumerate(entries):
                if spec.where == "host":
                    place = f"{path}: hooks.{event}[{index}]"
                    raise ConfigError("`where`: a kit cannot run hooks on the host", place=place)
    return to_wire(specs, source=f"kit {kit}", config_dir=config_dir)


def parse_hook_options(options: Iterable[str]) -> tuple[Hook, ...]:
    """The hooks of `--hook EVENT=COMMAND`, in the order given.

    Raises:
        UsageError: the text is not of that form, or the event is unknown.
    """
    hooks: list[Hook] = []
    for option in options:
        event, equals, command = option.partition("=")
        if not equals:
            raise UsageError(f"--hook {option!r} is not EVENT=COMMAND")
        if event not in ALL_EVENTS:
            raise UsageError(f"--hook: {_unknown_event(event)}")
        try:
            spec = check(HookSpec, {"command": command}, where="--hook", at=event, deep=False)
        except ConfigError as error:
            raise UsageError(f"--hook {event}: {error.message}") from None
        hooks += to_wire({event: [spec]}, source="command line")
    return chain(hooks)


def warnings(hooks: Iterable[Hook], *, where: str) -> list[str]:
    """What the user should know of hooks that are accepted: one line each."""
    return [
        f"{where}: the hook {hook.name} starts a process for every delta; write `persistent: true`"
        for hook in hooks
        if hook.event == "textDelta" and not hook.persistent
    ]


def counts(hooks: Iterable[Hook]) -> str:
    """The banner's line: `preGeneration×2 preToolCall×1`; empty without hooks. A guard that is not `fail` is marked."""
    numbers: dict[str, int] = {}
    soft: dict[str, int] = {}
    for hook in hooks:
        numbers[hook.event] = numbers.get(hook.event, 0) + 1
        if hook.event in GUARD_EVENTS and hook.on_error != "fail":
            soft[hook.event] = soft.get(hook.event, 0) + 1
    parts = []
    for event in ALL_EVENTS:
        if event in numbers:
            mark = f" ({soft[event]} not onError: fail)" if event in soft else ""
            parts.append(f"{event}×{numbers[event]}{mark}")
    return " ".join(parts)


def finite(value: Any) -> bool:
    """Whether JSON can say the value: no NaN, no infinity, no date that YAML made of a text."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and finite(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(finite, value))
    return value is None or isinstance(value, (bool, int, str))
