"""The volumes that a plan asks for, checked against what a sandbox is made of."""

from __future__ import annotations

from collections.abc import Sequence

from runner.errors import ConfigError
from runner.kits.plan import Volume as Asked
from runner.sandbox.profile import Volume, parse_size

MAX_VOLUMES = 50
_NEVER = "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt/sbx /proc /root /run /sbin /sys /usr /var/run".split()
"""What the guest, the guards and their programs come from: a volume there would be U's to write."""
_OTHERS = ("/tmp", "/var/tmp", "/var/lib/extrausers", "/home/agent")  # noqa: S108 - the sandbox's own
"""Mounted already, or above what is; below `/home/agent` a volume may lie."""


def of_plan(asked: Sequence[Asked], *, workspace: str) -> tuple[tuple[Volume, ...], tuple[str, ...]]:
    """The volumes, and what is to be said of them.

    Args:
        workspace: its path in the container.

    Raises:
        ConfigError: one lies where the sandbox's own parts are.
    """
    if len(asked) > MAX_VOLUMES:
        raise ConfigError(f"more than {MAX_VOLUMES} volumes")
    found: list[Volume] = []
    said: list[str] = []
    for volume in asked:
        path = "/" + "/".join(part for part in volume.path.split("/") if part not in ("", "."))
        place = f"kit {volume.source}: volumes"
        if ".." in path.split("/"):
            raise ConfigError(f"{volume.path!r} climbs", place=place)
        if any(_touches(path, own) for own in _NEVER) or any(_covers(path, own) for own in _OTHERS):
            raise ConfigError(f"{path} belongs to the sandbox itself, and cannot be a volume", place=place)
        if _touches(path, workspace):
            raise ConfigError(f"{path} is the workspace, or lies in it or above it", place=place)
        tmpfs = volume.type == "tmpfs"
        size = parse_size(volume.size) if volume.size else 0
        if size and not tmpfs:
            said.append(f"kit {volume.source}: the size of the volume {path} is not kept: the engine's have no limit")
        found.append(Volume(path, tmpfs, size if tmpfs else 0, int(volume.mode, 8) & 0o777 if volume.mode else 0o755))
    return tuple(found), tuple(said)


def _covers(path: str, own: str) -> bool:
    return own == path or own.startswith(path.rstrip("/") + "/")


def _touches(path: str, own: str) -> bool:
    return _covers(path, own) or path.startswith(own.rstrip("/") + "/")
