"""`<think>` blocks apart from the answer, while it streams.

Only a block at the answer's beginning is reasoning: a text may well talk about the tag further down. After one block
another may follow. Text that may yet turn out to be a tag is held back, at most the tag's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TAGS = {"<think>": "</think>", "<thinking>": "</thinking>"}
_LONE_END = re.compile(r"\A(.*?)^</think(?:ing)?>[ \t]*(?:\n+|\Z)", re.DOTALL | re.MULTILINE)


class Splitter:
    """Feed it content, take (is reasoning, text) pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._end = ""
        self._state = self._at_start
        self._after_block = False

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        if self._state == self._in_text:
            yield False, text
            return
        self._held += text
        while self._held:
            before = self._state
            yield from self._state()
            if self._state == before:
                return

    def close(self) -> Iterator[tuple[bool, str]]:
        """The content has ended: yields what was held back."""
        held, self._held = self._held, ""
        if held and not (self._after_block and not self._end and not held.strip()):
            yield bool(self._end), held

    def split_lone_end(self, text: str) -> tuple[str, str]:
        """(reasoning, text) of a whole text whose begin tag stood in the prompt, so that only its end came."""
        if self._after_block or not (found := _LONE_END.match(text)):
            return "", text
        return found[1], text[found.end() :]

    def _at_start(self) -> Iterator[tuple[bool, str]]:
        text = self._held.lstrip()
        for begin, end in _TAGS.items():
            if text.startswith(begin):
                self._held, self._end, self._state = text[len(begin) :], end, self._in_block
                return
        if text and not any(begin.startswith(text) for begin in _TAGS):
            held, self._held = (text if self._after_block else self._held), ""
            self._state = self._in_text
            yield False, held

    def _in_block(self) -> Iterator[tuple[bool, str]]:
        inside, found, after = self._held.partition(self._end)
        if found:
            self._held, self._end, self._state, self._after_block = after, "", self._at_start, True
        else:
            keep = next((n for n in range(len(self._end) - 1, 0, -1) if inside.endswith(self._end[:n])), 0)
            inside, self._held = inside[: len(inside) - keep], inside[len(inside) - keep :]
        if inside:
            yield True, inside

    def _in_text(self) -> Iterator[tuple[bool, str]]:
        held, self._held = self._held, ""
        yield False, held
