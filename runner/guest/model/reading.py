"""The bytes of an answer into its JSON documents, whichever form the server chose.

A server may answer with a stream or a whole document whatever it was asked for, and something that is no model server
answers too. The first bytes decide, not the Content-Type, which is often wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from runner.guest.model import failure
from runner.guest.model.failure import ModelFailure
from runner.guest.model.sse import Event, Parser

MAX_WHOLE = 64 * 1024 * 1024
"""Most bytes of a whole answer; an answer at its own limit fits, escapes included."""
MAX_ERROR_BODY = 64 * 1024
"""Bytes of an error, or of a page, that are read."""

_FIELDS = (b"data", b"event", b"id:", b"retry", b"error", b":")


class Reader(Protocol):
    """Takes an answer's bytes, gives its documents."""

    done: bool
    """The server has said that this is all."""

    def take(self, chunk: bytes | None) -> Iterator[dict[str, Any]]:
        """Takes the next bytes, None at their end. Raises ModelFailure."""


def reader_for(head: bytes, *, ended: bool) -> Reader | None:
    """The reader for an answer that begins with `head`; None when that is not enough to tell.

    Args:
        ended: `head` is all there is.
    """
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        return Whole()
    if start.startswith(b"<"):
        return NoModelServer()
    if start.startswith(_FIELDS) or (ended and not start):
        return Events()
    if not ended and any(field.startswith(start) for field in _FIELDS):
        return None
    return NoModelServer()


class Events:
    """A stream of server-sent events."""

    def __init__(self) -> None:
        self.done = False
        self._parser = Parser()

    def take(self, chunk: bytes | None) -> Iterator[dict[str, Any]]:
        ended = chunk is None
        for event in self._parser.close() if chunk is None else self._parser.feed(chunk):
            if self.done:
                return
            yield from self._documents(event, last=ended)

    def _documents(self, event: Event, *, last: bool) -> Iterator[dict[str, Any]]:
        data = event.data.strip()
        if data == "[DONE]":
            self.done = True
            return
        if event.name == "error":
            raise stream_error(failure.error_text(data))
        try:
            yield from _parsed(data)
        except (ValueError, RecursionError):
            if not last:
                raise ModelFailure(
                    "broken", f"the stream holds a line that is not JSON: {failure.shown(data)}"
                ) from None
            # at the end it is the torn rest of a cut connection, which the missing finish reason tells


class Whole:
    """One JSON document."""

    def __init__(self) -> None:
        self.done = False
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, chunk: bytes | None) -> Iterator[dict[str, Any]]:
        if chunk is not None:
            self._parts.append(chunk)
            self._size += len(chunk)
            if self._size > MAX_WHOLE:
                raise ModelFailure("too-large", f"the answer is larger than {MAX_WHOLE // 1024 // 1024} MiB")
            return
        self.done = True
        body = b"".join(self._parts)
        try:
            yield from _parsed(body.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            raise ModelFailure("broken", f"the answer is not whole JSON: {failure.first_line(body)}") from None


class NoModelServer:
    """A page, or anything else that no model server sends."""

    def __init__(self) -> None:
        self.done = False
        self._body = b""

    def take(self, chunk: bytes | None) -> Iterator[dict[str, Any]]:
        self._body += chunk or b""
        if chunk is None or len(self._body) >= MAX_ERROR_BODY:
            raise no_model_server(self._body)
        yield from ()


def no_model_server(body: bytes, what: str = "") -> ModelFailure:
    """The failure for an answer that no model server gives.

    Args:
        what: what came, when the body does not tell.
    """
    return ModelFailure(
        "not-a-server",
        f"not a model server: {what or failure.first_line(body) or 'an empty answer'}",
        hint="check baseUrl in agent.yaml: an OpenAI-compatible server answers GET {baseUrl}/models with a list",
    )


def stream_error(text: str) -> ModelFailure:
    """The failure for an error that came with status 200, in a stream or in place of an answer."""
    kind = "overflow" if failure.is_overflow(text) else "http"
    return ModelFailure(kind, f"the server reported an error: {text}")


def _parsed(data: str) -> Iterator[dict[str, Any]]:
    try:
        documents = [json.loads(data)]
    except ValueError:
        # some servers leave out the blank lines between events
        lines = data.split("\n")
        if len(lines) == 1:
            raise
        documents = [json.loads(line) for line in lines if line.strip() not in ("", "[DONE]")]
    for document in documents:
        if not isinstance(document, dict):
            continue
        if document.get("error") or document.get("object") == "error":
            raise stream_error(failure.error_text(document))
        yield document
