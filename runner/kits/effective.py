"""What a kit comes to, its agent and all hooks included: `sbx kit inspect`. Files are read; nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import NotFoundError
from runner.kits import agent as agents
from runner.kits import hooks
from runner.kits.arguments import parse_kit_arguments
from runner.kits.compose import compose
from runner.kits.find import Finder
from runner.kits.inspect import inspect
from runner.kits.load import load_kit
from runner.kits.plan import Plan
from runner.wire.agent import Hook

BARE = "shell"
"""The ready-made sandbox kit with nothing but a shell."""
HOOKS_NAME = "hooks.yaml"
"""Beside a mixin's spec: the hooks that it brings."""


def effective(
    kit: str,
    kits: Sequence[str],
    kit_args: Sequence[str],
    environ: Mapping[str, str],
    tag: Callable[[Plan], str],
) -> dict[str, Any]:
    """The plan of `runner.kits.inspect`, with `image`, `agent` and `hooks`, ready for JSON.

    Args:
        kit: name or folder of a sandbox kit; a mixin is shown on the bare one.
        kits: further mixins.
        kit_args: values for arguments, each `[KIT.]NAME=VALUE`.
        environ: where kits are looked for, and the agent's switches.
        tag: names the plan's image (`runner.images.tag`).

    Raises:
        NotFoundError, ConfigError, UsageError: as `compose`.
    """
    finder = Finder(dict(environ))
    note = ""
    if _is_mixin(kit, finder):
        note = f"{kit} is a mixin: it is shown on the sandbox kit {BARE}"
        kit, kits = BARE, (kit, *kits)
    folder = finder.locate(kit, "sandbox").folder
    plan = compose(kit, kits, arguments=parse_kit_arguments(kit_args), finder=finder, checking=True)
    agent = agents.load_folder(folder, environ)
    brought: list[Hook] = []
    for reference in plan.kits:
        path = Path(reference.path) / HOOKS_NAME
        if reference.kind == "mixin" and path.is_file():
            brought += hooks.load_hooks(path, kit=reference.name)
    wire = agent.to_wire(kit_hooks=brought)
    document = {"image": tag(plan), **inspect(plan)}
    document["agent"] = {
        "file": str(agent.path or ""),
        "provider": wire.provider,
        "model": wire.model,
        "urls": list(wire.urls),
        "tools": list(wire.tools),
        "yolo": wire.yolo,
    }
    document["hooks"] = [
        {
            "event": hook.event,
            "name": hook.name,
            "command": hook.command,
            "matcher": hook.matcher,
            "on_error": hook.on_error,
            "user": hook.user,
            "where": hook.where,
            "persistent": hook.persistent,
            "timeout": hook.timeout,
            "by": hook.source,
        }
        for hook in wire.hooks
    ]
    document["warnings"] += [*agent.warnings, *([note] if note else [])]
    return document


def _is_mixin(kit: str, finder: Finder) -> bool:
    try:
        location = finder.locate(kit, "sandbox")
    except NotFoundError as error:
        try:
            location = finder.locate(kit, "mixin")
        except NotFoundError:
            raise error from None
    return load_kit(location.folder, origin=location.origin, root=location.root, checking=True).spec.kind == "mixin"
