"""What the file tools do, run as U in a forked child of a supervisor: JSON on stdin, JSON on stdout.

Preloaded by the fork server, so kept small. Nothing is imported from where a tool could plant it: the child executes
nothing, and its search path is the program's. Files are opened without waiting, so that a named pipe holds up nobody.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from typing import Any

from runner.guest.tools import documents, editing, listing

MAX_INPUT = 64 * 1024 * 1024
MAX_SHOWN = 50 * 1024
"""Bytes of a file's text in one answer."""
MAX_LINE = 2000
"""Characters of one line that are shown."""
MAX_EDITED = 64 * 1024 * 1024
"""Bytes of a file that is edited."""
MAX_SKILL_FILES = 100
_CHUNK = 1 << 20


class Refused(Exception):
    """The call cannot be done; the text tells the model why and what to do."""


def main(argv: list[str]) -> int:
    """Answers one call: `argv` is the operation's name."""
    data = bytearray()
    while part := os.read(0, _CHUNK):
        data += part
        if len(data) > MAX_INPUT:
            return _answer({"output": "the arguments are too large", "is_error": True})
    arguments = json.loads(data)
    operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "read_file": read_file,
        "write_file": write_file,
        "edit_file": edit_file,
        "list_files": listing.list_files,
        "search": listing.search,
        "read_skill": read_skill,
    }
    try:
        answer = operations[argv[0]](arguments)
    except (Refused, editing.EditError, listing.ListingError) as error:
        answer = {"output": str(error), "is_error": True}
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        answer = {"output": f"{where}{(error.strerror or str(error)).lower()}", "is_error": True}
    return _answer(answer)


def _answer(answer: dict[str, Any]) -> int:
    view = memoryview(json.dumps(answer).encode("ascii"))
    while view:
        view = view[os.write(1, view) :]
    return 0


def path_of(name: str) -> str:
    """The absolute path that a model means; the working folder is the workspace."""
    if "\0" in name or not name:
        raise Refused("the path is empty or holds a NUL byte")
    return os.path.abspath(os.path.expanduser(name))


def open_regular(path: str) -> int:
    """A descriptor of a regular file. Raises Refused for anything else, telling what it is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        raise Refused(f"{path} does not exist.{listing.near_names(path)}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise Refused(f"{path} is a folder; use list_files")
        raise Refused(f"{path} is not a regular file")
    return descriptor


# ---- read_file


def read_file(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lines `offset` to `offset + limit - 1`, as many as fit."""
    path = path_of(arguments["path"])
    first, most = arguments["offset"], arguments["limit"]
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        start = file.read(8192)
        codec = editing.codec_of(start)
        if b"\0" in start and not codec.startswith("utf-16"):
            raise Refused(
                f"{path} is a binary file of {size:,} bytes; look at it with bash, for example with xxd or file"
            )
        file.seek(0)
        if codec.startswith("utf-16"):
            if size > MAX_EDITED:
                raise Refused(f"{path} is UTF-16 and larger than {MAX_EDITED:,} bytes")
            text = file.read().decode(codec, "replace").removeprefix("\ufeff")
            taken = Taken(first, most)
            for line in text.splitlines(keepends=True):
                taken.add(line)
            return taken.answer(path, size, whole=True)
        return _read_lines(file, path, size, Taken(first, most))


def _read_lines(file: Any, path: str, size: int, taken: Taken) -> dict[str, Any]:
    """Line by line, holding no more than a piece of a line however long it is."""
    number, piece = 0, b""
    while piece := file.readline(_CHUNK):
        begun = piece[: MAX_LINE * 4 + 4]
        length = len(piece)
        while not piece.endswith(b"\n") and (piece := file.readline(_CHUNK)):
            length += len(piece)
        cut = length > len(begun)
        if number == 0:
            begun = begun.removeprefix(b"\xef\xbb\xbf")
        number += 1
        taken.add(begun.decode("utf-8", "replace"), cut)
        if taken.full and file.tell() > MAX_EDITED:
            return taken.answer(path, size, whole=False)  # counting the rest would take too long
    return taken.answer(path, size, whole=True)


class Taken:
    """The lines of an answer."""

    def __init__(self, first: int, most: int) -> None:
        self._first = first
        self._most = most
        self._lines: list[str] = []
        self._bytes = 0
        self._count = 0
        self._cut_lines = 0
        self.full = False

    def add(self, line: str, cut: bool = False) -> None:
        self._count += 1
        if self._count < self._first or self.full:
            return
        line = line.rstrip("\r\n")
        if cut or len(line) > MAX_LINE:
            line = line[:MAX_LINE] + " [… line cut]"
            self._cut_lines += 1
        size = len(line.encode("utf-8", "replace")) + 1
        if len(self._lines) >= self._most or (self._lines and self._bytes + size > MAX_SHOWN):
            self.full = True
            return
        self._lines.append(line)
        self._bytes += size

    def answer(self, path: str, size: int, *, whole: bool) -> dict[str, Any]:
        last = self._first + len(self._lines) - 1
        total = f"{self._count:,}" if whole else f"more than {self._count:,}"
        data = {"path": path, "size": size, "first": self._first, "last": last, "lines": self._count if whole else None}
        if size == 0:
            return {"output": "[the file is empty]", "data": data}
        if not self._lines:
            raise Refused(f"{path} has only {total} lines; there is no line {self._first}")
        text = "\n".join(self._lines).replace("\0", "\u2400")
        if self._first > 1 or self.full or last < self._count:
            text += f"\n[lines {self._first} to {last} of {total}"
            text += f"; go on with offset {last + 1}]" if self.full or last < self._count else "]"
            data["truncated"] = self.full
        if self._cut_lines:
            text += f"\n[{self._cut_lines} long lines were cut at {MAX_LINE} characters]"
        return {"output": text, "data": data}


# ---- read_skill


def read_skill(arguments: dict[str, Any]) -> dict[str, Any]:
    """A skill's instructions, with the paths of the files that lie beside them."""
    folder = arguments["path"]
    try:
        path = documents.find(documents.FILE, [folder])
        if path is None:
            raise Refused(f"{folder} has no {documents.FILE} any more")
        text = documents.read(path)["text"]
    except documents.Unfit as unfit:
        raise Refused(str(unfit)) from None
    further = [
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in sorted(names)
        if os.path.join(where, name) != os.path.join(folder, documents.FILE)
    ][:MAX_SKILL_FILES]
    if further:
        text += "\n\n[further files of this skill]\n" + "\n".join(further)
    return {"output": text, "data": {"path": folder, "files": len(further)}}


# ---- write_file, edit_file


def write_file(arguments: dict[str, Any]) -> dict[str, Any]:
    """The whole file at once, or nothing of it."""
    path = path_of(arguments["path"])
    content = arguments["content"].encode("utf-8", "surrogatepass")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = replace(path, content)
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    what = "Created" if new else "Replaced"
    return {
        "output": f"{what} {path}: {lines:,} line{'' if lines == 1 else 's'}, {len(content):,} bytes.",
        "data": {"path": path, "size": len(content), "created": new},
    }


def replace(path: str, content: bytes) -> bool:
    """Puts `content` in a file's place in one step, keeping its mode; of a link, in its target's. True if it is new."""
    target = os.path.realpath(path)
    try:
        found = os.stat(target)
    except FileNotFoundError:
        found = None
    if found and not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}")
    if found and not os.access(target, os.W_OK):
        raise Refused(f"{path} may not be written: permission denied")
    folder, name = os.path.split(target)
    if found and (found.st_nlink > 1 or not os.access(folder, os.W_OK)):
        with open(target, "r+b") as file:  # another name for it would be left with the old content
            file.write(content)
            file.truncate()
        return False
    draft = os.path.join(folder, f".{name[:200]}.{os.getpid()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if found:
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise
    return found is None


def edit_file(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replaces exact text, and answers with the difference."""
    path = path_of(arguments["path"])
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > MAX_EDITED:
            raise Refused(f"{path} is larger than {MAX_EDITED:,} bytes; edit it with bash")
        data = file.read()
    edit = editing.edit(data, arguments["old"], arguments["new"], bool(arguments["all"]))
    replace(path, edit.data)
    times = f"{edit.places} places" if edit.places != 1 else "1 place"
    return {
        "output": f"Edited {path} in {times}.\n{edit.difference}",
        "data": {"path": path, "count": edit.places, "size": len(edit.data)},
    }
