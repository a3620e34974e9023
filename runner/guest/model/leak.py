"""Routing text that a model leaked into a call's arguments.

gpt-oss and its kin write `<|channel|>commentary to=functions.NAME` before a call. When the template and the model
disagree, that text, often with a run of words in another script, ends up inside an argument, and would run as part
of a shell command. A text that merely talks about `to=functions.x` looks almost the same and must pass: one false
alarm in 100,000 calls is too many. So a marker alone is never enough; a neighbour has to stand right next to it:

- a channel word (`analysis`, `commentary`, `assistant`, `user`) with nothing but space or special tokens between;
- `code_output`, likewise;
- a run of a script that the rest of the argument does not use.

Left unrecognised on purpose: a marker in quotes or backquotes with the word outside them, a channel word after an
article (prose). What that costs: some leaks run as they stand, and the tool's error tells the model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

LEAK_TRIES = 2
"""New tries that a model gets in one turn after a leaked call."""

_MARK = re.compile(r"to=functions\.[A-Za-z_]\w*", re.ASCII)
_GAP = r"(?:\s|<\|[a-z_]{1,20}\|>){0,4}"
_WORD = r"(?:analysis|commentary|assistant|user)"
_PROSE = r"(?<!\bthe )(?<!\ba )(?<!\ban )(?<!\bthis )(?<!\byour )(?<!\bour )(?<!\bThe )(?<!\bAn )"
_BEFORE = re.compile(rf"(?:{_PROSE}{_WORD}|\bcode_output){_GAP}\Z", re.ASCII)
_AFTER = re.compile(rf"{_GAP}(?:(?:json|code)\b{_GAP})?(?:{_WORD}|code_output)(?![\w-])", re.ASCII)
_NEIGHBOURHOOD = 100
"""Characters beside the marker that are looked at."""
_SHORTEST_RUN = 2
"""Letters of another script that are a run."""
_ENOUGH_REST = 4
"""Letters that the rest must have for a script to be foreign to it."""
_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK"}
"""Scripts that are written mixed."""
_DEEPEST = 16


def leaked(arguments: object) -> str:
    """The first piece of routing text in any string of decoded arguments, for the error; empty when there is none."""
    for text in _strings(arguments, 0):
        if "to=functions." in text:
            for mark in _MARK.finditer(text):
                if _has_neighbour(text, mark.start(), mark.end()):
                    return text[max(0, mark.start() - 20) : mark.end() + 20]
    return ""


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, dict):
        for v in value.values():
            yield from _strings(v, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for v in value:
            yield from _strings(v, depth + 1)


def _has_neighbour(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - _NEIGHBOURHOOD) : start], text[end : end + _NEIGHBOURHOOD]
    if _BEFORE.search(before) or _AFTER.match(after):
        return True
    return _foreign(text, start, end, after.lstrip(), 1) or _foreign(text, start, end, before.rstrip()[::-1], -1)


def _foreign(text: str, start: int, end: int, beside: str, step: int) -> bool:
    """Whether `beside`, read away from the marker, begins with a run of a script that the rest does not use."""
    script = _script(beside[:1])
    if script in ("", "LATIN"):
        return False
    run = 0
    for character in beside:
        if character.isalpha() and _script(character) != script:
            break
        if not character.isalpha() and not character.isspace():
            break
        run += 1
    if sum(map(str.isalpha, beside[:run])) < _SHORTEST_RUN:
        return False
    if step > 0:
        gap = len(text) - end - len(text[end:].lstrip())
        rest = text[:start] + text[end + gap + run :]
    else:
        gap = start - len(text[:start].rstrip())
        rest = text[: start - gap - run] + text[end:]
    letters = [c for c in rest if c.isalpha()]
    return len(letters) >= _ENOUGH_REST and all(_script(c) != script for c in letters)


def _script(character: str) -> str:
    if not character or not character.isalpha():
        return ""
    if character.isascii():
        return "LATIN"
    name = unicodedata.name(character, "").partition(" ")[0]
    return _TOGETHER.get(name, name)
