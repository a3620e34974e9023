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
    # All work is on UTF-8 bytes: bytes that are no UTF-8 stay as they are, and 10 MiB are not copied to text and back.
    codec = codec_of(data)
    text = data if codec == "utf-8" else data.decode(codec, "surrogatepass").encode("utf-8", "surrogatepass")
    if not old:
        raise EditError("'old' is empty; to write a whole file use write_file")
    if old == new:
        raise EditError("'old' and 'new' are the same: nothing to change")
    wanted, put = _with_line_ends(text, old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass"))
    places = _places(text, wanted)
    if not places:
        raise EditError(_not_found(text.decode("utf-8", "replace"), old))
    if len(places) > 1 and not every:
        lines = ", ".join(str(text.count(b"\n", 0, place) + 1) for place in places[:10])
        raise EditError(
            f"'old' is there {len(places)} times (lines {lines}{', …' if len(places) > 10 else ''}); "
            "add lines around it to make it unique, or set all to true"
        )
    edited = text.replace(wanted, put)
    if codec != "utf-8":
        edited = edited.decode("utf-8", "surrogatepass").encode(codec, "surrogatepass")
    return Edit(edited, len(places), _difference(text, wanted, put, places))


def _with_line_ends(text: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """What is meant in a file whose lines end otherwise than the model writes them."""
    crlf = text.count(b"\r\n")
    if crlf and crlf == text.count(b"\n"):
        return _crlf(old), _crlf(new)
    if not crlf and b"\r\n" in old:
        return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n")
    if crlf and b"\n" in old and old not in text:  # mixed: as the place itself has it
        return _crlf(old), _crlf(new)
    return old, new


def _crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _places(text: bytes, old: bytes) -> list[int]:
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _difference(text: bytes, old: bytes, new: bytes, places: list[int]) -> str:
    """Unified hunks made from the places themselves: comparing two whole files of 10 MiB would take seconds."""
    hunks = []
    grown = 0
    line, counted = 1, 0
    for place in places[:MAX_HUNKS]:
        begin = text.rfind(b"\n", 0, place) + 1
        end = text.find(b"\n", place + len(old) - old.endswith(b"\n"))
        end = len(text) if end < 0 else end + 1
        line, counted = line + text.count(b"\n", counted, begin), begin
        removed = _lines(text[begin:end])
        added = _lines(text[begin:place] + new + text[place + len(old) : end])
        before, after = _lines_before(text, begin), _lines_after(text, end)
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
    return "\n".join(hunks)


def _lines(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "replace").replace("\0", "\u2400").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _lines_before(text: bytes, at: int) -> list[str]:
    start = at
    for _ in range(CONTEXT):
        if start == 0:
            break
        start = text.rfind(b"\n", 0, start - 1) + 1
    return _lines(text[start:at])


def _lines_after(text: bytes, at: int) -> list[str]:
    end = at
    for _ in range(CONTEXT):
        found = text.find(b"\n", end)
        if found < 0:
            end = len(text)
            break
        end = found + 1
    return _lines(text[at:end])


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
