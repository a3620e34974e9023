"""A call's arguments: decoded, and checked against the tool's JSON schema.

What cannot be decoded is an error that the model can read, never a silent `{}`: a tool that runs with nothing in
place of what was meant does harm. Of JSON schema the checker knows what tools use: type, required, properties,
additionalProperties, items, enum, const, anyOf, oneOf, minimum, maximum, minLength, maxLength, minItems, maxItems.
Other keywords are not checked; the tool itself has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}
_DEEPEST = 32
_SHOWN = 200
"""Characters of malformed arguments that an error quotes."""


class Malformed(ValueError):
    """The arguments are not an object in JSON; the text says what is wrong, for the model."""


def decode(raw: str) -> dict[str, Any]:
    """The arguments' object; nothing, blanks and `null` are an empty one. Raises Malformed."""
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_no_constant)
        # half a surrogate pair can be written in JSON, and nowhere else: no command line, no file, no request takes it
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Malformed("the arguments hold half a character (a lone surrogate)") from None
    except RecursionError:
        raise Malformed("the arguments are nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"the arguments are not valid JSON ({error}): {_shown(raw)}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed(f"the arguments are {_name(value)}, not an object: {_shown(raw)}")
    return value


def complete(raw: str) -> bool:
    """Whether `raw` is an object to its last brace."""
    if not raw.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def check(schema: Mapping[str, Any], value: object, where: str = "") -> str:
    """What is wrong with `value` by `schema`, in words for the model; empty when nothing is."""
    return _check(schema, value, where, 0)


def _check(schema: object, value: Any, where: str, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return ""
    at = where or "the arguments"
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options:
            errors = [_check(option, value, where, depth + 1) for option in options]
            if all(errors):
                return errors[0]
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    known = [kind for kind in kinds if kind in _TYPES]
    if known and not any(_is(kind, value) for kind in known):
        return f"{at} must be {' or '.join(known)}, not {_name(value)}"
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        return f"{at} must be one of {', '.join(json.dumps(v) for v in schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        return f"{at} must be {json.dumps(schema['const'])}"
    if isinstance(value, dict):
        return _check_object(schema, value, where, depth)
    if isinstance(value, list):
        for i, entry in enumerate(value):
            if error := _check(schema.get("items"), entry, f"{where}[{i}]", depth + 1):
                return error
    return _check_size(schema, value, at)


def _check_object(schema: Mapping[str, Any], value: dict[str, Any], where: str, depth: int) -> str:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else []:
        if name not in value:
            return f"`{where + '.' if where else ''}{name}` is missing"
    for name, entry in value.items():
        path = f"{where}.{name}" if where else name
        if name in properties:
            if error := _check(properties[name], entry, path, depth + 1):
                return error
        elif schema.get("additionalProperties") is False:
            there_are = ", ".join(map(str, properties)) or "none"
            return f"`{path}` is not an argument; there are: {there_are}"
        elif error := _check(schema.get("additionalProperties"), entry, path, depth + 1):
            return error
    return ""


def _check_size(schema: Mapping[str, Any], value: Any, at: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if _number(schema.get("minimum")) and value < schema["minimum"]:
            return f"{at} must be {schema['minimum']} or more"
        if _number(schema.get("maximum")) and value > schema["maximum"]:
            return f"{at} must be {schema['maximum']} or less"
    if isinstance(value, (str, list)):
        least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
        if _number(schema.get(least)) and len(value) < schema[least]:
            return f"{at} must have at least {schema[least]} {'characters' if least == 'minLength' else 'entries'}"
        if _number(schema.get(most)) and len(value) > schema[most]:
            return f"{at} must have at most {schema[most]} {'characters' if most == 'maxLength' else 'entries'}"
    return ""


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(value: object) -> str:
    return _NAMES.get(type(value), "null")


def _shown(raw: str) -> str:
    return raw if len(raw) <= _SHOWN else f"{raw[:_SHOWN]}… ({len(raw)} characters)"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
