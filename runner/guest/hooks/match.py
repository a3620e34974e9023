"""Matchers: is this hook for this tool?

Python's `re` has no time limit and holds the interpreter's lock, so one expression that backtracks for ever would hang
the whole guest; a thread would not help. Most matchers (`^bash$`, `bash|write_file`, `^mcp__`) cannot backtrack far.
`is_quick` tells these by their parsed form, and they are matched here and now. Any other is matched once a tool name
in a process that is ended after `BOUND` seconds, and the result is kept. A match that cannot be decided counts as one:
a guard that runs too often is safe.

*Measured:* a quick search takes 0.3 µs, and 1 ms on the worst name of 128 characters; a process takes 25 ms, once a
tool name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

from runner.guest.hooks.process import SYSTEM_PATH
from runner.guest.spawn.command import HOOK, Command

BOUND = 1.0
"""Seconds for one expression in one name."""

MAX_QUICK_NAME = 128
"""Characters. With at most `MAX_REPEATS` repeats, a search takes at most about 128^3 steps."""

MAX_REPEATS = 2
"""Unbounded repeats in one expression that is still matched in this process."""

MAX_KEPT = 4096
"""Results that are kept."""

_PROGRAM = "import json,re,sys; p, t = json.load(sys.stdin); print(int(any(re.search(p, x) for x in t)))"

_ONE_CHARACTER = frozenset({sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY, sre.RANGE})


def is_quick(pattern: str) -> bool:
    """Whether searching a short name takes a bounded, small number of steps.

    True when every repeat repeats single characters, no repeat stands in another, and few are unbounded. Back
    references, conditions and look-arounds are left to the other way.
    """
    try:
        return _repeats(sre_parse.parse(pattern)) <= MAX_REPEATS
    except (re.error, RecursionError, OverflowError, ValueError):
        return False


def _repeats(items: Any) -> int:
    """Number of repeats; more than `MAX_REPEATS` for whatever is not understood."""
    too_many = MAX_REPEATS + 1
    count = 0
    for code, argument in items:
        if code in _ONE_CHARACTER or code is sre.AT:
            continue
        if code in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = argument
            if len(body) != 1 or body[0][0] not in _ONE_CHARACTER:
                inner = _repeats(body)
                if (low, high) != (0, 1) or inner:
                    return too_many  # `(ab)?` is fine, `(a|b)*` and `(a+)?` are not
            elif high > 1:
                count += 1
        elif code is sre.SUBPATTERN:
            count += _repeats(argument[-1])
        elif code is sre.BRANCH:
            count += max((_repeats(branch) for branch in argument[1]), default=0)
        else:
            return too_many
    return count


class Matchers:
    """Decides matches and remembers them.

    Args:
        spawner: starts the process that a doubtful expression is tried in.
    """

    def __init__(self, spawner: Any) -> None:
        self._spawner = spawner
        self._kept: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._quick: dict[str, re.Pattern[str] | None] = {}

    async def matches(self, pattern: str | None, names: Iterable[str]) -> tuple[bool, bool]:
        """Whether `pattern` is found in one of `names`.

        Returns:
            The decision, and whether it is certain. An undecided match is (True, False).
        """
        if pattern is None:
            return True, True
        key = (pattern, tuple(names))
        if (kept := self._kept.get(key)) is not None:
            return kept, True
        if pattern not in self._quick:
            self._quick[pattern] = re.compile(pattern) if is_quick(pattern) else None
        quick = self._quick[pattern]
        if quick is not None and all(len(name) <= MAX_QUICK_NAME for name in key[1]):
            found = any(quick.search(name) for name in key[1])
        else:
            decided = await self._in_a_process(*key)
            if decided is None:
                return True, False
            found = decided
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = found
        return found, True

    async def _in_a_process(self, pattern: str, names: tuple[str, ...]) -> bool | None:
        command = Command(["python3", "-I", "-S", "-c", _PROGRAM], {"PATH": SYSTEM_PATH}, "/", HOOK)
        data = json.dumps([pattern, names]).encode()
        result = await self._spawner.run(command, input=data, timeout=BOUND, limit=1024)
        said = result.stdout.data.strip()
        return said == b"1" if said in (b"0", b"1") and not result.timed_out else None
