"""Bytes into server-sent events, by the HTML standard's parsing rules, with what model servers do besides.

Besides: an event at the end of the stream counts without its blank line, since servers leave that out; a field
`error` (older llama.cpp) is an event of that kind. The result does not depend on how the bytes are cut.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

MAX_EVENT = 16 * 1024 * 1024
"""Most characters of one event; the largest seen are whole answers in one delta."""


class Event(NamedTuple):
    """One event: `name` is empty where the server gave none."""

    name: str
    data: str


class EventTooLarge(Exception):
    """One event is larger than `MAX_EVENT`."""


class Parser:
    """Feed it bytes, take events. Comments, ids and retry fields are skipped; invalid UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest: list[str] = []
        self._size = 0
        self._after_cr = False
        self._begun = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Takes the next bytes and yields the events that are now whole. Raises EventTooLarge."""
        return self._text(self._decode(chunk))

    def close(self) -> Iterator[Event]:
        """The bytes have ended: yields what was begun."""
        yield from self._text(self._decode(b"", True))
        if self._rest:
            line = "".join(self._rest)
            self._rest.clear()
            yield from self._line(line)
        yield from self._line("")

    def _text(self, text: str) -> Iterator[Event]:
        if not text:
            return
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr and text.startswith("\n"):
            text = text[1:]  # the second half of a CRLF that was cut in two
        if not text:
            self._after_cr = False
            return
        self._after_cr = text.endswith("\r")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        *lines, rest = text.split("\n")
        if lines and self._rest:
            lines[0] = "".join(self._rest) + lines[0]
            self._rest.clear()
            self._size = sum(map(len, self._data))
        for line in lines:
            yield from self._line(line)
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
            self._check()

    def _line(self, line: str) -> Iterator[Event]:
        if not line:
            if self._data:
                event = Event(self._name, "\n".join(self._data))
                self._data.clear()
                self._size = 0
                self._name = ""
                yield event
            self._name = ""
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
            self._size += len(value)
            self._check()
        elif field == "error":
            self._name = "error"
            self._data.append(value)
        elif field == "event" and self._name != "error":
            self._name = value

    def _check(self) -> None:
        if self._size > MAX_EVENT:
            raise EventTooLarge(f"one event is larger than {MAX_EVENT} characters")
