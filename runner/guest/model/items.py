"""What `Model.stream` yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class ToolSpec(Protocol):
    """What a request tells of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, which is no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing has come for `seconds`; the request goes on."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The server could not answer; the next attempt, number `attempt`, begins in `seconds`."""

    attempt: int
    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know about this answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the model made it. It may run only when `error` is empty."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """None when what came is not an object."""
    raw: str
    """The arguments as they came."""
    error: str = ""
    """Why it may not run, in words for the model."""
    problem: str = ""
    """The same in one word: `malformed`, `cut-off`, `unknown-tool`, `schema`, `leak`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All of an answer; the last item."""

    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    """The server's finish reason, empty when it gave none."""
    usage: dict[str, int] = field(default_factory=dict)
    cut_off: bool = False
    """The server stopped at a limit of tokens."""


Item = TextDelta | ReasoningDelta | Waiting | Retrying | Notice | Answer
