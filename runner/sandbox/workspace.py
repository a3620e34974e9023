"""The workspace: the one folder of the user's that a sandbox sees."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.errors import RefusedError, UsageError
from runner.wire.agent import GUEST_UID, HOOK_UID
from runner.wire.messages import workspace_mark

ELSEWHERE = "/workspace"
"""Where a workspace is mounted whose own path cannot be used in the image."""

PRIVATE_UID = 1000
_NOBODY = 65534

_OWN_FOLDERS = (
    "/bin /boot /dev /etc /home/agent /lib /lib32 /lib64 /libx32 /opt/sbx /proc /root /run /sbin /sys /usr /var/run"
    " /var/lib/extrausers"
).split()
"""Folders that belong to the image, or that U may not enter."""


@dataclass(frozen=True)
class Workspace:
    """A folder that may be mounted."""

    source: Path
    """On the host, links resolved."""
    target: str
    """In the container."""
    owner: int
    """The host's uid of its owner."""

    @property
    def moved(self) -> bool:
        """It is mounted at another path than its own; the banner says so."""
        return str(self.source) != self.target


def find(path: Path, *, home: Path, granted: bool = False) -> Workspace:
    """Checks that `path` may be a workspace.

    Args:
        path: as the user gave it.
        home: the user's home folder.
        granted: `home-workspace` was granted, so that `/` and the home folder pass.

    Raises:
        UsageError: it is missing, not a folder, or cannot be read.
        RefusedError: it is `/`, the home folder, or contains it, and that was not granted.
    """
    try:
        source = path.resolve(strict=True)
        status = source.stat()
    except FileNotFoundError:
        raise UsageError(f"the workspace {path} does not exist", place=str(path), hint=f"mkdir -p {path}") from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the workspace {path} cannot be used: {reason}", place=str(path)) from None
    if not source.is_dir():
        raise UsageError(f"the workspace {path} is a file, not a folder", place=str(path))
    if not os.access(source, os.R_OK | os.X_OK):
        raise UsageError(f"the workspace {path} cannot be read by this user", place=str(path))
    real_home = home.resolve()
    if not granted and (source == real_home or real_home.is_relative_to(source)):
        what = "the root folder" if source == Path("/") else "the home folder" if source == real_home else "above it"
        raise RefusedError(
            f"the workspace would be {source}, {what}: everything in it would be open to the agent",
            place=str(path),
            hint="name a folder in it, or allow it with --grant home-workspace",
        )
    if status.st_uid in (GUEST_UID, HOOK_UID, _NOBODY):
        raise UsageError(
            f"the workspace {path} belongs to uid {status.st_uid}, which the sandbox keeps for itself",
            place=str(path),
            hint="give it to another user: chown",
        )
    return Workspace(source, target(source), status.st_uid)


def target(source: Path) -> str:
    """The path in the container: the host's own, or `ELSEWHERE`."""
    text = str(source)
    below = text.rstrip("/") + "/"
    taken = any(below.startswith(f"{own}/") or own.startswith(below) for own in _OWN_FOLDERS)
    return ELSEWHERE if taken else text


def nowhere() -> Workspace:
    """No folder of the user's: an empty one in the sandbox."""
    return Workspace(Path("/none"), ELSEWHERE, PRIVATE_UID)


@contextmanager
def canary(folder: Path | None, seen: str = "") -> Iterator[tuple[str, str]]:
    """A file in the workspace, there only until the guest has seen it: (name, text).

    Where the guest's folder is known to be this one, the host's user may not write, or nothing is mounted (None), the
    name is empty and there is nothing to check. So a host that is killed leaves no such file, unless the engine runs
    on another kernel.

    Args:
        folder: the workspace.
        seen: the mark of the folder that the guest sees.
    """
    if folder is None or (seen and seen == workspace_mark(str(folder))):
        yield "", ""
        return
    name, text = f".sbx-canary-{secrets.token_hex(8)}", secrets.token_hex(16)
    path = folder / name
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError:
        yield "", ""
        return
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        # The guest reads it as the workspace's owner, who may be another user than this one.
        path.chmod(0o644)
        yield name, text
    finally:
        path.unlink(missing_ok=True)
