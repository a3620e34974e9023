"""`files/home` and `files/workspace` of a kit, read so that nothing outside the kit can come along.

A kit may come from anybody. A link in it that leads out would carry the reader's own files (`~/.ssh/id_ed25519`)
into an image that is then shared, so every path is opened without following links, and a link is only taken when what
it leads to lies in the kit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import ConfigError
from runner.kits.arguments import MARK, fill_text
from runner.kits.plan import CopiedFile

MAX_FILES = 20_000
MAX_TOTAL = 256 * 1024 * 1024
"""Bytes of all files of a kit together."""
MAX_DEPTH = 64

TARGETS = ("home", "workspace")


@dataclass(frozen=True)
class CopiedFiles:
    home: tuple[CopiedFile, ...] = ()
    workspace: tuple[CopiedFile, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class _Budget:
    files: int = 0
    total: int = 0


def read_copied_files(folder: Path, values: Mapping[str, str] | None, *, waiting: bool = False) -> CopiedFiles:
    """Read `files/` of the kit in `folder`.

    Args:
        values: the kit's arguments, filled into text files; `None` leaves texts as they are (first schema).
        waiting: arguments without a value are fine (a kit that is only checked).

    Raises:
        ConfigError: a file leads out, is no file, cannot be read, uses an unknown argument, or there is too much.
    """
    root = folder / "files"
    try:
        entries = sorted(os.scandir(root), key=lambda e: e.name)
    except (FileNotFoundError, NotADirectoryError):
        return CopiedFiles()
    except OSError as error:
        raise ConfigError(f"cannot be read: {os.strerror(error.errno or 0)}", place=str(root)) from None
    real = Path(os.path.realpath(folder))
    _check_inside(root, real)
    warnings = tuple(
        f"{root / entry.name}: is left aside; only files/home and files/workspace are copied"
        for entry in entries
        if entry.name not in TARGETS
    )
    budget = _Budget()
    found: dict[str, tuple[CopiedFile, ...]] = {}
    for target in TARGETS:
        top = root / target
        if not top.is_dir():
            continue
        _check_inside(top, real)
        found[target] = tuple(_fill(file, top, values, waiting) for file in _walk(top, top, real, budget, 0))
    return CopiedFiles(found.get("home", ()), found.get("workspace", ()), warnings)


def _check_inside(path: Path, real: Path) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(real):
        raise ConfigError("is a link that leads out of the kit's folder", place=str(path))


def _walk(folder: Path, top: Path, real: Path, budget: _Budget, depth: int) -> Iterator[CopiedFile]:
    if depth > MAX_DEPTH:
        raise ConfigError(f"is nested deeper than {MAX_DEPTH} folders", place=str(folder))
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError as error:
        raise ConfigError(f"cannot be read: {os.strerror(error.errno or 0)}", place=str(folder)) from None
    for entry in entries:
        path = folder / entry.name
        if not entry.name.isprintable() or not _is_utf8(entry.name):
            raise ConfigError(f"the name {entry.name!r} holds characters that cannot be shown", place=repr(str(folder)))
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path, top, real, budget, depth + 1)
            continue
        budget.files += 1
        if budget.files > MAX_FILES:
            raise ConfigError(f"holds more than {MAX_FILES:,} files", place=str(top))
        name = path.relative_to(top).as_posix()
        yield _read_link(path, name, top, real, budget) if entry.is_symlink() else _read_file(path, name, budget)


def _read_link(path: Path, name: str, top: Path, real: Path, budget: _Budget) -> CopiedFile:
    target = str(path.readlink())
    resolved = Path(os.path.realpath(path))
    if not resolved.is_relative_to(real):
        raise ConfigError(f"is a link that leads out of the kit's folder, to {target}", place=str(path))
    if not resolved.exists():
        raise ConfigError(f"is a link to {target}, which is not there", place=str(path))
    lexical = os.path.normpath(Path(name).parent / target)
    stays = not target.startswith("/") and lexical != ".." and not lexical.startswith("../")
    if stays and resolved.is_relative_to(os.path.realpath(top)):
        return CopiedFile(name, link=target)
    # what it names is in the kit but will not be at that place in the sandbox: copy what it leads to
    if resolved.is_dir():
        raise ConfigError("is a link to a folder outside its own tree; only files can be copied so", place=str(path))
    return _read_file(resolved, name, budget, shown=path)


def _read_file(path: Path, name: str, budget: _Budget, *, shown: Path | None = None) -> CopiedFile:
    place = str(shown or path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot be read: {os.strerror(error.errno or 0)}", place=place) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ConfigError("is neither a file, a folder nor a link", place=place)
    with os.fdopen(descriptor, "rb") as file:
        room = MAX_TOTAL - budget.total
        content = file.read(room + 1) if status.st_size <= room else b""
        if status.st_size > room or len(content) > room:
            raise ConfigError(f"the files of a kit may hold {MAX_TOTAL >> 20} MiB together", place=place)
        budget.total += len(content)
    # as git keeps modes: what the umask of a checkout adds or takes must not make another plan
    return CopiedFile(name, content, 0o755 if status.st_mode & stat.S_IXUSR else 0o644)


def _fill(file: CopiedFile, top: Path, values: Mapping[str, str] | None, waiting: bool) -> CopiedFile:
    if values is None or file.link or MARK.encode() not in file.content:
        return file
    try:
        text = file.content.decode()
    except UnicodeDecodeError:
        return file

    def unknown(name: str) -> None:
        if not waiting:
            raise ConfigError(f"the argument {name!r} is not declared under 'args'", place=str(top / file.path))

    filled = fill_text(text, values, unknown)
    return CopiedFile(file.path, filled.encode(), file.mode)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
