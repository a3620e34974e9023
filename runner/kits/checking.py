"""What the checks of `agent.yaml` and `hooks.yaml` share: one way to read, one way to complain.

Every complaint is a `ConfigError` whose place is `FILE: dotted.key[index]`, with the near key or the allowed values.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pydantic

from runner.errors import ConfigError
from runner.kits.document import Document, load_mapping

Model = TypeVar("Model", bound=pydantic.BaseModel)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(ms|s|m|h)?\s*")

_TYPES = {
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}


class Problem(ValueError):
    """What is wrong with one value, said without its place."""


def nearest(key: object, allowed: Collection[str], *, likeness: float = 0.6) -> str:
    """`; did you mean KEY?` for a near key, else nothing. `likeness` is from 0, anything, to 1, the same."""
    folded = {name.lower(): name for name in allowed}
    text = str(key)
    near = difflib.get_close_matches(text.lower(), folded, n=1, cutoff=likeness)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def one_of(allowed: Collection[str]) -> Callable[[str], str]:
    """A validator that takes the allowed texts only, and names them when it refuses."""

    def validate(value: str) -> str:
        if value not in allowed:
            raise Problem(f"{value!r} is not allowed{nearest(value, allowed)}; allowed: {', '.join(allowed)}")
        return value

    return validate


def duration(value: object) -> float:
    """Seconds of `500ms`, `5s`, `3m`, `1h`, or of a number, which is seconds.

    Raises:
        Problem: it is none of these, or not positive.
    """
    seconds: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds is None or not 0 < seconds < float("inf"):
        raise Problem(f"{value!r} is not a positive duration; allowed: 500ms, 5s, 3m, 1h, or a number of seconds")
    return seconds


def check(model: type[Model], value: object, *, where: str, at: str = "", deep: bool = True) -> Model:
    """The value as `model`.

    Args:
        where: the file.
        at: the dotted key that the value stands under; empty for the whole file.
        deep: the place goes on below `at`; otherwise it ends there, and the message begins with the key.

    Raises:
        ConfigError: the first thing that is wrong, with its place.
    """
    if not isinstance(value, dict):
        raise ConfigError("must be a mapping", place=f"{where}: {at}" if at else where)
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        # A key that is not known explains a key that is missing (`comand:` for `command:`), so it is told first.
        problems = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
        problem = problems[0]
    keys = [key for key in problem["loc"] if not (isinstance(key, str) and "[" in key)]
    below = ""
    for key in keys:
        below += f"[{key}]" if isinstance(key, int) else (f".{key}" if below else str(key))
    match problem["type"]:
        case "extra_forbidden":
            known = _keys(_model_at(model, keys[:-1]))
            message = f"unknown key {keys[-1]!r}{nearest(keys[-1], known)}; allowed: {', '.join(known)}"
            if not deep:
                below = ""
        case "greater_than_equal":
            message = f"must be at least {problem['ctx']['ge']}, not {problem['input']!r}"
        case "missing":
            message = "is required"
        case "value_error":
            message = str(problem["ctx"]["error"])
        case kind:
            shown = repr(problem["input"])
            said = _TYPES.get(kind, problem["msg"])
            message = f"{said}, not {shown if len(shown) < 80 else shown[:77] + '…'}"
    if not deep:
        place, message = at, f"`{below}`: {message}" if below else message
    else:
        place = f"{at}.{below}" if at and below else at or below
    raise ConfigError(message, place=f"{where}: {place}" if place else where)


def _model_at(model: type[pydantic.BaseModel], path: Sequence[object]) -> type[pydantic.BaseModel]:
    """The model that stands at a place within another; below a name of the user's own, the one of every such name."""
    for key in path:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if key in fields and (inner := _models(fields[str(key)].annotation)):
            model = inner[0]
    return model


def _models(annotation: object) -> list[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in _models(argument)]


def _keys(model: type[pydantic.BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def read(path: Path) -> Document:
    """The file's YAML, which must be a mapping.

    Raises:
        ConfigError: it is missing, unreadable, too large, binary, not UTF-8, empty, not YAML, not a mapping, or says
            one key twice.
    """
    if path.is_dir():
        raise ConfigError("is a folder, not a file", place=str(path))
    return load_mapping(path)


@contextmanager
def lines_of(document: Document) -> Iterator[None]:
    """Adds the line to every complaint about a key of this document that is raised inside."""
    prefix = f"{document.path}: "
    try:
        yield
    except ConfigError as error:
        if error.place and error.place.startswith(prefix):
            steps = [int(n) if n else name for name, n in _STEP.findall(error.place.removeprefix(prefix))]
            key, node = document.find(steps)
            error.message += f" (line {(key or node).line})"
            error.args = (error.message,)
        raise


_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
