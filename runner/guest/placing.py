"""Writes a kit's files into the sandbox, as U: `setup.files`, and `files/workspace` where the user has none of them.

Called after the drop in place of a program. JSON on stdin, JSON on stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any

MAX_INPUT = 64 * 1024 * 1024


def main(argv: list[str]) -> int:
    """Answers `{"kept": [path], "failed": [[path, reason]]}`; `argv` is the folder of the contents."""
    data = bytearray()
    while part := os.read(0, 1 << 20):
        data += part
        if len(data) > MAX_INPUT:
            return 1
    order = json.loads(data)
    kept: list[str] = []
    failed: list[tuple[str, str]] = []
    for file in order["files"]:
        try:
            if not (file["only_if_missing"] and os.path.lexists(file["path"])):
                _write(file["path"], _content(argv[0], file), file["mode"], replace=True)
        except OSError as error:
            failed.append((file["path"], _reason(error)))
    for file in order["workspace"]:
        path = f"{order['root'].rstrip('/')}/{file['path']}"
        try:
            if os.path.lexists(path):
                if not _same(path, argv[0], file):
                    kept.append(file["path"])
            elif file["link"]:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.symlink(file["link"], path)
            else:
                _write(path, _content(argv[0], file), file["mode"], replace=False)
        except OSError as error:
            failed.append((file["path"], _reason(error)))
    answer = memoryview(json.dumps({"kept": kept, "failed": failed}).encode("ascii"))
    while answer:
        answer = answer[os.write(1, answer) :]
    return 0


def _content(folder: str, file: dict[str, Any]) -> bytes:
    with open(f"{folder}/{file['content']}", "rb") as source:
        return source.read()


def _write(path: str, content: bytes, mode: int, *, replace: bool) -> None:
    """Under another name first, so that nobody sees half a file, and one that may not be written is replaced."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if replace and os.path.isdir(path) and not os.path.islink(path):
        raise IsADirectoryError(0, "a folder is in its place")
    hidden = f"{os.path.dirname(path)}/.sbx-{os.getpid()}-{os.urandom(4).hex()}"
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        if replace:
            os.rename(hidden, path)
        else:
            os.link(hidden, path)  # fails where a file has come to be meanwhile
            os.unlink(hidden)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise


def _same(path: str, folder: str, file: dict[str, Any]) -> bool:
    found = os.lstat(path)
    if file["link"]:
        return stat.S_ISLNK(found.st_mode) and os.readlink(path) == file["link"]
    if not stat.S_ISREG(found.st_mode):
        return False
    content = _content(folder, file)
    if found.st_size != len(content):
        return False
    with open(path, "rb") as there:
        return there.read() == content


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
