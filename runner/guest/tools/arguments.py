"""Checking what a model sent as arguments. Small models often send a wrong type; what is clear is taken."""

from __future__ import annotations

from typing import Any


class ArgumentError(Exception):
    """The arguments are wrong; the text tells the model how to do it right."""


def check(parameters: dict[str, Any], arguments: object) -> dict[str, Any]:
    """The arguments with every type right and every default filled in.

    Args:
        parameters: the tool's JSON schema: an object of properties that are strings, numbers, booleans and arrays.

    Raises:
        ArgumentError: a required one is missing, one is unknown, or of a type that means nothing here.
    """
    known: dict[str, dict[str, Any]] = parameters["properties"]
    if not isinstance(arguments, dict):
        raise ArgumentError("the arguments must be a JSON object")
    if unknown := [str(key)[:60] for key in arguments if key not in known]:
        raise ArgumentError(f"unknown argument {unknown[0]!r}; there are: {', '.join(known)}")
    checked = {}
    for name, schema in known.items():
        value = arguments.get(name)
        if value is None:
            if name in parameters.get("required", ()):
                raise ArgumentError(f"the argument {name!r} is missing")
            checked[name] = schema.get("default")
            continue
        checked[name] = _one(name, schema, value)
    return checked


def _one(name: str, schema: dict[str, Any], value: Any) -> Any:
    kind = schema["type"]
    if kind == "string" and isinstance(value, str):
        if "enum" in schema and value not in schema["enum"]:
            raise ArgumentError(f"{name!r} must be one of {', '.join(schema['enum'])}")
        return value
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
    if kind in ("integer", "number") and not isinstance(value, bool):
        return _number(name, schema, value)
    if kind == "array" and isinstance(value, list):
        return value
    raise ArgumentError(f"{name!r} must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}, not {type(value).__name__}")


def _number(name: str, schema: dict[str, Any], value: Any) -> int | float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name!r} must be a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ArgumentError(f"{name!r} must be a number")
    if schema["type"] == "integer":
        if number != int(number):
            raise ArgumentError(f"{name!r} must be a whole number")
        number = int(number)
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and number < low) or (high is not None and number > high):
        raise ArgumentError(f"{name!r} must be from {low} to {high}")
    return number
