"""The program in the image: the guest, the libraries it imports, and the ready-made hooks, under `/opt/sbx`.

The libraries are copied from this host's own installation, so that a build needs no package index for them and the
container runs the versions that were tested here. All are pure Python, so that they run under the image's Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import ImageError
from runner.kits.data import data_folder

if TYPE_CHECKING:
    import importlib.metadata

DIRECT = ("httpx", "tenacity", "bashlex")
"""What the guest and the ready-made hooks (`bashlex`: policy.py) import beside the standard library."""
LEFT_ASIDE = {"__pycache__", "node_modules", "target", "samples"}
"""Folders under `hooks/` that no run needs."""
PACKAGES = ("wire", "guest")
"""Of `runner`, what goes along."""


@dataclass(frozen=True)
class ContextFile:
    """One file of a build's context."""

    path: str
    """Relative, `/`-separated."""
    content: bytes
    mode: int = 0o644
    link: str = ""


def files() -> list[ContextFile]:
    """Everything of the program, paths under `/opt/sbx`, sorted."""
    found = [*_own(), *_hooks()]
    for distribution in libraries():
        for path in distribution.files or ():
            if ".." in path.parts or path.parts[0].endswith(".dist-info") or "__pycache__" in path.parts:
                continue
            if path.suffix in (".so", ".pyd"):
                raise ImageError(f"{distribution.name} is not pure Python: {path}", hint="install its pure build")
            found.append(ContextFile(f"lib/{path}", Path(str(path.locate())).read_bytes()))
    return sorted(found, key=lambda file: file.path)


@cache
def digest() -> str:
    """Hex SHA-256 of the program. Libraries count by name and version: their 3 MB are not read at each start."""
    total = hashlib.sha256()
    for file in sorted([*_own(), *_hooks()], key=lambda file: file.path):
        total.update(f"{file.path}\0{file.mode:o}\0{len(file.content)}\0".encode())
        total.update(file.content)
    for name, version in sorted(_versions().items()):
        total.update(f"{name}=={version}\0".encode())
    return total.hexdigest()


@cache
def libraries() -> tuple[importlib.metadata.Distribution, ...]:
    """The distributions behind `DIRECT`, with all that they require, by name."""
    import importlib.metadata

    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = list(DIRECT)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise ImageError(f"{name} is not installed, and the sandbox needs it", hint="install sbx again") from None
        found[name] = distribution
        wanted += required_by(distribution.requires or (), _installed)
    return tuple(found[name] for name in sorted(found))


def required_by(requirements: Iterable[str], installed: Callable[[str], bool]) -> list[str]:
    """Names of the distributions that `Requires-Dist` lines ask for here, extras aside."""
    names = []
    for requirement in requirements:
        spec, _, marker = requirement.partition(";")
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", spec)
        if match is None or "extra" in marker:
            continue
        name = _normal(match[1])
        # A marker that does not hold here is about another Python or system; then it is not installed here either.
        if not marker or installed(name):
            names.append(name)
    return names


def _versions() -> dict[str, str]:
    """Name and version of each of `libraries()`, read from the names of their folders.

    For each start: `importlib.metadata` gives the same, and takes 15 ms to import. It is asked where the folders are
    not laid as pip and uv lay them.
    """
    spec = importlib.util.find_spec(DIRECT[0])
    try:
        site = Path(spec.origin).parent.parent if spec and spec.origin else Path()
        folders = {
            _normal(name): (version, site / entry)
            for entry in os.listdir(site)  # noqa: PTH208  # a third of the time of iterdir
            if entry.endswith(".dist-info")
            for name, _, version in [entry.removesuffix(".dist-info").partition("-")]
        }
        found: dict[str, str] = {}
        wanted = list(DIRECT)
        while wanted:
            name = wanted.pop()
            if name in found:
                continue
            version, folder = folders[name]
            found[name] = version
            head = (folder / "METADATA").read_text("utf-8").partition("\n\n")[0]
            lines = [line.partition(":")[2] for line in head.splitlines() if line.startswith("Requires-Dist:")]
            wanted += required_by(lines, folders.__contains__)
    except (OSError, KeyError, ValueError):
        return {_normal(distribution.name): distribution.version for distribution in libraries()}
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    import importlib.metadata

    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _own() -> list[ContextFile]:
    runner = Path(__file__).parent.parent
    found = [ContextFile("lib/runner/__init__.py", (runner / "__init__.py").read_bytes())]
    for package in PACKAGES:
        found += _read(runner / package, f"lib/runner/{package}", modes=False)
    return found


def _hooks() -> list[ContextFile]:
    folder = data_folder("hooks")
    return _read(folder, "hooks", modes=True)


def _read(folder: Path, under: str, *, modes: bool) -> list[ContextFile]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_ASIDE]
        inside = f"{under}{place.removeprefix(str(folder))}"
        for name in names:
            with open(f"{place}/{name}", "rb") as file:  # noqa: PTH123  # read at each start: half the time of Path's
                runs = modes and os.fstat(file.fileno()).st_mode & 0o100
                found.append(ContextFile(f"{inside}/{name}", file.read(), 0o755 if runs else 0o644))
    return found
