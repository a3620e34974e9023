"""What a run is expected to have done: `--expect`, on its answer or on its result.

    --expect 'tests? pass'                     a Python regular expression, searched in the answer
    --expect 'jmespath:length(tool_calls) > `2`'   JMESPath on the result as `--json` prints it; a true value is met

JMESPath's own idea of false holds: false, null, an empty string, list or object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import UsageError

PREFIX = "jmespath:"
SHOWN = 200
"""Characters of an answer that are quoted when it does not match."""


@dataclass(frozen=True)
class Expectation:
    """One `--expect`, checked to be one."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Expectation:
        """Raises UsageError for a broken expression."""
        if text.startswith(PREFIX):
            from jmespath import compile as compile_path
            from jmespath.exceptions import JMESPathError

            try:
                compile_path(text.removeprefix(PREFIX))
            except JMESPathError as error:
                first = str(error).splitlines()[0]
                raise UsageError(f"--expect {text}: not JMESPath: {first}", hint="see jmespath.org") from None
        else:
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:
                raise UsageError(f"--expect {text}: not a regular expression: {error}") from None
        return cls(text)

    def failure(self, document: Mapping[str, Any]) -> str:
        """Why the result does not meet it; empty when it does.

        Args:
            document: what `--json` prints.
        """
        if not self.text.startswith(PREFIX):
            answer = str(document.get("answer") or "")
            if re.search(self.text, answer):
                return ""
            shown = answer[:SHOWN] + ("…" if len(answer) > SHOWN else "")
            return f"the answer does not match {self.text!r}: {shown!r}"
        from jmespath import search
        from jmespath.exceptions import JMESPathError

        expression = self.text.removeprefix(PREFIX)
        try:
            found = search(expression, document)
        except JMESPathError as error:
            return f"{expression}: {str(error).splitlines()[0]}"
        met = found is not None and found is not False and found != "" and found != [] and found != {}
        return "" if met else f"{expression} is {found!r}"


def judge(expectations: Sequence[Expectation], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each expectation, whether it is met, and why not."""
    rows = []
    for each in expectations:
        reason = each.failure(document)
        rows.append({"expect": each.text, "met": not reason, **({"reason": reason} if reason else {})})
    return rows
