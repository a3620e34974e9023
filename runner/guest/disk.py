"""How much the home holds, and an end for a run whose home holds too much.

The home is a volume, and the engine's usual storage has no quota for one. So the guest looks at the free space of its
disk, which costs one system call; only when that has fallen by a good part of what is left of the limit does it have
the home counted. The counting runs as U, since nobody else may look everywhere in U's home, in a child that U cannot
attach to. What the count cannot see (a folder closed to its owner, a process that hides its descriptors) is not given
the benefit of the doubt: then all that the disk lost counts as the home's.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.guest.spawn.command import Identity
    from runner.guest.spawn.spawner import Spawner

PERIOD = 0.25
"""Seconds between two looks at the free space."""
FIRST_PART = 4
"""The home is first counted when the disk has lost this part of the limit."""
LEAST_STEP = 16 * 1024 * 1024
"""Bytes that the disk loses at least between two counts."""
LEAST_FILES = 5_000
COUNT_SECONDS = 60.0
"""Longest time of one count; one that takes longer has seen nothing."""
_BLOCK = 512
"""Unit of `st_blocks`, whatever the file system's own is."""


class Watch:
    """Watches one folder. `run` returns when it is over its limit.

    Args:
        folder: what is watched.
        size, files: what it may hold.
    """

    def __init__(self, spawner: Spawner, owner: Identity, folder: str, size: int, files: int) -> None:
        self._spawner = spawner
        self._owner = owner
        self._folder = folder
        self._size = size
        self._files = files
        self._held, self._held_files = 0, 0
        self._step, self._step_files = size // FIRST_PART, files // FIRST_PART

    async def run(self) -> str:
        """Waits until the folder holds too much: how much, in words."""
        free, free_files = self._free()
        while True:
            await asyncio.sleep(PERIOD)
            now, now_files = self._free()
            lost, lost_files = free - now, free_files - now_files
            if lost < self._step and lost_files < self._step_files:
                free, free_files = max(free, now), max(free_files, now_files)
                continue
            await self._count(max(lost, 0), max(lost_files, 0))
            free, free_files = now, now_files
            if self._held > self._size:
                return f"{self._held >> 20} MiB, more than {self._size >> 20} MiB"
            if self._held_files > self._files:
                return f"{self._held_files} files, more than {self._files}"
            self._step = max((self._size - self._held) // 2, LEAST_STEP)
            self._step_files = max((self._files - self._held_files) // 2, LEAST_FILES)

    def _free(self) -> tuple[int, int]:
        found = os.statvfs(self._folder)
        return found.f_bfree * found.f_frsize, found.f_ffree

    async def _count(self, lost: int, lost_files: int) -> None:
        from runner.guest.spawn.command import Command

        command = Command([self._folder], {}, "/", self._owner, call="runner.guest.disk:measure")
        result = await self._spawner.run(command, timeout=COUNT_SECONDS, limit=4096)
        words = result.stdout.data.split()
        if result.exit.code == 0 and len(words) == 2:
            self._held, self._held_files = int(words[0]), int(words[1])
        else:
            self._held, self._held_files = self._held + lost, self._held_files + lost_files


def measure(argv: list[str]) -> int:
    """Prints the bytes and the files of a folder, files without a name that a process holds open included.

    Returns: 0, or 1 when there is something that could not be looked at.
    """
    device = os.stat(argv[0]).st_dev
    seen: set[int] = set()
    size, blind = 0, False
    folders = [argv[0]]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev != device or found.st_ino in seen:
                        continue
                    seen.add(found.st_ino)
                    size += found.st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # gone in the meantime
        except OSError:
            blind = True
    for name in filter(str.isdecimal, os.listdir("/proc")):
        held, closed = _unnamed(name, device, seen)
        size += held
        blind = blind or closed
    os.write(1, f"{size} {len(seen)}\n".encode())
    return int(blind)


def _unnamed(process: str, device: int, seen: set[int]) -> tuple[int, bool]:
    """Bytes of files that only a process of U's still holds, and whether it hides them."""
    size = 0
    try:
        if f"\nUid:\t{os.getuid()}\t" not in _read(f"/proc/{process}/status") or int(process) == os.getpid():
            return 0, False
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            try:
                found = os.stat(f"/proc/{process}/fd/{descriptor}")
            except FileNotFoundError:
                continue
            if found.st_dev == device and found.st_nlink == 0 and found.st_ino not in seen:
                seen.add(found.st_ino)
                size += found.st_blocks * _BLOCK
        # A mapping keeps a file alive without a descriptor, and how large the file is cannot be seen from it.
        place = f"{os.major(device):02x}:{os.minor(device):02x}"
        for line in _read(f"/proc/{process}/maps").splitlines():
            fields = line.split(maxsplit=5)
            if line.endswith(" (deleted)") and fields[3] == place and int(fields[4]) not in seen:
                return size, True
    except (FileNotFoundError, ProcessLookupError):
        return size, False  # it ended
    except OSError:
        return size, True
    return size, False


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
