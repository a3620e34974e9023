"""A plan as JSON and back, for the recipe that travels in an image."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
import typing
from pathlib import Path
from typing import Any

from runner.errors import ImageError
from runner.kits.plan import Plan


def encode(plan: Plan) -> bytes:
    """The same bytes for the same plan."""
    return (json.dumps(_plain(plan), indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def decode(text: bytes, place: str) -> Plan:
    """What `encode` wrote, every type checked: it came out of an image.

    Raises:
        ImageError: it is no plan.
    """
    try:
        plan: Plan = _typed(Plan, json.loads(text), "plan")
    except (ValueError, TypeError, RecursionError) as error:
        raise ImageError(f"the recipe's plan cannot be read: {error}", place=place) from None
    return plan


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Path) else value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _typed(kind: Any, value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"{at} is not an object")
        hints = _hints(kind)
        if unknown := sorted(value.keys() - hints.keys()):
            raise TypeError(f"{at}.{unknown[0]} is not known to this sbx")
        return kind(**{name: _typed(hints[name], item, f"{at}.{name}") for name, item in value.items()})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (kind,) = (item for item in inner if item is not type(None))
        return _typed(kind, value, at)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{at} is not a list")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_typed(inner[0], item, f"{at}[{n}]") for n, item in enumerate(value))
        return tuple(_typed(item_kind, item, at) for item_kind, item in zip(inner, value, strict=True))
    if origin is dict:
        if not isinstance(value, dict):
            raise TypeError(f"{at} is not an object")
        return value
    if kind is bytes:
        return base64.b64decode(_typed(str, value, at), validate=True)
    if kind is Path:
        return Path(_typed(str, value, at))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{at} is not of type {kind.__name__}")
    return value
