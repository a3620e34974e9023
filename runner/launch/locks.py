"""Where this user's sandboxes are locked, and what earlier runs left behind there and in the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import SbxError
from runner.session.state import Folders, private

if TYPE_CHECKING:
    from runner.engine import Engine


def locks_of(folders: Folders) -> Path:
    """Where the lock file of each sandbox's name is."""
    return private(folders.state / "sandboxes")


def sweep_leftovers(engine: Engine, folders: Folders) -> None:
    """Leftovers are nobody's business in this run: what cannot be removed now is found by the next one."""
    from runner.sandbox.sweep import sweep

    try:
        sweep(engine, locks_of(folders))
    except SbxError:
        return
