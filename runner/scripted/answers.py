"""The kinds of answer that the scripted server gives.

`Say` is a model's answer as it should be, streamed or whole as the client asks. The others are for what real servers
do: `Chunks` any stream of events, `Reply` any HTTP answer (statuses, headers, HTML, redirects), `Raw` any bytes on the
socket, with pauses and cuts. A list of answers in a script gives one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.scripted.request import Call


@dataclass(frozen=True)
class Pause:
    """Nothing is sent for `seconds`; over at once when the client goes away or the server stops."""

    seconds: float


class Cut:
    """The connection ends here, with a reset where the system allows one."""


CUT = Cut()


@dataclass(frozen=True)
class Say:
    """A well-formed answer."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    finish: str = ""
    """Empty: `tool_calls` when there are calls, else `stop`."""
    usage: Mapping[str, Any] | None = None
    """None: counted roughly, four characters a token."""
    piece: int = 24
    """Characters of one delta."""
    delay: float = 0.0
    """Seconds between two deltas."""
    wait: float = 0.0
    """Seconds before the answer's first byte."""
    cut: bool = False
    """The connection is cut after the last delta, before the finish reason."""
    error: Mapping[str, Any] | str | None = None
    """Sent as an error object in the stream's place of a finish reason."""


@dataclass(frozen=True)
class Chunks:
    """Server-sent events, one for each item.

    Args:
        items: an object is sent as a chunk's JSON, text and bytes as they are (so `: comment\\n\\n` is possible),
            a Pause waits, CUT ends the connection.
        done: `data: [DONE]` is sent at the end.
        whole: the body for a client that did not ask for a stream; None: the same stream.
    """

    items: Sequence[Mapping[str, Any] | str | bytes | Pause | Cut]
    done: bool = True
    whole: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """Any HTTP answer with a whole body; a body that is not text or bytes is sent as JSON."""

    status: int = 200
    body: Any = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    """Seconds before the answer's first byte."""


@dataclass(frozen=True)
class Raw:
    """Bytes for the socket, status line included; the connection closes afterwards."""

    items: Sequence[bytes | Pause | Cut]


Answer = Say | Chunks | Reply | Raw
