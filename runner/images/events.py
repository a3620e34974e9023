"""What a build tells while it goes on. Front ends render these; nothing here prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step of the Dockerfile begins."""

    number: int
    total: int
    text: str
    """The instruction, as it stands in the Dockerfile."""


@dataclass(frozen=True)
class Output:
    """Some of the running step's output, secrets masked; not cut at lines."""

    text: str


@dataclass(frozen=True)
class Note:
    """Something worth a line: pulling, bootstrapping, waiting for another build."""

    text: str


@dataclass(frozen=True)
class Ready:
    """The image is built and tagged."""

    tag: str
    seconds: float


Event = Step | Output | Note | Ready
Progress = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A `Progress` for callers that show nothing."""
