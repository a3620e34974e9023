"""The third line against leftovers: what belongs to a process that is certainly dead is removed at every start."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.engine import Engine
from runner.errors import EngineError, InUseError, NotFoundError
from runner.sandbox import owner
from runner.sandbox.container import LABEL_KEEP, LABEL_SANDBOX, forget_lock, lock, remove, remove_volume


def sweep(engine: Engine, locks: Path) -> list[str]:
    """Removes throwaway sandboxes and volumes without an owner, and stops kept ones that still run.

    One thing that cannot be removed does not keep the others. A kept sandbox's label names the process that made it;
    another may use it since, which its lock tells.

    Args:
        engine: where.
        locks: folder of the lock files.

    Returns: the names of what was removed or stopped.
    """
    done: list[str] = []
    sockets = [*locks.glob("*.sock")]  # before the listing: whoever has one has a container
    query = quote(json.dumps({"label": [owner.LABEL]}))
    containers = engine.get(f"/containers/json?all=1&filters={query}", doing="looking for leftovers", timeout=20.0)
    for container in containers:
        marked = container.get("Labels", {})
        if not _dead(marked):
            continue
        name = marked.get(LABEL_SANDBOX, container["Id"][:12])
        with contextlib.suppress(EngineError, NotFoundError):
            if marked.get(LABEL_KEEP) != "1":
                remove(engine, container["Id"])
            elif container.get("State") == "running" and _idle(locks, name):
                engine.request("POST", f"/containers/{container['Id']}/stop?t=2", doing="stopping a leftover sandbox")
            else:
                continue
            done.append(name)
    _forget_locks(locks, {container.get("Labels", {}).get(LABEL_SANDBOX) for container in containers})
    _forget_sockets(sockets, {container["Id"][:12] for container in containers})
    volumes = engine.get(f"/volumes?filters={query}", doing="looking for leftovers", timeout=20.0)["Volumes"] or []
    for volume in volumes:
        if volume["Labels"].get(LABEL_KEEP) != "1" and _dead(volume["Labels"]):
            with contextlib.suppress(EngineError, NotFoundError):
                remove_volume(engine, volume["Name"])
                done.append(volume["Name"])
    return done


def _forget_locks(locks: Path, sandboxes: set[str]) -> None:
    """Takes away the lock files of throwaway sandboxes whose process died. A remembered sandbox keeps its own."""
    for path in locks.glob("*.lock"):
        name = path.stem
        if name in sandboxes or (locks / f"{name}.json").exists():
            continue
        with contextlib.suppress(InUseError, NotFoundError, OSError):
            held = lock(locks, name)
            forget_lock(locks, name)
            os.close(held)


def _forget_sockets(sockets: list[Path], containers: set[str]) -> None:
    """Takes away the sockets of processes that died. One whose sandbox is another engine's answers, and stays."""
    for path in sockets:
        if path.stem in containers:
            continue
        with contextlib.suppress(OSError), contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(1.0)
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                probe.connect(f"/proc/self/fd/{folder}/{path.name}")  # a socket's address has 107 bytes at most
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            finally:
                os.close(folder)


def _idle(locks: Path, name: str) -> bool:
    """No session of this user's has the sandbox. Another user's locks are not seen: theirs is left alone."""
    if not (locks / f"{name}.lock").exists():
        return False
    try:
        os.close(lock(locks, name))
    except InUseError:
        return False
    return True


def _dead(marked: dict[str, Any]) -> bool:
    made_by = owner.parse(marked.get(owner.LABEL, ""))
    return made_by is not None and made_by.certainly_dead()
