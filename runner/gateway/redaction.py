"""Masks known secrets in whatever is shown or kept: as they are, and base64, URL and JSON encoded.

A secret inside a longer base64 text (`user:token`, as Basic authentication has it) begins at one of three places within
a group of characters; its middle is the same each time, so three needles find it wherever it stands.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from runner.errors import SbxError

MASK = "[secret]"
SHORTEST = 6
"""Characters. A shorter secret would mask what is none; it is refused."""


class Redactor:
    """Masks secrets.

    Args:
        secrets: the secrets; empty ones are left out.

    Raises:
        ValueError: one is shorter than `SHORTEST`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        needles: set[bytes] = set()
        for secret in secrets:
            if not secret:
                continue
            if len(secret) < SHORTEST:
                raise ValueError(f"a secret of fewer than {SHORTEST} characters cannot be masked safely")
            needles |= _forms(secret)
        self._needles = tuple(sorted(needles, key=len, reverse=True))
        self._pattern = re.compile(b"|".join(re.escape(n) for n in self._needles)) if needles else None
        self._starts = {needle[:length] for needle in self._needles for length in range(1, len(needle))}
        self._longest = max(map(len, self._needles), default=0)

    def __bool__(self) -> bool:
        return self._pattern is not None

    def data(self, data: bytes, *, same_length: bool = False) -> bytes:
        """`data` with each secret masked.

        Args:
            same_length: by as many `*` as it was long, where a length was announced already.
        """
        if self._pattern is None:
            return data
        return self._pattern.sub(_stars if same_length else MASK.encode(), data)

    def text(self, text: str) -> str:
        """`text` with each secret masked."""
        if self._pattern is None:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def document(self, value: object) -> object:
        """A JSON document with each secret in its texts and keys masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.document(key): self.document(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value

    def stream(self, *, same_length: bool = False) -> RedactedStream:
        """For text that comes in pieces: a secret cut by a piece's end is found too."""
        return RedactedStream(self, same_length)

    def held(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a secret."""
        for length in range(min(len(data), self._longest - 1), 0, -1):
            if data[-length:] in self._starts:
                return length
        return 0


class RedactedStream:
    """Bytes in pieces; what may be the beginning of a secret waits for the next piece."""

    def __init__(self, redactor: Redactor, same_length: bool = False) -> None:
        self._redactor = redactor
        self._same_length = same_length
        self._waiting = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now."""
        if not self._redactor:
            return data
        masked = self._redactor.data(self._waiting + data, same_length=self._same_length)
        held = self._redactor.held(masked)
        cut = len(masked) - held
        self._waiting = masked[cut:]
        return masked[:cut]

    def flush(self) -> bytes:
        """The rest; the stream has ended."""
        rest, self._waiting = self._waiting, b""
        return self._redactor.data(rest, same_length=self._same_length)


class EventMask:
    """Masks a session's events. Text that comes in pieces is held back where a piece may end inside a secret."""

    PIECES = ("model.delta", "model.reasoning")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[str, RedactedStream] = {}

    def __call__(self, name: str, data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """What may be shown now: usually the one event; before it, text that was held back."""
        if not self._redactor:
            return [(name, data)]
        if name in self.PIECES:
            stream = self._streams.setdefault(name, self._redactor.stream())
            text = stream.feed(str(data.get("text", "")).encode("utf-8", "surrogatepass"))
            return [(name, data | {"text": _text(text)})] if text else []
        held = [(piece, {"text": _text(rest)}) for piece, stream in self._streams.items() if (rest := stream.flush())]
        masked = self._redactor.document(data)
        assert isinstance(masked, dict)
        return [*held, (name, masked)]


_known = Redactor()


def remember(redactor: Redactor) -> None:
    """Makes the secrets of this process's session known to `masked`."""
    global _known
    _known = redactor


def masked(text: str) -> str:
    """`text` with the session's secrets masked: for what is told when everything else has failed."""
    return _known.text(text)


def mask_error(error: SbxError) -> SbxError:
    """Masks an error's own texts, in place; returns it."""
    error.message = masked(error.message)
    error.args = tuple(masked(part) if isinstance(part, str) else part for part in error.args)
    for name in ("place", "hint", "log"):
        if text := getattr(error, name):
            setattr(error, name, masked(text))
    return error


def _stars(found: re.Match[bytes]) -> bytes:
    return b"*" * len(found.group())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _forms(secret: str) -> set[bytes]:
    raw = secret.encode("utf-8")
    quoted = quote(secret, safe="")
    texts = {
        secret,
        quoted,
        quote_plus(secret),
        quote(secret),
        re.sub("%..", lambda found: found.group().lower(), quoted),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        raw.hex(),
        raw.hex().upper(),
    }
    forms = {text.encode("utf-8") for text in texts}
    for shift in range(3):
        bits = (shift * 8, (shift + len(raw)) * 8)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + raw)
            middle = text[-(-bits[0] // 6) : bits[1] // 6]  # only characters that hold nothing but the secret
            if len(middle) >= SHORTEST:
                forms.add(middle)
    return forms
