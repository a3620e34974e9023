"""Which kept sandbox a rerun goes on with.

Two wrong answers look alike: taking up one that was made for something else (another folder, image, or wider
controls than the banner now tells), and leaving an idle one that fits. So all three must be the same; by name, what
differs is an error that says so, and without a name, such a sandbox is simply another one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.engine import Engine
from runner.errors import InUseError, NotFoundError, UsageError
from runner.sandbox.container import lock
from runner.sandbox.listing import Listed


@dataclass(frozen=True)
class Wanted:
    """What a run needs of a sandbox."""

    name: str
    """Empty: any that fits."""
    image: str
    """The plan's tag."""
    workspace: str
    profile: str
    """`Profile.digest()`."""


def take_up(engine: Engine, found: Sequence[Listed], wanted: Wanted, locks: Path) -> tuple[Listed, int] | None:
    """The kept sandbox to go on with, and its lock, which this process holds from now on.

    Args:
        engine: where; a leftover that still runs without a session is stopped first.
        found: all sandboxes.
        locks: folder of the lock files.

    Raises:
        InUseError: the named one is in use.
        UsageError: the named one was made for something else.
    """
    if wanted.name:
        named = next((each for each in found if each.name == wanted.name), None)
        if named is None:
            return None
        _demand_fit(named, wanted)
        return named, claim(engine, named, locks)
    for each in sorted((each for each in found if fits(each, wanted)), key=lambda one: -one.created):
        with contextlib.suppress(InUseError, NotFoundError):
            return each, claim(engine, each, locks)
    return None


def fits(listed: Listed, wanted: Wanted) -> bool:
    """It is what a run wants, used or not."""
    if not listed.kept or listed.problem or (wanted.name and listed.name != wanted.name):
        return False
    return (listed.image, listed.workspace, listed.profile) == (wanted.image, wanted.workspace, wanted.profile)


def claim(engine: Engine, listed: Listed, locks: Path) -> int:
    """The sandbox's lock; afterwards it does not run.

    A running one whose lock is free is a leftover of a process that died. That holds for this user's locks alone:
    without a lock file here, another user's process has it.

    Raises:
        InUseError: another session has it.
    """
    ours = (locks / f"{listed.name}.lock").exists()
    held = lock(locks, listed.name)
    try:
        if listed.running:
            if not ours:
                raise InUseError(f"the sandbox {listed.name} is in use by another user's session")
            engine.request("POST", f"/containers/{listed.container}/stop?t=2", doing="stopping a leftover sandbox")
    except BaseException:
        os.close(held)
        raise
    return held


def _demand_fit(listed: Listed, wanted: Wanted) -> None:
    if not listed.kept:
        raise InUseError(f"the sandbox {listed.name} is a throwaway one of a run that goes on")
    for what, has, asked in (
        ("image", listed.image, wanted.image),
        ("workspace", listed.workspace, wanted.workspace),
    ):
        if has != asked:
            raise UsageError(
                f"the sandbox {listed.name} was made with another {what}: {has}, not {asked}",
                hint=f"`sbx rm {listed.name}`, or take another --name",
            )
    if listed.profile != wanted.profile:
        raise UsageError(
            f"the sandbox {listed.name} was made with other controls (network, mounts, limits, grants)",
            hint=f"`sbx inspect {listed.name}` shows them; ask for the same, or `sbx rm {listed.name}`",
        )
