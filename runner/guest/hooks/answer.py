"""What a hook answered, from the bytes on its stdout.

Three outcomes look alike and must be told apart:

- *no answer*: nothing, white space, `null`. The hook has no opinion.
- *not an answer* (`NotAnAnswer`): no JSON at all. The hook failed, and its `onError` decides.
- *not understood* (`NotUnderstood`): the hook tried to decide and said it wrongly: an unknown decision, a decision of
  the wrong type, two objects, the same key twice. A guard then refuses, whatever `onError` says: "go on" would be the
  one reading that its author certainly did not mean.

Rules for odd JSON, each the stricter of those that are possible:

    byte order mark       skipped
    not UTF-8 (Latin-1)   read with U+FFFD for what is broken: a refusal or a context counts; a replacement (input,
                          prompt, output, result) is not understood, since it would not be what the hook meant
    NaN, Infinity, 1e999  read; ignored in a field that nobody reads, not understood in a replacement
    lone surrogates       become U+FFFD in texts, not understood in a replacement
    nested too deeply     over `MAX_DEPTH` in a replacement, or too deep to be read at all: not understood
    the same key twice    not understood, at the two levels where decisions stand; elsewhere the last counts
    an object and more    not understood; so is an array, a text, a number or a boolean
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_STDOUT = 1024 * 1024
"""Bytes of stdout. More is a failure."""

MAX_REASON = 4000
"""Characters of a reason that are kept; it stands in the record, in messages and in what the model reads."""

MAX_DEPTH = 64
"""Deepest nesting of a replaced input or message."""

ALLOW = frozenset({"allow", "approve", "continue"})
"""No opinion, however warmly said: never skips consent or another hook."""
REFUSE = frozenset({"deny", "stop", "block"})
ASK = "ask"
ERROR = "error"

_REPLACED: Mapping[str, Mapping[str, type]] = {
    "preGeneration": {"prompt": str},
    "preToolCall": {"input": dict},
    "permissionRequest": {"input": dict},
    "postToolCall": {"output": str, "isError": bool},
    "preModelRequest": {"model": str, "system": str},
    "textDelta": {"text": str},
    "message": {"message": dict},
}
_INPUT_SPELLINGS = ("updatedInput", "tool_input")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MANY_LINES = 100


class NotAnAnswer(Exception):
    """What stands on stdout is no JSON."""


class NotUnderstood(Exception):
    """The hook tried to decide, and what it said has no certain meaning."""


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys it held twice."""

    twice: tuple[str, ...] = ()


class _NotFinite:
    """NaN or an infinity."""


@dataclass(frozen=True)
class Answer:
    """One hook's answer, its spellings folded into one."""

    refuse: bool = False
    """Deny or stop."""
    end: bool = False
    """`continue: false` or `action: stop`: where there is nothing left to refuse, the turn ends."""
    ask: bool = False
    allow: bool = False
    """Said in so many words; counts for `permissionRequest` alone."""
    error: bool = False
    """`action: error`."""
    reason: str = ""
    response: str = ""
    """What the user reads in place of an answer."""
    context: str = ""
    replaced: Mapping[str, Any] = field(default_factory=dict)
    """By our field's name: `prompt`, `input`, `output`, `isError`, `model`, `system`, `text`, `message`."""
    result: str | None = None
    """Output in place of running the tool."""
    result_is_error: bool = False
    terminate: bool = False
    notice: str = ""
    """For the user's eyes only."""


NOTHING = Answer()


def parse(data: bytes, event: str, *, plain_text: str = "failure") -> Answer:
    """Reads a hook's stdout.

    Args:
        data: all of it, at most `MAX_STDOUT` bytes.
        event: our name of the event.
        plain_text: what a text that is no JSON means: `failure`, `context` or `ignored` (a dialect's rule).

    Raises:
        NotAnAnswer, NotUnderstood
    """
    text, lossy = _decode(data)
    if not text.strip():
        return NOTHING
    document = _document(text, plain_text)
    if document is None:
        return NOTHING
    if isinstance(document, str):
        return Answer(context=clean(document.strip())) if plain_text == "context" else NOTHING
    return _answer(document, event, lossy)


def _decode(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace"), True


def _document(text: str, plain_text: str) -> _Object | str | None:
    """The one object, None for `null`, or the text itself where a dialect lets text stand."""
    stripped = text.strip()
    try:
        document, end = _DECODER.raw_decode(stripped)
    except RecursionError:
        raise NotUnderstood("its JSON is nested too deeply") from None
    except ValueError as error:
        if _decision_inside(stripped):
            raise NotUnderstood("its decision stands among other text") from None
        if plain_text != "failure" and not stripped.startswith(("{", "[")):
            return text
        raise NotAnAnswer(_where(error)) from None
    rest = stripped[end:].strip()
    if plain_text != "failure" and not isinstance(document, dict) and not stripped.startswith("["):
        if _decision_inside(rest):
            raise NotUnderstood("its decision stands among other text")
        return text  # a text that begins like JSON: "1 file changed", "null"
    if isinstance(document, _Object):
        if rest.startswith("{"):
            raise NotUnderstood("it answered more than one object")
        if rest:
            raise NotUnderstood("its object is followed by other text")
        return document
    if rest:
        if _decision_inside(rest):
            raise NotUnderstood("its decision stands among other text")
        raise NotAnAnswer("not JSON: text after the first value")
    if document is None:
        return None
    raise NotUnderstood(f"it answered {_kind(document)} in place of an object")


def _where(error: ValueError) -> str:
    # json's own message, which quotes nothing of the text: it may hold a secret.
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    return "not JSON"


def _decision_inside(text: str) -> bool:
    """Whether a line of what is no JSON begins an object that holds a decision."""
    for line in text.splitlines()[:_MANY_LINES]:
        start = line.find("{")
        if start < 0:
            continue
        try:
            found, _ = _DECODER.raw_decode(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(found, _Object) and found.keys() & _DECIDING:
            return True
    return False


_DECIDING = frozenset({"action", "decision", "permissionDecision", "continue", "hookSpecificOutput"})


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        made.twice = tuple({key for key, _ in pairs if key in seen or seen.add(key)})  # type: ignore[func-returns-value]
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=lambda _: _NotFinite())


def _answer(document: _Object, event: str, lossy: bool) -> Answer:
    specific = document.get("hookSpecificOutput")
    if specific is None:
        specific = _Object()
    if not isinstance(specific, _Object):
        raise NotUnderstood(f"`hookSpecificOutput` is {_kind(specific)}, not an object")
    for level in (document, specific):
        if level.twice:
            raise NotUnderstood(f"it holds the key `{clean(sorted(level.twice)[0])[:40]}` twice")

    said = _decisions(document, specific)
    go_on = document.get("continue")
    if go_on is not None and not isinstance(go_on, bool):
        raise NotUnderstood(f"`continue` is {_kind(go_on)}, not true or false")
    terminate = document.get("terminate")
    if terminate is not None and not isinstance(terminate, bool):
        raise NotUnderstood(f"`terminate` is {_kind(terminate)}, not true or false")
    refuse = bool(said & REFUSE) or go_on is False
    reason = _first_text(
        (document, "reason"),
        (specific, "permissionDecisionReason"),
        (document, "permissionDecisionReason"),
        (document, "stopReason"),
        (specific.get("decision"), "message"),
        (specific, "reason"),
        (document, "error"),
    )
    base = Answer(
        refuse=refuse,
        end=go_on is False or document.get("action") == "stop",
        ask=ASK in said and not refuse,
        allow=bool(said & (ALLOW - {"continue"})),
        error=ERROR in said and not refuse,
        reason=reason[:MAX_REASON],
        response=_first_text((document, "response")),
        terminate=bool(terminate),
        notice=_first_text((document, "systemMessage"))[:MAX_REASON],
    )
    context = _context(document, specific)
    if base.refuse or base.error:
        return _with(base, context=context)
    replaced = _replacements(document, specific, event, lossy)
    result, is_error = _result(document, lossy) if event == "preToolCall" else (None, False)
    return _with(base, context=context, replaced=replaced, result=result, result_is_error=is_error)


def _with(answer: Answer, **changes: Any) -> Answer:
    return Answer(**{**answer.__dict__, **changes})


def _decisions(document: _Object, specific: _Object) -> set[str]:
    """Every decision value in the answer, in whichever field."""
    said: set[str] = set()
    for level, prefix in ((document, ""), (specific, "hookSpecificOutput.")):
        for key in ("action", "decision", "permissionDecision"):
            value = level.get(key)
            if isinstance(value, _Object) and key == "decision":
                value = value.get("behavior")
                key = "decision.behavior"
            if value is None:
                continue
            if not isinstance(value, str):
                raise NotUnderstood(f"`{prefix}{key}` is {_kind(value)}, not a text")
            if value not in ALLOW | REFUSE | {ASK} and not (key == "action" and value == ERROR):
                raise NotUnderstood(f"`{prefix}{key}` is {clean(value)[:40]!r}, which is no decision")
            said.add(value)
    return said


def _context(document: _Object, specific: _Object) -> str:
    parts = []
    for level, key in ((document, "context"), (document, "additionalContext"), (specific, "additionalContext")):
        value = level.get(key)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = "\n".join(value)
        if isinstance(value, str) and value.strip() and clean(value) not in parts:
            parts.append(clean(value))
    return "\n".join(parts)


def _replacements(document: _Object, specific: _Object, event: str, lossy: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, kind in _REPLACED.get(event, {}).items():
        values = [document[key]] if document.get(key) is not None else []
        if key == "input":
            decided = specific.get("decision")
            levels = (specific, decided if isinstance(decided, _Object) else _Object())
            values += [level[name] for level in levels for name in _INPUT_SPELLINGS if level.get(name) is not None]
        if not values:
            continue
        for value in values:
            if not isinstance(value, kind):
                raise NotUnderstood(f"`{key}` is {_kind(value)}, not {_KINDS[kind]}")
            _certain(value, key, lossy)
            if value != values[0]:
                raise NotUnderstood(f"`{key}` is replaced by two different values")
        found[key] = _plain(values[0])
    return found


def _result(document: _Object, lossy: bool) -> tuple[str | None, bool]:
    value = document.get("result")
    is_error = document.get("isError", False)
    if value is None:
        return None, False
    if isinstance(value, dict):
        is_error = value.get("isError", is_error)
        value = value.get("output")
    if not isinstance(value, str) or not isinstance(is_error, bool):
        raise NotUnderstood("`result` is neither a text nor an object with `output`")
    _certain(value, "result", lossy)
    return value, is_error


def _certain(value: Any, key: str, lossy: bool) -> None:
    """A replacement is what the hook meant, or it is refused."""
    if lossy:
        raise NotUnderstood(f"`{key}` is replaced, and the answer is not UTF-8")
    todo: list[tuple[Any, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise NotUnderstood(f"`{key}` is nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, dict):
            todo += ((part, depth + 1) for pair in item.items() for part in pair)
        elif isinstance(item, list):
            todo += ((part, depth + 1) for part in item)
        elif isinstance(item, _NotFinite) or (isinstance(item, float) and not math.isfinite(item)):
            raise NotUnderstood(f"`{key}` holds a number that JSON does not have")
        elif isinstance(item, str) and _SURROGATE.search(item):
            raise NotUnderstood(f"`{key}` holds half a character")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded."""
    return _SURROGATE.sub("\ufffd", text)


def _first_text(*places: tuple[Any, str]) -> str:
    for level, key in places:
        value = level.get(key) if isinstance(level, dict) else None
        if isinstance(value, str) and value.strip():
            return clean(value).strip()
    return ""


_KINDS: Mapping[type, str] = {str: "a text", bool: "true or false", dict: "an object"}


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a text"
        case None:
            return "null"
    return "a number"
