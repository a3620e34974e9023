"""Rows for people and for programs: a table, JSON, or a line by a template, always in the order given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from runner.errors import UsageError
from runner.frontends.safe import safe_line
from runner.frontends.terminal import Output

_FIELD = re.compile(r"\{\{\s*(json\s+)?\.(\w*)\s*\}\}")


def show_rows(
    out: Output,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[tuple[str, str]],
    *,
    as_json: bool = False,
    template: str = "",
    known: Sequence[str] = (),
) -> None:
    """Print rows.

    Args:
        rows: one mapping each; its keys are the JSON's.
        columns: (key, title) of the table.
        as_json: one JSON list.
        template: one line a row with `{{.key}}` filled in, as `docker … --format` takes it; `{{json .}}` is the row.
        known: the keys a template may name, for the message where there is no row to tell.

    Raises:
        UsageError: the template names no key of the rows.
    """
    if as_json:
        out.write(json.dumps(list(rows), indent=2) + "\n")
    elif template:
        keys = list(rows[0]) if rows else list(known)
        check_template(template, keys)
        out.write("".join(fill(template, row) + "\n" for row in rows))
    else:
        out.write(table([[safe_line(_text(row.get(key)), 120) for key, _ in columns] for row in rows], columns))


def table(cells: Sequence[Sequence[str]], columns: Sequence[tuple[str, str]]) -> str:
    """Cells under their titles, each column as wide as its widest cell."""
    lines = [[title for _, title in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)


def check_template(template: str, keys: Sequence[str]) -> None:
    """Raises UsageError for a template with a field that is not one of `keys`, or with none at all."""
    folded = {key.lower() for key in keys}
    fields = _FIELD.findall(template)
    if not fields:
        raise UsageError(f"--format {template}: names no field", hint="for example '{{.name}}'")
    for whole, name in fields:
        if (not name and not whole) or (name and keys and name.lower() not in folded):
            raise UsageError(f"--format: there is no field {name!r}", hint=f"the fields are: {', '.join(keys)}")


def fill(template: str, row: Mapping[str, Any]) -> str:
    """The template with a row's values; `\\t` and `\\n` are what they stand for."""
    folded = {key.lower(): value for key, value in row.items()}

    def value(match: re.Match[str]) -> str:
        found = folded.get(match[2].lower()) if match[2] else dict(row)
        return json.dumps(found) if match[1] else safe_line(_text(found))

    return _FIELD.sub(value, template.replace("\\t", "\t").replace("\\n", "\n"))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
