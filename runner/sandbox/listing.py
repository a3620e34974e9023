"""Which sandboxes there are, told from their labels alone.

One question to the engine answers a whole listing: a container that is wedged, half removed or without its labels is
one line with a problem, never the end of the list.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from runner.engine import Engine
from runner.errors import NotFoundError, UsageError
from runner.sandbox import owner
from runner.sandbox.labels import (
    LABEL_KEEP,
    LABEL_KIT,
    LABEL_PLAN,
    LABEL_PROFILE,
    LABEL_SANDBOX,
    LABEL_SESSION,
    LABEL_WORKSPACE,
)

LIST_TIMEOUT = 20.0
"""Seconds for the engine's answer to a listing."""


@dataclass(frozen=True)
class Listed:
    """One sandbox, as its container's labels tell it."""

    name: str
    state: str
    """The engine's word: created, running, exited, dead, removing, paused."""
    kept: bool
    kit: str
    image: str
    workspace: str
    session: str
    """The session that made it."""
    container: str
    created: int
    """Seconds since the epoch."""
    profile: str
    orphaned: bool
    """The process that made it is certainly dead."""
    problem: str = ""
    """What is wrong with it, for the listing."""

    def to_json(self) -> dict[str, object]:
        """What `sbx ls --json` prints for it, in a stable order."""
        return dict(vars(self))

    @property
    def running(self) -> bool:
        return self.state in ("running", "paused", "restarting")


def sandboxes(engine: Engine, seconds: float = LIST_TIMEOUT) -> list[Listed]:
    """All sandboxes of this engine, running or not, by name.

    Raises:
        EngineError: the engine does not answer in time, or fails.
    """
    query = quote(json.dumps({"label": [LABEL_SANDBOX]}))
    found = engine.get(f"/containers/json?all=1&filters={query}", doing="listing the sandboxes", timeout=seconds)
    return sorted((_listed(c) for c in found or ()), key=lambda each: (each.name, each.container))


def find_sandbox(engine: Engine, name: str) -> Listed:
    """The sandbox of this name, or of a container id's beginning of at least 6 characters.

    Raises:
        NotFoundError: there is none; near names are listed.
        UsageError: several fit.
    """
    known = sandboxes(engine)
    fitting = [each for each in known if each.name == name]
    if not fitting and len(name) >= 6:
        fitting = [each for each in known if each.container.startswith(name)]
    if len(fitting) > 1:
        ids = ", ".join(each.container[:12] for each in fitting)
        raise UsageError(f"{len(fitting)} sandboxes fit {name!r}: {ids}", hint="name one by its id")
    if fitting:
        return fitting[0]
    raise no_sandbox(name, [each.name for each in known])


def no_sandbox(name: str, known: list[str]) -> NotFoundError:
    """The error for a name that no sandbox has."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    return NotFoundError(f"there is no sandbox {name!r}{meant}", hint=f"there are: {shown}" if known else "`sbx run`")


def _listed(container: dict[str, Any]) -> Listed:
    labels = container.get("Labels")
    labels = labels if isinstance(labels, dict) else {}
    name, problem = str(labels.get(LABEL_SANDBOX) or ""), ""
    if not name:
        names = container.get("Names") or [""]
        name, problem = str(names[0]).lstrip("/") or str(container.get("Id", ""))[:12], "it has no name of ours"
    state = str(container.get("State") or "unknown")
    made_by = owner.parse(labels.get(owner.LABEL, ""))
    if state in ("dead", "removing"):
        problem = f"the engine could not remove it ({state})"
    elif made_by is None:
        problem = problem or "its labels name no owner"
    created = container.get("Created")
    return Listed(
        name=name,
        state=state,
        kept=labels.get(LABEL_KEEP) == "1",
        kit=str(labels.get(LABEL_KIT) or ""),
        image=str(labels.get(LABEL_PLAN) or ""),
        workspace=str(labels.get(LABEL_WORKSPACE) or ""),
        session=str(labels.get(LABEL_SESSION) or ""),
        container=str(container.get("Id") or ""),
        created=created if isinstance(created, int) else 0,
        profile=str(labels.get(LABEL_PROFILE) or ""),
        orphaned=made_by is not None and made_by.certainly_dead(),
        problem=problem,
    )
