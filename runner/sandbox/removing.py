"""Taking sandboxes away: one by its name, and what nobody's process owns any more.

`sweep` runs unasked at every start and touches only what is certainly dead. `leftovers` is what a person asks for: the
same, and volumes and networks of sandboxes whose container is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.engine import Engine
from runner.errors import InUseError, NotFoundError, SbxError
from runner.sandbox import owner
from runner.sandbox.container import LABEL_SANDBOX, lock, remove, remove_volume, remove_volumes
from runner.sandbox.listing import Listed, sandboxes

LIST_TIMEOUT = 20.0
"""Seconds for one listing."""


@dataclass(frozen=True)
class Leftover:
    """A thing in the engine that bears our labels and that no living process owns."""

    kind: str
    """container, volume, network."""
    name: str
    id: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "id": self.id}


def is_idle(listed: Listed, locks: Path) -> bool:
    """No session has it, as far as this user's locks tell. Without a lock file here it is somebody else's."""
    return (locks / f"{listed.name}.lock").exists() and _free(locks, listed.name)


def remove_sandbox(engine: Engine, listed: Listed, locks: Path, *, force: bool = False) -> None:
    """Removes the container and its home.

    Args:
        force: also when a session has it; that session then ends with an error.

    Raises:
        InUseError: a session has it.
        EngineError: the engine could not.
    """
    held = -1
    try:
        held = lock(locks, listed.name)
    except InUseError:
        if not force:
            raise InUseError(
                f"the sandbox {listed.name} is in use by another session",
                hint=f"`sbx stop {listed.name}` first, or `sbx rm -f {listed.name}`",
            ) from None
    try:
        if listed.running and not force and not listed.orphaned and not (locks / f"{listed.name}.json").exists():
            raise InUseError(f"the sandbox {listed.name} runs", hint=f"`sbx rm -f {listed.name}`")
        with contextlib.suppress(NotFoundError):  # its own session was quicker
            remove(engine, listed.container)
        remove_volumes(engine, listed.name)
    finally:
        if held >= 0:
            os.close(held)
    (locks / f"{listed.name}.json").unlink(missing_ok=True)
    (locks.parent / "clones" / f"{listed.name}.json").unlink(missing_ok=True)


def leftovers(engine: Engine, locks: Path) -> list[Leftover]:
    """What `prune` would take, containers first, by name."""
    names = set()
    found: list[Leftover] = []
    for each in sandboxes(engine):
        stale = each.state in ("dead", "removing") or (each.orphaned and not each.kept)
        if stale and _free(locks, each.name):
            found.append(Leftover("container", each.name, each.container))
        else:
            names.add(each.name)
    query = quote(json.dumps({"label": [owner.LABEL]}))
    volumes = engine.get(f"/volumes?filters={query}", doing="listing the volumes", timeout=LIST_TIMEOUT)
    gone = (v for v in (volumes or {}).get("Volumes") or () if _nobodys(v, names))
    found += [Leftover("volume", name, name) for name in sorted(str(v["Name"]) for v in gone)]
    networks = engine.get(f"/networks?filters={query}", doing="listing the networks", timeout=LIST_TIMEOUT)
    unused = sorted((str(n.get("Name")), str(n["Id"])) for n in networks or () if _nobodys(n, names))
    return found + [Leftover("network", name, network) for name, network in unused]


def prune_leftovers(engine: Engine, found: list[Leftover]) -> tuple[list[str], list[dict[str, str]]]:
    """Removes them: names of what is gone, and what could not be removed with its reason. One failure stops none."""
    done: list[str] = []
    failed: list[dict[str, str]] = []
    for each in found:
        try:
            if each.kind == "container":
                remove(engine, each.id)
            elif each.kind == "volume":
                remove_volume(engine, each.id)
            else:
                engine.request("DELETE", f"/networks/{quote(each.id, safe='')}", doing="removing a network")
        except NotFoundError:
            pass
        except SbxError as error:
            failed.append({**each.to_json(), "reason": error.message})
            continue
        done.append(each.name)
    return done, failed


def _nobodys(thing: dict[str, Any], names: set[str]) -> bool:
    """Its maker is dead, and no container of its sandbox is left that could still use it."""
    labels = thing.get("Labels") or {}
    made_by = owner.parse(str(labels.get(owner.LABEL, "")))
    if made_by is None or not made_by.certainly_dead():
        return False
    # A kept sandbox without its container cannot be started again: its home is of no use.
    return labels.get(LABEL_SANDBOX) not in names


def _free(locks: Path, name: str) -> bool:
    try:
        os.close(lock(locks, name))
    except InUseError:
        return False
    except NotFoundError:
        return True  # no name that a session of ours could have
    return True
