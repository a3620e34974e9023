"""Deltas into an answer and its calls: the accumulation rules.

Servers put the same answer into deltas in different ways. What decides is settled here:

- the name of a call is the first non-empty one; its arguments are joined;
- a new non-empty id starts a new call, whatever the index says;
- without ids, a further name with arguments after a whole object starts a new call;
- arguments that come as an object are taken as they are; nothing and `null` are an empty object;
- the finish reason decides nothing but `length`: what was accumulated decides;
- after `length` the last call does not run, even when its JSON is whole: servers close the brackets of a cut-off call;
- reasoning, in a field of its own or in `<think>`, is kept apart.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.guest.model import arguments
from runner.guest.model.items import Answer, Call, ReasoningDelta, TextDelta, ToolSpec
from runner.guest.model.leak import leaked
from runner.guest.model.thinking import Splitter

MAX_ANSWER = 16 * 1024 * 1024
"""Most characters of an answer: text, reasoning and arguments together."""

MAX_CALLS = 128
"""Most calls in one answer."""

_REASONING = ("reasoning_content", "reasoning", "thinking")
_TEXT_CALL = re.compile(
    r"<tool_call>|<function[=_]|<function_call>|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_calls?(?:_begin|_start)?\|>"
    r"|<invoke |<｜tool▁call"
)
_JSON_CALL = re.compile(
    r"\A\s*(?:```(?:json)?\s*)?\{\s*\"(?:name|tool|function)\"\s*:\s*\"([^\"]+)\"\s*,"
    r"\s*\"(?:arguments|parameters|input)\"\s*:"
)


class AnswerTooLarge(Exception):
    """The answer is larger than `MAX_ANSWER`, or has more than `MAX_CALLS` calls."""


def new_call_id() -> str:
    """An id for a call that came without one: nine letters and digits, as Mistral's chat template demands."""
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(9))


@dataclass
class _Building:
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    object: dict[str, Any] | None = None

    @property
    def raw(self) -> str:
        if self.object is not None:
            return json.dumps(self.object, ensure_ascii=False)
        return "".join(self.parts)

    @property
    def complete(self) -> bool:
        return self.object is not None or arguments.complete("".join(self.parts))


class Accumulator:
    """Takes the choices of chunks, or of a whole answer, and gives deltas and at last the Answer.

    Args:
        new_id: makes an id for a call that came without one.
    """

    def __init__(self, new_id: Callable[[], str] = new_call_id) -> None:
        self.finish = ""
        self.usage: dict[str, int] = {}
        self.deltas = 0
        """Real deltas so far: ones that carried text, reasoning or a piece of a call."""
        self._new_id = new_id
        self._size = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Building] = []
        self._by_index: dict[int, _Building] = {}
        self._splitter = Splitter()

    @property
    def empty(self) -> bool:
        """Nothing came that could be shown or run."""
        return not self._calls and not any(text.strip() for text in self._text)

    @property
    def reasoned(self) -> bool:
        """Some reasoning came."""
        return any(text.strip() for text in self._reasoning)

    def take(self, document: Mapping[str, Any]) -> list[TextDelta | ReasoningDelta]:
        """Takes one chunk, or a whole answer. Raises AnswerTooLarge."""
        self._take_usage(document.get("usage"))
        choices = document.get("choices")
        if not isinstance(choices, list):
            return []
        items: list[TextDelta | ReasoningDelta] = []
        for choice in choices:
            if isinstance(choice, dict) and not choice.get("index"):
                message = choice.get("delta") or choice.get("message")
                if isinstance(message, dict):
                    items += self._take_message(message)
                finish = choice.get("finish_reason")
                if isinstance(finish, str) and finish:
                    self.finish = finish
                break
        return items

    def close(self) -> list[TextDelta | ReasoningDelta]:
        """The stream has ended: what was held back."""
        return list(self._content(self._splitter.close()))

    def answer(self, tools: Sequence[ToolSpec] = ()) -> Answer:
        """The answer. Each call says whether it may run.

        Args:
            tools: the tools that the request offered.
        """
        early, text = self._splitter.split_lone_end(_clean("".join(self._text)))
        cut_off = self.finish in ("length", "max_tokens")
        seen: set[str] = set()
        calls = []
        for building in self._calls:
            last = building is self._calls[-1]
            call_id = building.id if building.id and building.id not in seen else self._new_id()
            seen.add(call_id)
            calls.append(_call(building, call_id, tools, cut_off=cut_off and last))
        reasoning = _clean("".join(self._reasoning))
        return Answer(text, early + reasoning, tuple(calls), self.finish, dict(self.usage), cut_off)

    def written_call(self, tools: Sequence[ToolSpec]) -> bool:
        """Whether the text holds what looks like a tool call, and no real call came."""
        if self._calls or not tools:
            return False
        text = "".join(self._text)
        if _TEXT_CALL.search(text):
            return True
        found = _JSON_CALL.match(text)
        return found is not None and any(tool.name == found[1] for tool in tools)

    # ---- pieces

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage |= {k: v for k, v in usage.items() if isinstance(v, int) and not isinstance(v, bool)}
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
                self.usage["cached_tokens"] = details["cached_tokens"]

    def _take_message(self, message: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        for key in _REASONING:
            if isinstance(message.get(key), str) and message[key]:
                self.deltas += 1
                yield self._add(self._reasoning, message[key], ReasoningDelta)
                break
        content = message.get("content")
        if isinstance(content, str) and content:
            self.deltas += 1
            yield from self._content(self._splitter.feed(content))
        elif isinstance(content, list):
            yield from self._take_parts(content)
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            entries = [call for call in calls if isinstance(call, dict)]
            for position, entry in enumerate(entries):
                self._take_call(entry, position if len(entries) > 1 else None)
        if isinstance(message.get("function_call"), dict):
            self._take_call({"index": 0, "function": message["function_call"]}, None)

    def _take_parts(self, parts: list[Any]) -> Iterator[TextDelta | ReasoningDelta]:
        """Content as a list of parts, which some servers send for `content`."""
        for part in parts:
            if isinstance(part, dict):
                text = part.get("text")
                if part.get("type") == "text" and isinstance(text, str) and text:
                    self.deltas += 1
                    yield from self._content(self._splitter.feed(text))
                elif part.get("type") == "thinking" and isinstance(part.get("thinking"), list):
                    for inner in part["thinking"]:
                        if isinstance(inner, dict) and isinstance(inner.get("text"), str) and inner["text"]:
                            self.deltas += 1
                            yield self._add(self._reasoning, inner["text"], ReasoningDelta)

    def _content(self, pieces: Iterator[tuple[bool, str]]) -> Iterator[TextDelta | ReasoningDelta]:
        for is_reasoning, text in pieces:
            if is_reasoning:
                yield self._add(self._reasoning, text, ReasoningDelta)
            else:
                yield self._add(self._text, text, TextDelta)

    def _add(self, parts: list[str], text: str, kind: Callable[[str], Any]) -> Any:
        self._grow(len(text))
        parts.append(text)
        return kind(_clean(text))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_ANSWER:
            raise AnswerTooLarge(f"the answer is larger than {MAX_ANSWER // 1024 // 1024} MiB")

    def _take_call(self, entry: Mapping[str, Any], position: int | None) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else entry
        call_id = entry["id"] if isinstance(entry.get("id"), str) else ""
        name = function["name"] if isinstance(function.get("name"), str) else ""
        given = function.get("arguments", function.get("parameters"))
        call = self._call_for(_index(entry.get("index"), position), call_id, name, given)
        call.id = call.id or call_id
        call.name = call.name or name
        if isinstance(given, dict):
            self._grow(len(json.dumps(given)))
            call.object = {**(call.object or {}), **given}
        elif isinstance(given, str) and given:
            self._grow(len(given))
            call.parts.append(given)
        elif given is not None and not isinstance(given, str):
            call.parts.append(json.dumps(given))  # of a wrong type: decoding will say which
        if call_id or name or given:
            self.deltas += 1

    def _call_for(self, index: int | None, call_id: str, name: str, given: object) -> _Building:
        last = self._calls[-1] if self._calls else None
        current = last if index is None else self._by_index.get(index)
        if current is None or self._is_another(current, call_id, name, given):
            if len(self._calls) >= MAX_CALLS:
                raise AnswerTooLarge(f"the answer has more than {MAX_CALLS} tool calls")
            current = _Building()
            self._calls.append(current)
        if index is not None:
            self._by_index[index] = current
        return current

    @staticmethod
    def _is_another(current: _Building, call_id: str, name: str, given: object) -> bool:
        if call_id and current.id:
            return call_id != current.id
        return bool(not call_id and not current.id and name and current.name and given and current.complete)


def _index(value: object, position: int | None) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:6])
    return position


def _call(building: _Building, call_id: str, tools: Sequence[ToolSpec], *, cut_off: bool) -> Call:
    raw, name = building.raw, building.name
    value: dict[str, Any] | None = None
    error = problem = ""
    try:
        value = arguments.decode(raw)
    except arguments.Malformed as malformed:
        error, problem = f"{malformed}. The call did not run; make it again with valid JSON.", "malformed"
    tool = next((tool for tool in tools if tool.name == name), None)
    if cut_off:
        problem = "cut-off"
        error = "the answer reached its limit of tokens inside this call, so it did not run; make a shorter one."
    elif tool is None:
        problem = "unknown-tool"
        there_are = ", ".join(t.name for t in tools) or "none"
        error = f"there is no tool called {name[:80]!r}. The tools are: {there_are}."
    elif value is not None:
        if found := leaked(value):
            problem = "leak"
            error = f"the arguments hold routing text ({found!r}), so the call did not run; make it again without."
        elif wrong := arguments.check(tool.parameters, value):
            problem, error = "schema", f"{wrong}. The call did not run."
    return Call(call_id, name, value, raw, error, problem)


def _clean(text: str) -> str:
    """`text` with halves of surrogate pairs joined, or replaced: JSON can carry them, nothing else can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
