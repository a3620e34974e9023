"""What a run changed in its workspace, told by size, time and kind of each file before and after."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 200_000
"""Files that are looked at; in a larger workspace nothing is said rather than something wrong."""
MAX_TOLD = 1000
"""Names of each kind in a result."""
_UNTOLD = ("objects", "logs")
"""Folders in `.git` that only git itself reads."""

State = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Changes:
    """Paths below the workspace, sorted."""

    created: tuple[str, ...]
    modified: tuple[str, ...]
    removed: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """`truncated` is there when there are more than `MAX_TOLD` of a kind."""
        document: dict[str, object] = {key: list(paths[:MAX_TOLD]) for key, paths in vars(self).items()}
        if any(len(paths) > MAX_TOLD for paths in vars(self).values()):
            document["truncated"] = True
        return document


def scan(folder: Path) -> State | None:
    """The files and links below a folder; None when there are too many. What cannot be read is left out."""
    found: State = {}
    open_folders = [(str(folder), "")]
    while open_folders:
        path, below = open_folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = below + entry.name
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        if not (below.endswith(".git/") and entry.name in _UNTOLD):
                            open_folders.append((entry.path, name + "/"))
                        continue
                    found[name] = (status.st_mtime_ns, status.st_size, status.st_mode)
                    if len(found) > MAX_FILES:
                        return None
        except OSError:
            continue
    return found


def compare(before: State | None, after: State | None) -> Changes | None:
    """What changed; None where either state is not known."""
    if before is None or after is None:
        return None
    return Changes(
        created=tuple(sorted(after.keys() - before.keys())),
        modified=tuple(sorted(path for path in after.keys() & before.keys() if after[path] != before[path])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )
