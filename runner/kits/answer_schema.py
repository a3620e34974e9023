"""Whether an answer is as `structuredOutput` wants it. The host's part: a whole validator of JSON schema.

`jsonschema` takes a quarter of a second to import, so it is imported when an agent has a schema, and only then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from runner.errors import ConfigError

MAX_ANSWER = 4 * 1024 * 1024
"""Characters of an answer that is checked."""
_FENCED = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*)\n\s*```\s*", re.DOTALL)


class Schema:
    """A JSON schema that answers are held against.

    Raises:
        ConfigError: it is no schema.
    """

    def __init__(self, schema: Mapping[str, Any], place: str = "structuredOutput") -> None:
        import jsonschema  # type: ignore[import-untyped]
        import referencing
        import referencing.exceptions

        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            path = ".".join(map(str, error.absolute_path))
            raise ConfigError(
                f"no JSON schema: {error.message}" + (f" (at {path})" if path else ""), place=place
            ) from None
        # A registry of our own: a `$ref` that leads elsewhere is an error, and never a request to the network.
        self._validator = kind(schema, registry=referencing.Registry(), format_checker=kind.FORMAT_CHECKER)
        self._best = jsonschema.exceptions.best_match
        self._unresolvable = referencing.exceptions.Unresolvable

    def check(self, answer: str) -> tuple[str, str]:
        """The JSON text of an answer, and what is wrong with it, empty when nothing is.

        A fence of Markdown around the JSON, which small models write whatever they are told, is taken off.
        """
        if len(answer) > MAX_ANSWER:
            return "", f"it is larger than {MAX_ANSWER // 1024**2} MiB"
        text = answer.strip()
        if fenced := _FENCED.fullmatch(text):
            text = fenced[1].strip()
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            return "", f"it is not JSON: {error}" if text else "it is empty"
        try:
            found = self._best(self._validator.iter_errors(value))
        except self._unresolvable as unresolvable:
            return "", f"the schema refers to what is not in it: {unresolvable}"
        except RecursionError:
            return "", "it is nested too deeply"
        if found is None:
            return text, ""
        where = found.json_path if found.absolute_path else "the value"
        return "", f"{where}: {found.message[:500]}"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
