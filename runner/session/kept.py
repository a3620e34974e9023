"""What this user's machine remembers of a kept sandbox, beyond the labels that the engine shows to everybody.

    STATE/sandboxes/NAME.lock   held by the process whose session uses it
    STATE/sandboxes/NAME.json   how it was asked for, so that `sbx run NAME` asks for the same again
    STATE/sandboxes/ID.sock     its session listens here for `exec`, `cp` and `stop` of other terminals

The file is a convenience, not a truth: without it a sandbox is still listed, entered and removed by its labels.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.session.state import private

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Kept:
    """A kept sandbox as it was made."""

    sandbox: str
    """The kit: its folder, its name, or a reference."""
    workspace: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """The plan's variables."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked for and belongs to the container: network, mounts, limits, grants."""


def remember(folder: Path, name: str, kept: Kept) -> None:
    """Write what is known of the sandbox; a disk that refuses is no reason to fail a run."""
    path = private(folder) / f"{name}.json"
    text = json.dumps({"version": 1, **vars(kept)}, default=_plain)
    temporary = path.with_name(f".{name}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        temporary.write_text(text)
        temporary.chmod(0o600)
        temporary.replace(path)


def recall(folder: Path, name: str) -> Kept | None:
    """What is known of the sandbox; None where nothing is, or the file is not ours."""
    if "/" in name or name in ("", ".", ".."):
        return None
    try:
        path = folder / f"{name}.json"
        document = json.loads(path.read_bytes()) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("version") != 1:
        return None
    sandbox, workspace = document.get("sandbox"), document.get("workspace")
    environment, options = document.get("environment"), document.get("options")
    if not (isinstance(sandbox, str) and isinstance(workspace, str)):
        return None
    return Kept(
        sandbox,
        workspace,
        {str(k): str(v) for k, v in environment.items()} if isinstance(environment, dict) else {},
        options if isinstance(options, dict) else {},
    )


def forget(folder: Path, name: str) -> None:
    """The sandbox is gone. Its lock file stays: another process may be waiting on that very file."""
    with contextlib.suppress(OSError):
        (folder / f"{name}.json").unlink()


def names(folder: Path) -> list[str]:
    """The sandboxes that are remembered, by name; no engine is asked."""
    try:
        return sorted(p.stem for p in folder.glob("*.json") if not p.name.startswith("."))
    except OSError:
        return []


def absolute(reference: str) -> str:
    """A kit's reference that means the same from any folder."""
    if "://" in reference or not (reference.startswith((".", "~")) or "/" in reference):
        return reference
    path = Path(reference).expanduser()
    return str(path.resolve()) if path.exists() else reference


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(type(value).__name__)
