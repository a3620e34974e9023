"""Keeping what a hook refused or masked out of what is said about it.

A question that a guard stopped must reach no event, yet the guard's own words about it do: a reason may quote it, and
the stderr of a hook that failed earlier in the same chain may hold the whole payload. The stderr is dropped; reasons
and responses lose the question's lines and whatever in it looks like a secret.
"""

from __future__ import annotations

import re

MASK = "[…]"

MIN_LINE = 12
"""Characters of a line of the question that is masked where it is quoted. Shorter ones are everybody's words."""

MIN_TOKEN = 6
"""Characters of a word with letters and digits or signs in it, such as a password or key."""

MAX_PIECES = 2000

_WORD = re.compile(r"[^\s\"'`(),;<>]+")
_PLAIN = re.compile(r"[A-Za-zÀ-ɏ]+([-'][A-Za-zÀ-ɏ]+)*[.,:;!?]*|[0-9]+[.,:;!?%]*")


def scrub(text: str, question: str) -> str:
    """`text` without the lines of `question` and without the words of it that may be secrets."""
    if not text or not question:
        return text
    lines = {line.strip() for line in question.splitlines()}
    pieces = {line for line in lines if len(line) >= MIN_LINE}
    for word in _WORD.findall(question)[:MAX_PIECES]:
        bare = word.rstrip(".,:;!?")
        if len(bare) >= MIN_TOKEN and not _PLAIN.fullmatch(bare):
            pieces.add(bare)
        for part in re.split(r"[=:]", bare)[1:]:
            if len(part) >= MIN_TOKEN and not _PLAIN.fullmatch(part):
                pieces.add(part)
    for piece in sorted(pieces, key=len, reverse=True)[:MAX_PIECES]:
        if piece in text:
            text = text.replace(piece, MASK)
    return text
