"""The file of a batch: one question a line (JSON Lines), or a YAML list.

    {"id": "greet", "prompt": "Say ${greeting}.", "kit": "./kit", "workspace": "./a", "variables": {"greeting": "hi"}}

All of it is read and checked before anything starts; an error names the file's line. `kit` and `workspace` that are
paths are relative to the file's folder, so that a batch means the same from everywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, UsageError
from runner.kits import document

MAX_BYTES = 256 * 1024 * 1024
"""Largest file that is read."""
MAX_LINES = 100_000
MAX_ID = 200
"""Characters of an id."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Line:
    """One question. Its fields are the file's keys, apart from `number`."""

    number: int
    """Of the line in the file, from 1."""
    id: str
    """Unique in the file; the line's number where none is given."""
    prompt: str
    """With the variables put in."""
    kit: str = ""
    workspace: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """In the sandbox's environment, and for `${NAME}` in the prompt."""
    kit_args: tuple[str, ...] = ()
    """Each `[KIT.]NAME=VALUE`."""
    model: str = ""
    expect: tuple[str, ...] = ()
    """Each as `--expect` takes it."""
    check: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Path in the sandbox → where it is kept on this machine."""
    timeout: float | None = None
    """Seconds."""
    max_tokens: int | None = None
    max_tool_calls: int | None = None

    @property
    def digest(self) -> str:
        """Tells whether a result is of this very line, wherever it stands in the file."""
        content = {key: value for key, value in vars(self).items() if key != "number"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


KEYS = tuple(name for name in Line.__dataclass_fields__ if name != "number")


def load(path: Path) -> list[Line]:
    """The lines of a batch.

    Args:
        path: `.yaml` or `.yml` is a YAML list, everything else JSON Lines; `-` is JSON Lines from stdin.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong; its place is `FILE:LINE`.
        UsageError: there is no line.
    """
    if str(path) == "-":
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise UsageError(f"the batch is over {MAX_BYTES // 1024**2} MiB", place="stdin")
        try:
            entries = _json_lines("stdin", raw.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"is not UTF-8: byte {error.start}", place="stdin") from None
        base = Path()
    else:
        base = path.parent
        text = document.read_text(path, limit=MAX_BYTES)
        entries = _yaml(path, text) if path.suffix in (".yaml", ".yml") else _json_lines(str(path), text)
    if not entries:
        raise UsageError("the batch holds no line", place=str(path))
    if len(entries) > MAX_LINES:
        raise UsageError(f"the batch holds {len(entries)} lines, more than {MAX_LINES}", place=str(path))
    lines = [_Entry(place, number, entry, base).line() for place, number, entry in entries]
    seen: dict[str, int] = {}
    for line, (place, _, _) in zip(lines, entries, strict=True):
        if line.id in seen:
            raise ConfigError(f"the id {line.id!r} is that of line {seen[line.id]} too", place=place)
        seen[line.id] = line.number
    return lines


_Found = list[tuple[str, int, Any]]
"""Place, line number, content."""


def _yaml(path: Path, text: str) -> _Found:
    nodes = document.load_list(path, source=text)
    return [(f"{path}:{node.line}", node.line, document.plain_data(node)) for node in nodes]


def _json_lines(name: str, text: str) -> _Found:
    found: _Found = []
    for number, raw in enumerate(text.split("\n"), 1):  # not splitlines: U+2028 may stand in a string
        if not raw.strip():
            continue
        place = f"{name}:{number}"
        try:
            found.append((place, number, json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)))
        except json.JSONDecodeError as error:
            raise ConfigError(f"is not JSON: {error.msg} at column {error.colno}", place=place) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"is not JSON: {error}", place=place) from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {document.printable(key)!r} stands twice")
        seen[key] = value
    return seen


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


class _Entry:
    """One line on its way from data to `Line`."""

    def __init__(self, place: str, number: int, data: Any, base: Path) -> None:
        self._place = place
        self._number = number
        self._base = base
        if not isinstance(data, dict):
            raise ConfigError("must be a mapping of keys", place=place)
        for key in data:
            if key not in KEYS:
                raise document.unknown_key(str(key), KEYS, place)
        self._data = {key: value for key, value in data.items() if value is not None}

    def line(self) -> Line:
        variables = self._strings("variables")
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                self._wrong("variables", f"{document.printable(name)!r} is no name of a variable")
        kit_args = self._strings("kit_args")
        prompt = _QUOTED.sub(lambda m: variables.get(m[1], m[0]), self._text("prompt"))
        if not prompt.strip():
            self._wrong("prompt", "is missing or empty")
        # A number is a fine id: many files have one already.
        given = self._data.get("id")
        identity = str(given) if isinstance(given, int) and not isinstance(given, bool) else self._text("id")
        if len(identity) > MAX_ID or not identity.isprintable():
            self._wrong("id", f"must be printable and at most {MAX_ID} characters long")
        return Line(
            number=self._number,
            id=identity or str(self._number),
            prompt=prompt,
            kit=self._reference("kit"),
            workspace=self._path("workspace"),
            variables=variables,
            kit_args=tuple(f"{name}={value}" for name, value in kit_args.items()),
            model=self._text("model"),
            expect=self._texts("expect"),
            check=self._text("check"),
            artifacts={path: self._resolved(target) for path, target in self._strings("artifacts").items()},
            timeout=self._number_over_0("timeout", whole=False),
            max_tokens=self._whole("max_tokens"),
            max_tool_calls=self._whole("max_tool_calls"),
        )

    def _text(self, key: str) -> str:
        value = self._data.get(key, "")
        if not isinstance(value, str):
            self._wrong(key, "must be text")
        return str(value)

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key, [])
        each = [value] if isinstance(value, str) else value
        if not isinstance(each, list) or not all(isinstance(one, str) and one for one in each):
            self._wrong(key, "must be text, or a list of texts, none of them empty")
        return tuple(each)

    def _strings(self, key: str) -> dict[str, str]:
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            self._wrong(key, "must be a mapping of names to values")
        for name, each in value.items():
            if isinstance(each, bool) or not isinstance(each, (str, int, float)):
                self._wrong(key, f"{document.printable(str(name))} must be text or a number")
            if "\0" in str(each):
                self._wrong(key, f"{document.printable(str(name))} holds a NUL character")
        return {str(name): str(each) for name, each in value.items()}

    def _number_over_0(self, key: str, *, whole: bool) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not value > 0:
            self._wrong(key, f"must be a {'whole ' if whole else ''}number above 0")
        return float(value)

    def _whole(self, key: str) -> int | None:
        value = self._number_over_0(key, whole=True)
        return None if value is None else int(value)

    def _reference(self, key: str) -> str:
        """A kit: only what looks like a path is one."""
        text = self._text(key)
        return self._path(key) if text.startswith((".", "~", "/")) or ("/" in text and ":" not in text) else text

    def _path(self, key: str) -> str:
        text = self._text(key)
        return self._resolved(text) if text else ""

    def _resolved(self, text: str) -> str:
        return str((self._base / Path(text).expanduser()).absolute())

    def _wrong(self, key: str, message: str) -> None:
        raise ConfigError(f"{key}: {message}", place=self._place)
