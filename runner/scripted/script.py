"""A script: which answer is given to which request. YAML is checked when it is loaded.

The first entry of `answers` whose conditions all hold gives the answer. What it says may quote the request by
placeholders, so that another file name or tool output changes the answer. `docs/reference/demo-script.md` describes
the format.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.scripted.answers import CUT, Answer, Chunks, Cut, Pause, Raw, Reply, Say
from runner.scripted.request import Call, Request

DEMO = Path(__file__).parent / "demo.yaml"
"""The script of `--demo`."""

MAX_SCRIPT = 4 * 1024 * 1024
"""Most bytes of a script."""

CONDITIONS = ("question", "context", "output", "system")
"""Conditions that are regular expressions; what their named groups match are placeholders too."""

QUOTES: Mapping[str, Callable[[Request], str]] = {
    "question": lambda r: r.question,
    "context": lambda r: r.context,
    "output": lambda r: r.outputs[-1] if r.outputs else "",
    "outputs": lambda r: "\n".join(r.outputs),
    "model": lambda r: r.model,
    "tools": lambda r: ", ".join(r.tools),
    "round": lambda r: str(r.round),
}
"""Placeholders that every answer may use."""

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")

_COMMON = {*CONDITIONS, "round", "offers", "times"}
_SAY = {
    "text": str,
    "reasoning": str,
    "call": dict,
    "calls": list,
    "finish": str,
    "usage": dict,
    "piece": int,
    "delay": float,
    "wait": float,
    "cut": bool,
    "error": object,
}
_REPLY = {"status": int, "body": object, "headers": dict, "wait": float, "html": str, "redirect": str}
_CHUNKS = {"chunks": list, "done": bool, "whole": dict}
_RAW = {"raw": list}
_KINDS: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
    ("raw bytes", _RAW, ("raw",)),
    ("a stream of chunks", _CHUNKS, ("chunks",)),
    ("an HTTP answer", _REPLY, ("status", "html", "redirect", "body")),
    ("a model's answer", _SAY, ("text", "reasoning", "call", "calls", "cut", "error", "finish")),
)


@dataclass(frozen=True)
class Script:
    """What the server serves.

    Args:
        answer: gives the answer to a chat request.
        models: names that `/v1/models` lists.
        routes: answers for other paths, or in place of the model list, by path (`/props`) or method and path
            (`POST /api/show`); a sequence is given one after the other, its last for ever.
    """

    answer: Callable[[Request], Answer]
    models: tuple[str, ...] = ("scripted",)
    routes: Mapping[str, Answer | Sequence[Answer]] = field(default_factory=dict)
    _given: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def route(self, request: Request) -> Answer:
        """The answer to any request."""
        path = request.path.partition("?")[0]
        for key in (f"{request.method} {path}", path):
            if key in self.routes:
                return self._next(key, self.routes[key])
        if path == "/v1/chat/completions":
            if request.method != "POST":
                return _error(405, "chat completions are asked for by POST")
            if not request.messages:
                return _error(400, "the request has no messages")
            return self.answer(request)
        if path == "/v1/models" and request.method == "GET":
            entries = [{"id": name, "object": "model", "created": 0, "owned_by": "scripted"} for name in self.models]
            return Reply(body={"object": "list", "data": entries})
        return _error(404, f"there is no {path}")

    def _next(self, key: str, answers: Answer | Sequence[Answer]) -> Answer:
        if not isinstance(answers, Sequence):
            return answers
        with self._guard:
            index = self._given.get(key, 0)
            self._given[key] = index + 1
        return answers[min(index, len(answers) - 1)]


def load_script(path: Path | str) -> Script:
    """Reads and checks a script.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or not a script; it names the place.
    """
    import yaml

    path = Path(path)
    try:
        if path.stat().st_size > MAX_SCRIPT:
            raise ConfigError(f"larger than {MAX_SCRIPT} bytes", place=str(path))
        document = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", place=str(path)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"not YAML: {error.problem}", place=at) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", place=str(path)) from error
    return _Loader(str(path)).script(document)


def _error(status: int, message: str) -> Reply:
    return Reply(status, {"error": {"message": message, "type": "scripted"}})


class _Entries:
    """The `answers` of a script, in order."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = entries
        self._guard = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        with self._guard:
            for entry in self._entries:
                quotes = entry.match(request)
                if quotes is not None:
                    entry.used += 1
                    return _filled(entry.answer, quotes)
        return _error(404, f"the script has no answer to {request.question[:200]!r} in round {request.round}")


SEARCHED = 16 * 1024
"""Characters of a text that patterns are searched in: most patterns take quadratic time, and a question may be huge."""


@dataclass
class _Entry:
    answer: Answer
    patterns: Mapping[str, re.Pattern[str]]
    round: int | None
    offers: str | None
    times: int | None
    used: int = 0

    def match(self, request: Request) -> dict[str, str] | None:
        """What the placeholders stand for, or None when the entry is not for this request."""
        if self.times is not None and self.used >= self.times:
            return None
        if self.round is not None and self.round != request.round:
            return None
        if self.offers is not None and self.offers not in request.tools:
            return None
        quotes = {name: quote(request) for name, quote in QUOTES.items()}
        texts = {**quotes, "system": request.system}
        for name, pattern in self.patterns.items():
            found = pattern.search(texts[name][:SEARCHED])
            if not found:
                return None
            quotes |= {group: text or "" for group, text in found.groupdict().items()}
        return quotes


def _filled(answer: Answer, quotes: Mapping[str, str]) -> Answer:
    match answer:
        case Say():
            calls = tuple(Call(c.name, _fill(c.input, quotes)) for c in answer.calls)
            return replace(
                answer, text=_fill(answer.text, quotes), reasoning=_fill(answer.reasoning, quotes), calls=calls
            )
        case Reply():
            return replace(answer, body=_fill(answer.body, quotes))
        case Chunks():
            return replace(answer, items=_fill(answer.items, quotes), whole=_fill(answer.whole, quotes))
        case Raw():
            return answer


def _fill(value: Any, quotes: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda m: quotes[m[2]] if m[2] else f"{{{m[1]}}}", value)
    if isinstance(value, Mapping):
        return {key: _fill(v, quotes) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fill(v, quotes) for v in value)
    return value


class _Loader:
    """Turns a parsed document into a Script; every complaint names the file and the key."""

    def __init__(self, path: str) -> None:
        self._path = path

    def script(self, document: object) -> Script:
        if not isinstance(document, dict):
            raise self._wrong("", "a script is a mapping with the key `answers`")
        self._known("", document, {"models", "signature", "answers", "routes"})
        models = self._list("models", document.get("models", ["scripted"]))
        if not models or not all(isinstance(m, str) and m for m in models):
            raise self._wrong("models", "a list of names is expected")
        signature = document.get("signature", "")
        if not isinstance(signature, str):
            raise self._wrong("signature", "text is expected")
        answers = self._list("answers", document.get("answers"))
        if not answers:
            raise self._wrong("answers", "at least one answer is expected")
        entries = [self._entry(f"answers[{i}]", entry, signature) for i, entry in enumerate(answers)]
        routes = document.get("routes", {})
        if not isinstance(routes, dict):
            raise self._wrong("routes", "a mapping from a path to an answer, or a list of them, is expected")
        return Script(
            _Entries(entries), tuple(models), {str(k): self._route(f"routes.{k}", v) for k, v in routes.items()}
        )

    def _route(self, where: str, value: object) -> Answer | Sequence[Answer]:
        if isinstance(value, list):
            return tuple(self._answer(f"{where}[{i}]", v, set(QUOTES)) for i, v in enumerate(value))
        return self._answer(where, value, set(QUOTES))

    def _entry(self, where: str, entry: object, signature: str) -> _Entry:
        if not isinstance(entry, dict):
            raise self._wrong(where, "an answer is a mapping")
        patterns = {}
        for name in CONDITIONS:
            if name in entry:
                try:
                    patterns[name] = re.compile(self._typed(f"{where}.{name}", entry[name], str))
                except re.error as error:
                    raise self._wrong(f"{where}.{name}", f"not a regular expression: {error}") from error
        groups = {group for pattern in patterns.values() for group in pattern.groupindex}
        if taken := sorted(groups & QUOTES.keys()):
            raise self._wrong(where, f"a group may not be called {taken[0]!r}: that is a placeholder already")
        rest = {key: value for key, value in entry.items() if key not in _COMMON}
        answer = self._answer(where, rest, {*QUOTES, *groups})
        if signature and isinstance(answer, Say) and answer.text and not answer.calls:
            answer = replace(answer, text=f"{answer.text.rstrip()}\n\n{signature}")
        numbers: dict[str, int | None] = {}
        for name in ("round", "times"):
            value = entry.get(name)
            numbers[name] = value
            if value is not None and self._typed(f"{where}.{name}", value, int) < 1:
                raise self._wrong(f"{where}.{name}", "1 or more is expected")
        offers = entry.get("offers")
        if offers is not None:
            self._typed(f"{where}.offers", offers, str)
        return _Entry(answer, patterns, numbers["round"], offers, numbers["times"])

    def _answer(self, where: str, value: object, placeholders: set[str]) -> Answer:
        if not isinstance(value, dict):
            raise self._wrong(where, "an answer is a mapping")
        self._known(where, value, {*_SAY, *_REPLY, *_CHUNKS, *_RAW})
        found = next(((k, keys) for k, keys, marks in _KINDS if any(mark in value for mark in marks)), None)
        if found is None:
            marks = "text, call, calls, status, body, html, redirect, chunks, raw"
            raise self._wrong(where, f"says nothing: one of {marks}")
        kind, keys = found
        if foreign := sorted(map(str, value.keys() - keys.keys())):
            raise self._wrong(f"{where}.{foreign[0]}", f"does not go with {kind}: {', '.join(sorted(keys))}")
        typed = {key: self._typed(f"{where}.{key}", v, keys[key]) for key, v in value.items()}
        self._placeholders(where, typed, placeholders)
        if keys is _RAW:
            return Raw(tuple(self._raw_item(f"{where}.raw[{i}]", v) for i, v in enumerate(typed["raw"])))
        if keys is _CHUNKS:
            items = tuple(self._chunk(f"{where}.chunks[{i}]", v) for i, v in enumerate(typed["chunks"]))
            return Chunks(items, done=typed.get("done", True), whole=typed.get("whole"))
        if keys is _REPLY:
            return self._reply(where, typed)
        return self._say(where, typed)

    def _reply(self, where: str, typed: dict[str, Any]) -> Reply:
        headers = {str(name): str(value) for name, value in typed.get("headers", {}).items()}
        status, body = typed.get("status", 200), typed.get("body", "")
        if not 200 <= status <= 599:
            raise self._wrong(f"{where}.status", "a number from 200 to 599 is expected")
        if "html" in typed:
            headers, body = {"content-type": "text/html; charset=utf-8", **headers}, typed["html"]
        if "redirect" in typed:
            headers, status = {"location": typed["redirect"], **headers}, typed.get("status", 302)
        return Reply(status, body, headers, typed.get("wait", 0.0))

    def _say(self, where: str, typed: dict[str, Any]) -> Say:
        if "call" in typed and "calls" in typed:
            raise self._wrong(where, "has both call and calls")
        calls = [typed.pop("call")] if "call" in typed else typed.pop("calls", [])
        typed["calls"] = tuple(self._call(f"{where}.calls[{i}]", call) for i, call in enumerate(calls))
        if typed.get("piece", 1) < 1:
            raise self._wrong(f"{where}.piece", "1 or more is expected")
        return Say(**typed)

    def _call(self, where: str, value: object) -> Call:
        if not isinstance(value, dict):
            raise self._wrong(where, "a call is a mapping with name and input")
        self._known(where, value, {"name", "input"})
        name = self._typed(f"{where}.name", value.get("name"), str)
        return Call(name, self._typed(f"{where}.input", value.get("input", {}), dict))

    def _chunk(self, where: str, value: object) -> Mapping[str, Any] | str | Pause | Cut:
        if isinstance(value, str):
            return value
        if not isinstance(value, dict):
            raise self._wrong(where, "an object, text, {pause: SECONDS} or {cut: true} is expected")
        return self._pause_or_cut(where, value) or value

    def _raw_item(self, where: str, value: object) -> bytes | Pause | Cut:
        if isinstance(value, (str, bytes)):
            return value.encode() if isinstance(value, str) else value
        found = self._pause_or_cut(where, value) if isinstance(value, dict) else None
        if found is None:
            raise self._wrong(where, "text, !!binary, {pause: SECONDS} or {cut: true} is expected")
        return found

    def _pause_or_cut(self, where: str, value: dict[str, Any]) -> Pause | Cut | None:
        if value.keys() == {"pause"}:
            return Pause(self._typed(f"{where}.pause", value["pause"], float))
        return CUT if value == {"cut": True} else None

    def _placeholders(self, where: str, value: object, known: set[str]) -> None:
        if isinstance(value, str):
            for found in _PLACEHOLDER.finditer(value):
                if found[2] and found[2] not in known:
                    there_are = f"unknown placeholder {{{found[2]}}}; there are {', '.join(sorted(known))}"
                    raise self._wrong(where, f"{there_are}. Write {{{{{found[2]}}}}} for the text itself")
        elif isinstance(value, dict):
            for key, v in value.items():
                self._placeholders(f"{where}.{key}", v, known)
        elif isinstance(value, list):
            for i, v in enumerate(value):
                self._placeholders(f"{where}[{i}]", v, known)

    def _typed(self, where: str, value: Any, kind: type) -> Any:
        if kind is object:
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
            raise self._wrong(where, f"{names.get(kind, 'a mapping')} is expected")
        if isinstance(value, float) and value < 0:
            raise self._wrong(where, "no negative number is expected")
        return value

    def _list(self, where: str, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise self._wrong(where, "a list is expected")
        return value

    def _known(self, where: str, mapping: dict[Any, Any], known: set[str]) -> None:
        for key in mapping:
            if key not in known:
                raise self._wrong(f"{where}.{key}".lstrip("."), f"unknown key; there are {', '.join(sorted(known))}")

    def _wrong(self, where: str, message: str) -> ConfigError:
        return ConfigError(message, place=f"{self._path}: {where}" if where else self._path)
