"""What a server's error means.

Several things look alike and must be told apart, since each is met in another way:

- 503 "loading model" (wait within the first token's timeout) and 503 "busy" (retry, bounded);
- an overflowed context (compact once, never retry as it was), which comes as 400 with a code, as 500 with a sentence,
  or as 200 with nothing, and any other 400 or 500 (report);
- a key that this server does not know (drop it, try once more) and any other bad request;
- a model server's error and a page of something that is no model server at all.

The text decides where the status does not. A sentence that is not recognised is reported as it came, which costs the
user a look at the server's words and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from runner.guest.model.items import Answer

MAX_TEXT = 500
"""Characters of a server's text that an error quotes."""

_OVERFLOW = re.compile(
    r"""
      context_length_exceeded | exceed_context_size_error | context_window_exceeded
    | maximum\ context\ length | max(?:imum)?\ (?:context|model)\ len(?:gth)?
    | exceeds?\ (?:the\ )?(?:available\ |model'?s?\ |maximum\ )*context\ (?:size|length|window)
    | (?:larger|greater|longer)\ than\ the\ (?:model'?s?\ )?context\ (?:size|length|window)
    | context\ (?:size|length|window)\ (?:has\ been\ |was\ |is\ )?(?:exceeded|too\ small|full|overflow)
    | context\ the\ overflows | overflows?\ the\ context | context\ overflow
    | (?:reached|loaded\ with)\ (?:a\ )?context\ length\ of
    | (?:prompt|input|request|conversation)\ (?:is\ |was\ )?too\ (?:long|large\ to\ process)
    | prompt\ length\ (?:is\ )?\d*\ ?exceeds | input\ (?:token\ count|length)\b.{0,40}\bexceeds
    | too\ many\ tokens\ in\ (?:the\ )?(?:prompt|request)
    | please\ reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ANSWER_TOO_LARGE = re.compile(r"max_(?:completion_)?tokens\W.{0,60}(?:too large|too high|must be)", re.IGNORECASE)
_LOADING = re.compile(
    r"\bloading\b|warming up|starting up|still (?:starting|initiali[sz]ing)|not (?:yet )?(?:loaded|ready)|being loaded",
    re.IGNORECASE,
)
_FAILED_TO_LOAD = re.compile(r"fail|error (?:while |when )?loading|unable|cannot|could not", re.IGNORECASE)
_PLAIN_WORDS = frozenset({"stop", "user", "n", "seed", "store", "metadata", "tools", "reasoning", "thinking"})
"""Keys that are words too: an error has to name them in quotes, or as a parameter."""


class ModelFailure(Exception):
    """The model server gave no usable answer.

    Args:
        kind: `unreachable`, `refused` (by policy), `not-a-server`, `http`, `overflow`, `busy`, `empty`, `broken`,
            `timeout`, `too-large`.
        message: what happened, for the user.
        partial: what had arrived of the answer.
        hint: what the user can do.
    """

    def __init__(self, kind: str, message: str, *, partial: Answer | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.partial = partial
        self.hint = hint


def error_text(body: bytes | str | dict[str, Any]) -> str:
    """The words of an error, whichever way the server wraps them."""
    document: object = body
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return shown(body)
    return shown(_words(document) or json.dumps(document, ensure_ascii=False))


def _words(document: object) -> str:
    if isinstance(document, str):
        return document
    if isinstance(document, list):
        return "; ".join(filter(None, map(_words, document[:5])))
    if not isinstance(document, dict):
        return ""
    for key in ("error", "message", "msg", "detail", "error_description"):
        if words := _words(document.get(key)):
            codes = [c for c in (document.get("code"), document.get("type")) if isinstance(c, str) and c]
            if codes and codes[0] not in words and key in ("message", "msg"):
                return f"{words} ({codes[0]})"
            return words
    return ""


def shown(text: str) -> str:
    """`text` on one line, without control characters, cut to `MAX_TEXT`."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_TEXT * 4]).split())
    return line if len(line) <= MAX_TEXT else line[:MAX_TEXT] + "…"


def first_line(body: bytes) -> str:
    """What a user can recognise something by that is no model server: a page's title, else its first line."""
    text = body.decode("utf-8", "replace")
    if title := re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL):
        return shown(title[1])
    return shown(next((line for line in text.splitlines() if line.strip()), ""))


def is_page(content_type: str, body: bytes) -> bool:
    """Whether an answer is a web page."""
    return "text/html" in content_type.lower() or body.lstrip()[:1] == b"<"


def is_overflow(text: str) -> bool:
    """Whether an error says that the conversation does not fit the model's context."""
    return bool(_OVERFLOW.search(text)) and not _ANSWER_TOO_LARGE.search(text)


def is_loading(text: str) -> bool:
    """Whether a 503 says that the model is being loaded."""
    return bool(_LOADING.search(text)) and not _FAILED_TO_LOAD.search(text)


def keys_named(text: str, keys: Iterable[str]) -> list[str]:
    """The keys that an error names."""
    named = []
    for key in keys:
        word = rf"(?<![\w.]){re.escape(key)}(?!\w)"
        if key in _PLAIN_WORDS or "_" not in key:
            word = rf"['\"`]{re.escape(key)}['\"`]|(?:parameter|field|key|argument|option)s?:? {word}"
        if re.search(word, text):
            named.append(key)
    return named
