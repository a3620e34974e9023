"""Walking folders: what is there, and which lines match where the image has no ripgrep."""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

MAX_ENTRIES = 500
MAX_VISITED = 50_000
"""Entries looked at before a walk gives up and says so."""
MAX_MATCHES = 200
MAX_SEARCHED = 16 * 1024 * 1024
"""Bytes of one file that the search without ripgrep reads."""
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


class ListingError(Exception):
    """The folder or the pattern is wrong."""


def shown_name(name: str) -> str:
    """A file's name on one line, whatever it holds."""
    safe = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in safe)


def near_names(path: str) -> str:
    """What in its folder is named nearly so, as a sentence, or nothing."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder)[:5000]
    except OSError:
        return ""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f" Near names in that folder: {', '.join(map(shown_name, near))}." if near else ""


class Walk:
    """Entries below a folder, sorted, folders before what is in them. Links are not followed."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.visited = 0
        self.complete = True
        self.skipped: list[str] = []

    def below(self, folder: str, prefix: str = "", level: int = 1) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(folder) as found:
                entries = []
                for entry in found:
                    self.visited += 1
                    if self.visited > MAX_VISITED:
                        self.complete = False
                        break
                    entries.append(entry)
        except OSError:
            if level == 1:
                raise
            self.skipped.append(f"{prefix} cannot be read")
            return
        for entry in sorted(entries, key=lambda e: e.name):
            yield prefix + entry.name, entry
            if entry.is_dir(follow_symlinks=False) and level < self._depth:
                if entry.name in _SKIPPED:
                    self.skipped.append(f"{prefix}{entry.name}/ is not listed")
                elif self.complete:
                    yield from self.below(entry.path, f"{prefix}{entry.name}/", level + 1)


def list_files(arguments: dict[str, Any]) -> dict[str, Any]:
    """Names, folders with a slash, files with their size."""
    path = os.path.abspath(os.path.expanduser(arguments["path"] or "."))
    if not os.path.isdir(path):
        kind = "is a file; use read_file" if os.path.lexists(path) else f"does not exist.{near_names(path)}"
        raise ListingError(f"{path} {kind}")
    pattern = arguments["pattern"]
    walk = Walk(64 if pattern and arguments["depth"] is None else arguments["depth"] or 1)
    lines: list[str] = []
    more = 0
    for name, entry in walk.below(path):
        if pattern and not (fnmatch.fnmatchcase(entry.name, pattern) or fnmatch.fnmatchcase(name, pattern)):
            continue
        if len(lines) >= MAX_ENTRIES:
            more += 1
        else:
            lines.append(_line(name, entry))
    total = len(lines) + more
    text = "\n".join(lines) or ("[nothing matches]" if pattern else "[the folder is empty]")
    if more:
        text += f"\n[… {more:,} more of {total:,}; name a folder or a pattern]"
    if not walk.complete:
        text += f"\n[stopped after {MAX_VISITED:,} entries]"
    for note in walk.skipped[:10]:
        text += f"\n[{shown_name(note)}]"
    return {"output": text, "data": {"path": path, "entries": total, "truncated": bool(more) or not walk.complete}}


def _line(name: str, entry: os.DirEntry[str]) -> str:
    shown = shown_name(name)
    try:
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return f"{shown} -> {shown_name(os.readlink(entry.path))}"
    except OSError:
        return shown
    if stat.S_ISDIR(found.st_mode):
        return f"{shown}/"
    return f"{shown}  {found.st_size:,} B" if stat.S_ISREG(found.st_mode) else f"{shown}  (not a regular file)"


def search(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lines that match, as `path:line:text`."""
    root = os.path.abspath(os.path.expanduser(arguments["path"] or "."))
    try:
        pattern = re.compile(arguments["pattern"].encode(), re.IGNORECASE if arguments["ignore_case"] else 0)
    except re.error as error:
        raise ListingError(f"the pattern is not a regular expression: {error}") from None
    if not os.path.lexists(root):
        raise ListingError(f"{root} does not exist.{near_names(root)}")
    walk = Walk(64)
    files = walk.below(root) if os.path.isdir(root) else iter([(root, None)])
    lines: list[str] = []
    total = 0
    for name, entry in files:
        if entry and not entry.is_file(follow_symlinks=False):
            continue
        if entry and arguments["glob"] and not fnmatch.fnmatchcase(entry.name, arguments["glob"]):
            continue
        for number, line in _matches(entry.path if entry else root, pattern):
            total += 1
            if len(lines) < MAX_MATCHES:
                lines.append(f"{shown_name(name)}:{number}:{line}")
    text = "\n".join(lines) or "[no match]"
    if total > len(lines):
        text += f"\n[… {total - len(lines):,} more of {total:,} matches; make the pattern narrower]"
    return {"output": text, "data": {"matches": total, "truncated": total > len(lines)}}


def _matches(path: str, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, str]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    with open(descriptor, "rb") as file:
        data = file.read(MAX_SEARCHED)
    if b"\0" in data[:8192]:
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if pattern.search(line):
            yield number, line[:300].decode("utf-8", "replace").rstrip("\r")
