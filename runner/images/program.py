"""The program in the image: the guest, the libraries it imports, and the ready-made hooks, under `/opt/sbx`.

The libraries are copied from this host's own installation, so that a build needs no package index for them and the
container runs the versions that were tested here. All are pure Python, so that they run under the image's Python.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from runner.errors import ImageError

DIRECT = ("httpx", "tenacity", "bashlex")
"""What the guest and the ready-made hooks (`bashlex`: policy.py) import beside the standard library."""
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


def data_folder(name: str) -> Path:
    """`images`, `mixins`, `hooks` or `sbx`: in the wheel under `runner/_data`, in a clone beside `runner`."""
    runner = Path(__file__).parent.parent
    packed = runner / "_data" / name
    return packed if packed.is_dir() else runner.parent / name


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
    for distribution in libraries():
        total.update(f"{distribution.name}=={distribution.version}\0".encode())
    return total.hexdigest()


@cache
def libraries() -> tuple[importlib.metadata.Distribution, ...]:
    """The distributions behind `DIRECT`, with all that they require, by name."""
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
        for requirement in distribution.requires or ():
            spec, _, marker = requirement.partition(";")
            match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", spec)
            if match is None or "extra" in marker:
                continue
            required = re.sub(r"[-_.]+", "-", match[0]).lower()
            # A marker that does not hold here is about another Python or system; then it is not installed here either.
            if not marker or _installed(required):
                wanted.append(required)
    return tuple(found[name] for name in sorted(found))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _own() -> list[ContextFile]:
    runner = Path(__file__).parent.parent
    found = [ContextFile("lib/runner/__init__.py", (runner / "__init__.py").read_bytes())]
    for package in PACKAGES:
        found += [
            ContextFile(f"lib/runner/{path.relative_to(runner).as_posix()}", path.read_bytes())
            for path in sorted((runner / package).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        ]
    return found


def _hooks() -> list[ContextFile]:
    folder = data_folder("hooks")
    found = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        relative = PurePosixPath(path.relative_to(folder))
        if path.is_file() and not {"__pycache__", "node_modules", "target"} & set(relative.parts):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found.append(ContextFile(f"hooks/{relative}", path.read_bytes(), mode))
    return found
