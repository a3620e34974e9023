"""Whether the engine sees this machine's folders, and under which paths.

A folder is mounted by its path, and the path is the *engine's*. Three places look alike to a client that holds a
socket: this machine; another one (TCP, a forwarded socket), where the path is missing or, worse, is another folder;
and a container that was given the engine's socket, where the path is right only by chance. A mount would then be
silently empty, or somebody else's data. So it is found out before anything is made.

What is looked at: the ids in this process's own mount table, which name the container it is in, if any; whether the
engine knows that container, and what it has mounted; else whether the engine's machine has this one's name.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.engine.client import Engine
from runner.errors import NotFoundError

ASK_WITHIN = 10.0
"""Seconds for each question to the engine."""
_CONTAINER = re.compile(r"/([0-9a-f]{64})/")
_OWN_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
"""What an engine mounts into each of its containers, from a folder named by the container's id."""


@dataclass(frozen=True)
class Sight:
    """Where the engine is, as seen from here."""

    kind: Literal["here", "remote", "container"]
    """`here`: paths are the engine's own. `remote`: another machine. `container`: this process is in one of the
    engine's containers."""
    why: str
    """For the banner."""
    mounts: tuple[tuple[str, str], ...] = ()
    """In a container: path here, path at the engine; of its bind mounts, the deepest first."""

    def engine_path(self, path: Path) -> str | None:
        """The engine's path of a folder here; None where it cannot see the folder, so that it must be copied.

        Args:
            path: absolute, links resolved.
        """
        if self.kind == "here":
            return str(path)
        for here, there in self.mounts:
            if path == Path(here) or path.is_relative_to(here):
                return os.path.normpath(f"{there}/{path.relative_to(here)}")
        return None


def sight(engine: Engine, mountinfo: Path = Path("/proc/self/mountinfo")) -> Sight:
    """Finds it out with at most three questions to the engine.

    Args:
        engine: connected.
        mountinfo: this process's mount table.

    Raises:
        EngineError: the engine does not answer in time, or fails.
    """
    for container in own_containers(_text(mountinfo)):
        try:
            document = engine.get(f"/containers/{container}/json", doing="looking for ourselves", timeout=ASK_WITHIN)
        except NotFoundError:
            continue
        binds = [m for m in document.get("Mounts") or () if m.get("Source") and m.get("Destination")]
        pairs = sorted(((str(m["Destination"]), str(m["Source"])) for m in binds), key=lambda p: -len(p[0]))
        name = str(document.get("Name", "")).lstrip("/")
        return Sight("container", f"sbx runs in the engine's container {name}", tuple(pairs))
    there = str((engine.get("/info", doing="asking where the engine is", timeout=ASK_WITHIN) or {}).get("Name") or "")
    here = socket.gethostname()
    if there and there.split(".")[0] != here.split(".")[0]:
        return Sight("remote", f"the engine runs on {there}, this is {here}")
    return Sight("here", f"the engine runs on {there or 'this machine'}")


def own_containers(mountinfo: str) -> list[str]:
    """Ids of the containers that a mount table shows this process to be in; more than one when they are nested."""
    found: dict[str, None] = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 4 and fields[4] in _OWN_FILES and (match := _CONTAINER.search(fields[3])):
            found[match[1]] = None
    return list(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
