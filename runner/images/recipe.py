"""The recipe: what of a kit travels inside its image, so that the image alone can be run, compared and checked.

/opt/sbx/recipe/lock.json   the lock without the image's id, which it cannot know
                plan.json   the plan, with no path of the machine that built it
                manifest    every file of the image below this folder, with its hash
                kits/NAME/  the folder of each kit that took part: spec, agent, hooks, files
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, ImageError
from runner.images import content, lock, plan_codec
from runner.images.program import ContextFile
from runner.kits.find import Finder
from runner.kits.plan import Plan

LABEL = "dev.sbx.recipe"
"""Hex SHA-256 over the recipe."""
LABEL_BELOW = "dev.sbx.below"
"""Id of the image that the recipe was laid on."""
FOLDER = content.RECIPE
MAX_KITS = 64 * 1024 * 1024
"""Bytes of all kits' folders together."""
MAX_FILES = 20_000
LEFT_OUT = frozenset({"playground", ".git", ".mm", ".env", lock.NAME, f"{lock.NAME}.sig"})
"""Top-level names of a kit's folder that do not travel."""


@dataclass(frozen=True)
class Recipe:
    """A recipe, as files below its folder."""

    files: tuple[ContextFile, ...]

    def digest(self) -> str:
        return digest((file.path, bool(file.mode & 0o111), file.content) for file in self.files)


def digest(files: Iterable[tuple[str, bool, bytes]]) -> str:
    """Hex SHA-256 over names, whether they can be run, and contents."""
    total = hashlib.sha256()
    for path, runs, data in sorted(files):
        total.update(json.dumps([path, runs, len(data)]).encode() + data)
    return total.hexdigest()


def make(plan: Plan, folders: Mapping[str, Path], document: Mapping[str, Any], files: bytes) -> Recipe:
    """The recipe of a built image.

    Args:
        plan: what was built.
        folders: of each kit that took part, by name.
        document: the lock without the image's id.
        files: the manifest of the image's files.

    Raises:
        ConfigError: a kit's folder is too large, or holds what cannot travel.
    """
    found = [
        ContextFile("lock.json", lock.render(document)),
        ContextFile("plan.json", plan_codec.encode(portable(plan, folders))),
        ContextFile("manifest", files),
    ]
    size = 0
    for name, folder in sorted(folders.items()):
        for file in kit_files(folder):
            size += len(file.content)
            if size > MAX_KITS or len(found) > MAX_FILES:
                raise ConfigError(
                    f"the kits' folders are too large to travel in an image: over {MAX_KITS >> 20} MiB or "
                    f"{MAX_FILES} files",
                    place=str(folder),
                )
            found.append(replace(file, path=f"kits/{name}/{file.path}"))
    return Recipe(tuple(sorted(found, key=lambda file: file.path)))


def portable(plan: Plan, folders: Mapping[str, Path]) -> Plan:
    """The plan without this machine's paths, so that it tells nothing of it and is the same everywhere."""
    kits = tuple(
        replace(kit, path=kit.path if "://" in kit.path else f"kits/{kit.name}") if kit.name in folders else kit
        for kit in plan.kits
    )
    warnings = []
    for text in plan.warnings:
        for name, folder in folders.items():
            text = text.replace(str(folder), name)
        warnings.append(text)
    base = replace(plan.base, context=None) if plan.base.context else plan.base
    return replace(plan, kits=kits, warnings=tuple(warnings), base=base)


def kit_files(folder: Path) -> Sequence[ContextFile]:
    """The files of a kit's folder that travel, sorted; a link becomes what it leads to, inside the folder only."""
    found = []
    root = folder.resolve()
    for place, folders, names in os.walk(root):
        at = Path(place)
        top = at == root
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not (top and name in LEFT_OUT))
        for name in sorted(names):
            if top and name in LEFT_OUT:
                continue
            path = at / name
            real = path.resolve()
            if not real.is_relative_to(root):
                raise ConfigError("a link that leads out of the kit's folder", place=str(path))
            if not real.is_file():
                raise ConfigError("neither a file nor a folder", place=str(path))
            try:
                data = real.read_bytes()
            except OSError as error:
                raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from None
            mode = 0o755 if real.stat().st_mode & 0o111 else 0o644
            found.append(ContextFile(path.relative_to(root).as_posix(), data, mode))
    return sorted(found, key=lambda file: file.path)


def render(start: str, recipe: str, below: str) -> str:
    """The Dockerfile that lays the recipe on a built image."""
    return f'FROM {start}\nUSER 0\nCOPY recipe/ /{FOLDER}/\nLABEL {LABEL}="{recipe}" \\\n    {LABEL_BELOW}="{below}"\n'


def read(kept: Mapping[str, bytes], files: Mapping[str, content.Entry]) -> dict[str, bytes]:
    """The recipe's files out of an image's content, by their path below its folder.

    Raises:
        ImageError: one was too large to be kept.
    """
    found = {}
    for path, entry in files.items():
        if content.in_recipe(path) and entry.kind != "dir":
            name = path.removeprefix(f"{FOLDER}/")
            if path not in kept:
                raise ImageError(f"the recipe holds {name!r}, which is too large, or no file")
            found[name] = kept[path]
    return found


def folders_of(plan: Plan, finder: Finder) -> dict[str, Path]:
    """The folder of each kit that took part; those by pinned reference lie in the cache."""
    return {kit.name: finder.locate(kit.path).folder if "://" in kit.path else Path(kit.path) for kit in plan.kits}
