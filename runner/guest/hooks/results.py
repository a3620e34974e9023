"""What a chain of hooks came to, one class an event. Plain data for the agent loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.wire.markers import blocked_marker

MAX_PUSHES = 8
"""How often `stop` hooks may push one turn on."""


@dataclass(frozen=True)
class ToolCall:
    """A call as the model asked for it."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class Stop:
    """A hook ended the turn before the model was asked."""

    hook: str
    reason: str
    response: str = ""
    """What the user reads in place of an answer."""
    failed: bool = False
    """The hook did not decide it: it failed, and its `onError` is `fail`. The turn counts as failed then."""

    @property
    def marker(self) -> str:
        return blocked_marker(self.reason)


@dataclass(frozen=True)
class PreGeneration:
    prompt: str
    context: tuple[str, ...] = ()
    stopped: Stop | None = None


@dataclass(frozen=True)
class PreToolCall:
    input: Mapping[str, Any]
    """What the tool runs with."""
    denied: str | None = None
    """Reason, when a hook denied it."""
    denied_by: str = ""
    result: str | None = None
    """Output in place of running the tool."""
    result_is_error: bool = False
    answered_by: str = ""
    context: tuple[str, ...] = ()
    ask: bool = False
    """A person must consent, whatever `yolo` says; where nobody can, the call is denied."""
    asked_by: str = ""
    terminate: bool = False
    """The turn ends after this batch of calls."""

    @property
    def hook(self) -> str:
        """The hook that denied the call, else the one that asks for a person, else the one that answered it."""
        return self.denied_by or self.asked_by or self.answered_by


@dataclass(frozen=True)
class PostToolCall:
    output: str
    is_error: bool
    context: tuple[str, ...] = ()
    terminate: bool = False
    rewritten: bool = False
    """A hook replaced output or `isError`: of the original, only size and hash are kept."""
    failed: str = ""
    """A hook with `onError: fail` failed: the turn ends as failed. `output` must then be kept nowhere."""


@dataclass(frozen=True)
class PostGeneration:
    failed: str = ""


@dataclass(frozen=True)
class Permission:
    """`allowed` None: no opinion, a person is asked."""

    allowed: bool | None = None
    reason: str = ""
    by: str = ""


@dataclass(frozen=True)
class ModelRequest:
    model: str
    system: str
    context: tuple[str, ...] = ()
    stopped: Stop | None = None


@dataclass(frozen=True)
class SessionStart:
    context: tuple[str, ...] = ()
    stopped: Stop | None = None


@dataclass(frozen=True)
class Kept:
    """A message as it is to be kept."""

    message: Mapping[str, Any]
    failed: str = ""


@dataclass(frozen=True)
class Pushed:
    """`reason` not empty: the turn goes on with it as the next question."""

    reason: str = ""
    by: str = ""
    failed: str = ""
