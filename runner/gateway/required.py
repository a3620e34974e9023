"""The hooks that a policy file requires: they run last, in every session, whatever the kit and the command line say."""

from __future__ import annotations

from collections.abc import Iterable

from runner.gateway.rules import PolicyFile
from runner.kits import hooks
from runner.wire.agent import Hook


def required_hooks(files: Iterable[PolicyFile]) -> tuple[Hook, ...]:
    """The hooks of `hooks.required`, those of the system's file first.

    Raises:
        ConfigError: an entry is wrong; a policy that cannot be kept is never left out.
    """
    found: list[Hook] = []
    for file in files:
        for entry in file.hooks_required:
            spec = {key: value for key, value in entry.items() if key != "event"}
            specs = hooks.check_hooks({entry["event"]: [spec]}, where=f"{file.path}: hooks.required")
            found += hooks.to_wire(specs, source=f"policy {file.path}")
    return hooks.chain(found)
