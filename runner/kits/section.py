"""Reading a spec key by key: what is asked for is known, what is left over is an error.

A `Section` is one mapping of the file. Whoever decodes it asks for each key that the grammar has, with the rule its
value must keep. All faults of a file are collected, so that an author sees them in one go; `Reading.finish` raises the
first and lists the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from runner.errors import ConfigError
from runner.kits import document as yaml
from runner.kits.document import Document, Listing, Node, Scalar, Step, dotted, printable, unknown_key
from runner.kits.rules import Rule

MAX_PROBLEMS = 100
"""Faults after which the reading of a file ends."""
MAX_SHOWN = 20
"""Most further faults that an error lists."""

_TRUE = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
_FALSE = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"))


@dataclass(frozen=True)
class Problem:
    """One fault of a file."""

    message: str
    place: str
    """`FILE:LINE:COLUMN`."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Reading:
    """The reading of one spec: its faults, its warnings, and where it goes beyond the public grammar."""

    def __init__(self, document: Document):
        self.document = document
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.beyond: list[str] = []
        """Uses of what only this program reads, each one line; `validate --portable` shows them."""

    def root(self, elsewhere: Mapping[str, str] | None = None) -> Section:
        return Section(self, self.document.root, (), elsewhere or {})

    def at(self, node: Node | None) -> str:
        return self.document.at(node)

    def problem(self, node: Node | None, message: str) -> None:
        self.problems.append(Problem(printable(message), self.at(node)))
        if len(self.problems) >= MAX_PROBLEMS:
            self.finish()

    def warn(self, node: Node | None, message: str) -> None:
        self.warnings.append(f"{self.at(node)}: {printable(message)}")

    def ours(self, node: Node | None, what: str) -> None:
        self.beyond.append(f"{self.at(node)}: {printable(what)}")

    def obey(self, node: Scalar, rule: Rule | None, where: str) -> bool:
        """Hold a value against a rule. A value that waits for an argument is fine until the argument is known."""
        if rule is None or node.waits:
            return True
        if fault := rule(node.text):
            self.problem(node, f"{where}: {fault}")
            return False
        return True

    def finish(self) -> None:
        """Raise `ConfigError` when there were faults: the first, and the others in its `log`."""
        if not self.problems:
            return
        first, *others = sorted(self.problems, key=_position)
        shown = [str(problem) for problem in others[:MAX_SHOWN]]
        if len(others) > MAX_SHOWN:
            shown.append(f"and {len(others) - MAX_SHOWN} more")
        raise ConfigError(first.message, place=first.place, log="\n".join(shown) or None)


class Section:
    """One mapping of the spec.

    Args:
        elsewhere: keys that another schema has, and what to say of them.
    """

    def __init__(
        self, reading: Reading, node: yaml.Mapping, steps: tuple[Step, ...], elsewhere: Mapping[str, str] | None = None
    ):
        self.reading = reading
        self.node = node
        self.steps = steps
        self.elsewhere = elsewhere or {}
        self.known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return self.node.get(key) is not None

    def where(self, key: str = "") -> str:
        return dotted((*self.steps, key) if key else self.steps)

    def peek(self, key: str) -> Node | None:
        """The value of a key, `None` when it is absent or null."""
        value = self.node.get(key)
        return None if isinstance(value, Scalar) and value.value is None and value.plain and not value.waits else value

    def take(self, key: str) -> Node | None:
        """The same, and the key counts as known."""
        self.known.append(key)
        return self.peek(key)

    def fail(self, key: str, message: str) -> None:
        """A fault at the key's value, or at the section when there is no such key."""
        self.reading.problem(self.node.get(key) or self.node, f"{self.where(key)}: {message}")

    def text(self, key: str, rule: Rule | None = None, *, required: bool = False, default: str = "") -> str:
        """A scalar as it is written. Unquoted numbers and booleans are text here, as in the public format's reader."""
        value = self.take(key)
        if value is None:
            if required:
                self.missing(key)
            return default
        if not isinstance(value, Scalar):
            self.reading.problem(value, f"{self.where(key)}: must be text, not {_kind(value)}")
            return default
        if required and not value.text and not value.waits:
            self.reading.problem(value, f"{self.where(key)}: must not be empty")
            return default
        if value.text:
            self.reading.obey(value, rule, self.where(key))
        return value.text

    def key_node(self, key: str) -> Node:
        """Where the key itself stands."""
        entry = self.node.entries.get(key)
        return entry[0] if entry else self.node

    def missing(self, key: str) -> None:
        self.reading.problem(self.node, f"{self.where(key)}: is required")

    def flag(self, key: str) -> bool | None:
        """A boolean; `None` when it is absent."""
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, Scalar):
            if value.waits:
                return None
            if value.plain and value.text in _TRUE:
                return True
            if value.plain and value.text in _FALSE:
                return False
        self.reading.problem(value, f"{self.where(key)}: must be true or false")
        return None

    def number(self, key: str) -> float | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, Scalar):
            if value.waits:
                return None
            if isinstance(value.value, int | float) and not isinstance(value.value, bool):
                return float(value.value)
        self.reading.problem(value, f"{self.where(key)}: must be a number")
        return None

    def integer(self, key: str, *, least: int, most: int, required: bool = False) -> int | None:
        value = self.take(key)
        if value is None:
            if required:
                self.missing(key)
            return None
        if isinstance(value, Scalar):
            if value.waits:
                return None
            number = value.value
            if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
                return number
        self.reading.problem(value, f"{self.where(key)}: must be a whole number from {least} to {most}")
        return None

    def items(self, key: str) -> list[Node]:
        """The items of a list; empty when it is absent."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, Listing):
            self.reading.problem(value, f"{self.where(key)}: must be a list, not {_kind(value)}")
            return []
        return value.items

    def scalars(self, key: str, rule: Rule | None = None, *, unique: bool = False) -> list[Scalar]:
        """The items of a list of texts, with their places."""
        found: list[Scalar] = []
        seen: dict[str, Scalar] = {}
        for index, item in enumerate(self.items(key)):
            where = f"{self.where(key)}[{index}]"
            if not isinstance(item, Scalar):
                self.reading.problem(item, f"{where}: must be text, not {_kind(item)}")
                continue
            if unique and item.text in seen and not item.waits:
                self.reading.problem(
                    item, f"{where}: {item.text!r} is here twice; first at line {seen[item.text].line}"
                )
                continue
            seen[item.text] = item
            if self.reading.obey(item, rule, where):
                found.append(item)
        return found

    def texts(self, key: str, rule: Rule | None = None, *, unique: bool = False) -> tuple[str, ...]:
        return tuple(item.text for item in self.scalars(key, rule, unique=unique))

    def pairs(self, key: str, rule: Rule | None = None) -> list[tuple[str, Scalar, Scalar]]:
        """The entries of a mapping from names to texts: name, the key's node, the value's."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, yaml.Mapping):
            self.reading.problem(value, f"{self.where(key)}: must be a mapping, not {_kind(value)}")
            return []
        found = []
        for name, (key_node, item) in value.entries.items():
            if not isinstance(item, Scalar):
                self.reading.problem(item, f"{dotted((*self.steps, key, name))}: must be text, not {_kind(item)}")
            elif self.reading.obey(key_node, rule, self.where(key)):
                found.append((name, key_node, item))
        return found

    @contextmanager
    def section(self, key: str) -> Iterator[Section | None]:
        """A mapping below this one; `None` when it is absent. Its unknown keys are reported on leaving."""
        value = self.take(key)
        if value is None:
            yield None
            return
        if not isinstance(value, yaml.Mapping):
            self.reading.problem(value, f"{self.where(key)}: must be a mapping, not {_kind(value)}")
            yield None
            return
        inner = Section(self.reading, value, (*self.steps, key))
        yield inner
        inner.close()

    def sections(self, key: str) -> Iterator[Section]:
        """The mappings of a list; unknown keys of each are reported when the next is asked for."""
        for index, item in enumerate(self.items(key)):
            if not isinstance(item, yaml.Mapping):
                where = f"{self.where(key)}[{index}]"
                self.reading.problem(item, f"{where}: must be a mapping, not {_kind(item)}")
                continue
            inner = Section(self.reading, item, (*self.steps, key, index))
            yield inner
            inner.close()

    def named_sections(self, key: str) -> Iterator[tuple[Scalar, Section]]:
        """The mappings below a mapping of names, each with the node of its name."""
        value = self.take(key)
        if value is None:
            return
        if not isinstance(value, yaml.Mapping):
            self.reading.problem(value, f"{self.where(key)}: must be a mapping, not {_kind(value)}")
            return
        for name, (key_node, item) in value.entries.items():
            if isinstance(item, Scalar) and item.plain and item.value is None:
                item = yaml.Mapping(item.line, item.column, {})
            if not isinstance(item, yaml.Mapping):
                self.reading.problem(item, f"{dotted((*self.steps, key, name))}: must be a mapping, not {_kind(item)}")
                continue
            inner = Section(self.reading, item, (*self.steps, key, name))
            yield key_node, inner
            inner.close()

    def close(self) -> None:
        """Report the keys that nobody asked for."""
        for name, (key_node, _) in self.node.entries.items():
            if name in self.known:
                continue
            if name in self.elsewhere:
                self.reading.problem(key_node, f"{self.where(name)}: {self.elsewhere[name]}")
                continue
            error = unknown_key(name, self.known, self.reading.at(key_node), self.where())
            self.reading.problem(key_node, error.message)


def _kind(node: Node) -> str:
    if isinstance(node, Listing):
        return "a list"
    return "a mapping" if isinstance(node, yaml.Mapping) else "text"


def _position(problem: Problem) -> tuple[int, int]:
    parts = problem.place.rsplit(":", 2)
    return (
        (int(parts[1]), int(parts[2])) if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal() else (0, 0)
    )
