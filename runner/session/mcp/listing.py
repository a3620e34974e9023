"""What a server says of its tools, as far as it can be believed.

The model reads it and requests carry it, so it is bounded: a name that no model server would take, a name that was
taken already, a schema that is none or is huge leaves the tool out; a long description is cut.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.wire.mcp import McpServer

MAX_TOOLS = 128
"""Tools of one server."""
MAX_DESCRIPTION = 4096
"""Characters."""
MAX_SCHEMA = 64 * 1024
"""Characters of a schema as JSON."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every model server takes as a tool's name."""


@dataclass(frozen=True)
class Listed:
    """A tool that the model may be told of."""

    name: str
    """`server__tool`."""
    own: str
    """As its server calls it."""
    description: str
    parameters: dict[str, Any]

    def told(self) -> dict[str, Any]:
        """The entry of a `Tools` message."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def listed(
    server: McpServer, tools: Iterable[Mapping[str, Any]], taken: Collection[str]
) -> tuple[list[Listed], list[str]]:
    """The tools that can be used, and a line for each that cannot.

    Args:
        tools: name, description, schema as the server told them.
        taken: names that other tools have.
    """
    good: list[Listed] = []
    problems: list[str] = []
    names = set(taken)
    for tool in tools:
        own = str(tool.get("name", ""))
        if not wanted(server, own):
            continue
        name = f"{server.name}__{own}"
        schema = tool.get("schema")
        if not own or not _NAME.fullmatch(name):
            problems.append(f"{own[:80]!r}: no name that a model server takes")
        elif name in names:
            problems.append(f"{own!r}: the name {name} is taken")
        elif wrong := _wrong(schema):
            problems.append(f"{own!r}: its schema {wrong}")
        elif len(good) >= MAX_TOOLS:
            problems.append(f"{own!r} and what comes after it: there are {MAX_TOOLS} tools already")
            break
        else:
            names.add(name)
            description = _text(str(tool.get("description") or own))
            good.append(Listed(name, own, description, {"properties": {}, **dict(schema or {}), "type": "object"}))
    return good, problems


def wanted(server: McpServer, name: str) -> bool:
    """Whether the agent's lists let the model have the tool."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in server.deny):
        return False
    return not server.allow or any(fnmatch.fnmatchcase(name, pattern) for pattern in server.allow)


def _wrong(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return "is none"
    if schema.get("type", "object") != "object":
        return f"is not that of an object but of {str(schema['type'])[:40]!r}"
    if not isinstance(schema.get("properties", {}), Mapping):
        return "has properties that are no object"
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError):
        return "cannot be said in JSON"
    return f"is larger than {MAX_SCHEMA // 1024} KiB" if size > MAX_SCHEMA else ""


def _text(text: str) -> str:
    clean = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return clean if len(clean) <= MAX_DESCRIPTION else clean[:MAX_DESCRIPTION] + " […]"
