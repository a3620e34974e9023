"""Reads instructions for the model from files, as U: one file, or a folder of skills. JSON on stdin, JSON on stdout.

Preloaded by the fork server, as `worker` is, and as small. A path that leads out of its root, by a link or by `..`, is
refused: a workspace from a stranger could otherwise put any file that U may read into every prompt.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

MAX_DOCUMENT = 32 * 1024
"""Bytes of one file that are taken."""
MAX_SKILLS = 64
MAX_DESCRIPTION = 1024
"""Characters."""
FILE = "SKILL.md"


class Unfit(Exception):
    """The file cannot be taken; the text says why."""


def main(argv: list[str]) -> int:
    """Answers one request: `argv` is `file` or `skills`."""
    arguments = given()
    answer({"file": _file, "skills": _skills}[argv[0]](arguments["name"], arguments["roots"]))
    return 0


def given() -> Any:
    """What the guest wrote to stdin."""
    data = b""
    while part := os.read(0, 65536):
        data += part
    return json.loads(data)


def answer(document: object) -> None:
    """Writes the answer to stdout."""
    view = memoryview(json.dumps(document).encode("ascii"))
    while view:
        view = view[os.write(1, view) :]


def _file(name: str, roots: list[str]) -> dict[str, Any]:
    try:
        path = find(name, roots)
        return {"missing": True} if path is None else read(path)
    except Unfit as unfit:
        return {"error": str(unfit)}
    except OSError as error:
        return {"error": (error.strerror or str(error)).lower()}


def find(name: str, roots: list[str]) -> str | None:
    """The first root's file of this name, as a real path; None when no root has it. Raises Unfit, OSError."""
    if "\0" in name:
        raise Unfit("the path holds a NUL byte")
    for root in roots:
        real = os.path.realpath(root)
        path = os.path.realpath(os.path.join(root, name))
        if not os.path.lexists(os.path.join(root, name)):
            continue
        if path != real and not path.startswith(real.rstrip("/") + "/"):
            if os.path.isabs(name):
                continue
            raise Unfit("it leads out of its folder")
        return path
    return None


def read(path: str) -> dict[str, Any]:
    """The text of a regular file, cut at `MAX_DOCUMENT`. Raises Unfit, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unfit("it is not a regular file")
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unfit("it is not a regular file")
        data = file.read(MAX_DOCUMENT + 1)
    cut = len(data) > MAX_DOCUMENT
    data = data[:MAX_DOCUMENT].removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data:
        raise Unfit("it is binary")
    text = data.decode("utf-8", "ignore" if cut else "replace")
    if text.count("\ufffd") > len(text) // 10:
        raise Unfit("it is not UTF-8 text")
    if cut:
        text += f"\n[cut: the file has {found.st_size:,} bytes, of which {MAX_DOCUMENT:,} are shown]"
    return {"text": text, "size": found.st_size, "cut": cut}


def _skills(name: str, roots: list[str]) -> dict[str, Any]:
    try:
        folder = find(name, roots)
        if folder is None:
            return {"missing": True}
        names = sorted(os.listdir(folder))
    except Unfit as unfit:
        return {"error": str(unfit)}
    except NotADirectoryError:
        return {"error": "it is not a folder"}
    except OSError as error:
        return {"error": (error.strerror or str(error)).lower()}
    skills: list[dict[str, str]] = []
    problems: list[str] = []
    for each in names:
        path = os.path.join(folder, each)
        if not os.path.isdir(path):
            continue
        if len(skills) >= MAX_SKILLS:
            problems.append(f"{path}: there are {MAX_SKILLS} already")
            break
        try:
            inside = find(os.path.join(each, FILE), [folder])
            if inside is None:
                raise Unfit(f"it has no {FILE}")
            keys = front_matter(read(inside)["text"])
        except Unfit as unfit:
            problems.append(f"{path}: {unfit}")
        except OSError as error:
            problems.append(f"{path}: {(error.strerror or str(error)).lower()}")
        else:
            title = one_line(keys.get("name") or each)[:64]
            about = one_line(keys.get("description", ""))[:MAX_DESCRIPTION]
            skills.append({"name": title, "description": about or "(no description)", "path": path})
    return {"skills": skills, "problems": problems}


def front_matter(text: str) -> dict[str, str]:
    """The keys between the two `---` lines at the beginning: texts, quoted or not, in one line or in an indented block.

    Not all of YAML, which the guest has no parser for; what is none of these is left out.
    """
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return {}
    keys: dict[str, str] = {}
    key = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return keys
        if line[:1] in (" ", "\t") and key:
            keys[key] = f"{keys[key]} {line.strip()}".strip()
            continue
        name, colon, value = line.partition(":")
        key = name.strip() if colon and name.strip() and not name.startswith("#") else ""
        if key:
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            keys[key] = "" if value in (">", "|", ">-", "|-", ">+", "|+") else value
    return {}


def one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
