"""Replacing exact text in a file's bytes, keeping line ends, encoding and all that was not meant."""

from __future__ import annotations

import difflib
from typing import NamedTuple

CONTEXT = 3
"""Lines around a change that the difference shows."""
MAX_HUNKS = 8
MAX_HUNK_LINES = 60
_COMPARED = 20_000
"""Most lines that are compared for likeness when nothing matches."""


class EditError(Exception):
    """The text to replace is not there, or not there once. The text tells the model what is."""


class Edit(NamedTuple):
    data: bytes
    places: int
    difference: str


def codec_of(data: bytes) -> str:
    """How the bytes become text: by their mark, else UTF-8."""
    if data.startswith(b"\xff\xfe"):
        return "utf-16-le"
    if data.startswith(b"\xfe\xff"):
        return "utf-16-be"
    return "utf-8"


def edit(data: bytes, old: str, new: str, every: bool) -> Edit:
    """Replaces `old`, which must be there exactly once unless `every`.

    Raises:
        EditError: it is not there, more than once, empty, or the same as `new`.
    """
    codec = codec_of(data)
    # Bytes that are no UTF-8 go through as they are.
    errors = "surrogateescape" if codec == "utf-8" else "surrogatepass"
    text = data.decode(codec, errors)
    if not old:
        raise EditError("'old' is empty; to write a whole file use write_file")
    if old not in text and "\n" in text:
        # The model writes \n; the file's lines end as they end.
        if "\r\n" in text and "\r\n" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        elif "\r\n" in old and "\r\n" not in text:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    elif "\r\n" in text and "\n" not in text.replace("\r\n", "") and "\r\n" not in new:
        new = new.replace("\n", "\r\n")
    if old == new:
        raise EditError("'old' and 'new' are the same: nothing to change")
    places = _places(text, old)
    if not places:
        raise EditError(_not_found(text, old))
    if len(places) > 1 and not every:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places[:10])
        raise EditError(
            f"'old' is there {len(places)} times (lines {lines}{', …' if len(places) > 10 else ''}); "
            "add lines around it to make it unique, or set all to true"
        )
    edited = text.replace(old, new)
    return Edit(edited.encode(codec, errors), len(places), _difference(text, old, new, places))


def _places(text: str, old: str) -> list[int]:
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _difference(text: str, old: str, new: str, places: list[int]) -> str:
    """Unified hunks made from the places themselves: comparing two whole files of 10 MiB would take seconds."""
    hunks = []
    grown = 0
    line, counted = 1, 0
    for place in places[:MAX_HUNKS]:
        begin = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place + len(old) - old.endswith("\n"))
        end = len(text) if end < 0 else end + 1
        line, counted = line + text.count("\n", counted, begin), begin
        removed = text[begin:end].splitlines()
        added = (text[begin:place] + new + text[place + len(old) : end]).splitlines()
        before = _lines_before(text, begin)
        after = _lines_after(text, end)
        start = line - len(before)
        sizes = f"{len(before) + len(removed) + len(after)} +{start + grown},{len(before) + len(added) + len(after)}"
        body = (
            [f" {x}" for x in before] + [f"-{x}" for x in removed] + [f"+{x}" for x in added] + [f" {x}" for x in after]
        )
        if len(body) > MAX_HUNK_LINES:
            body = [*body[:MAX_HUNK_LINES], f"[… {len(body) - MAX_HUNK_LINES} more lines]"]
        hunks.append("\n".join([f"@@ -{start},{sizes} @@", *(x[:500] for x in body)]))
        grown += len(added) - len(removed)
    if len(places) > MAX_HUNKS:
        hunks.append(f"[… {len(places) - MAX_HUNKS} more places]")
    return "\n".join(hunks).encode("utf-8", "replace").decode("utf-8")


def _lines_before(text: str, at: int) -> list[str]:
    start = at
    for _ in range(CONTEXT):
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return text[start:at].splitlines()


def _lines_after(text: str, at: int) -> list[str]:
    end = at
    for _ in range(CONTEXT):
        found = text.find("\n", end)
        if found < 0:
            end = len(text)
            break
        end = found + 1
    return text[at:end].splitlines()


def _not_found(text: str, old: str) -> str:
    """Why nothing matched, as well as it can be told: other white space, or the lines most like it."""
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    message = "'old' is not in the file."
    if not wanted:
        return message
    lines = text.splitlines()[:_COMPARED]
    stripped = [line.strip() for line in lines]
    for index, line in enumerate(stripped):
        if line == wanted[0] and [x for x in stripped[index : index + 2 * len(wanted)] if x][: len(wanted)] == wanted:
            found = "\n".join(f"{n + 1}: {lines[n][:200]}" for n in range(index, min(index + len(wanted), len(lines))))
            return f"{message} It is there with other white space; copy it exactly:\n{found}"
    near = difflib.get_close_matches(wanted[0], {line for line in stripped if line}, n=3, cutoff=0.5)
    if not near:
        return f"{message} No line is like its first one; read the file again."
    shown = [f"{stripped.index(line) + 1}: {lines[stripped.index(line)][:200]}" for line in near]
    return f"{message} The nearest lines are:\n" + "\n".join(shown)
