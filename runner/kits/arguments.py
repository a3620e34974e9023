"""A kit's arguments: declared under `args`, used as `${{ kit.args.NAME }}` in the spec and under `files/`.

The public format fills arguments in before the YAML is read, so an argument may stand for any value, and quoting
decides its type. Done on the text, a value with a line break in it could add keys to the spec. So here the text is
parsed with each use replaced by private characters of the same length, and the values go into the parsed scalars: the
same meaning, and no value can become structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import ConfigError, UsageError
from runner.kits import document as yaml
from runner.kits import rules
from runner.kits.document import Listing, Node, Scalar, load_mapping, nearest, printable, read_text, scalar_value
from runner.kits.section import Reading

USE = re.compile(r"\$\{\{[ \t]*kit\.args\.([^\s{}]*)[ \t]*\}\}")
MARK = "kit.args."
MAX_VALUE = 64 * 1024
"""Longest value of an argument, in characters."""

_OPEN, _FILL = "\uf8e0", "\uf8e1"
_FIRST = 0xE000
_PROTECTED = re.compile(f"{_OPEN}([\ue000-\uf0ff]){_FILL}*")
_MAX_USES = 0xF0FF - _FIRST


@dataclass(frozen=True)
class Argument:
    """One entry of `args`."""

    name: str
    default: str | None = None
    """`None`: the user must give a value."""
    description: str = ""
    enum: tuple[str, ...] = ()
    pattern: str = ""
    place: str = ""

    def fault(self, value: str) -> str:
        """What is wrong with a value; empty when it is fine."""
        if len(value) > MAX_VALUE:
            return f"is longer than {MAX_VALUE:,} characters"
        if self.enum and value not in self.enum:
            return f"{value!r} is not one of {', '.join(repr(e) for e in self.enum)}"
        if self.pattern:
            from runner.kits.pattern import PatternError, compile_pattern

            try:
                matches = compile_pattern(self.pattern).matches(value)
            except PatternError as error:
                return f"cannot be held against the pattern {self.pattern!r}: {error}"
            if not matches:
                return f"{value!r} does not match the pattern {self.pattern!r}"
        return ""


def protect(text: str, path: Path) -> tuple[str, list[str]]:
    """The text with every use of an argument replaced by as many private characters, and the names used, in order."""
    if MARK not in text or not USE.search(text):
        return text, []
    if _OPEN in text or _FILL in text:
        raise ConfigError("holds U+F8E0 or U+F8E1, which stand for arguments while a spec is read", place=str(path))
    names: list[str] = []

    def hide(match: re.Match[str]) -> str:
        if len(names) >= _MAX_USES:
            raise ConfigError(f"uses arguments more than {_MAX_USES:,} times", place=str(path))
        names.append(match[1])
        return _OPEN + chr(_FIRST + len(names) - 1) + _FILL * (len(match[0]) - 2)

    return USE.sub(hide, text), names


def read_arguments(reading: Reading) -> dict[str, Argument]:
    """The `args` block, checked."""
    found: dict[str, Argument] = {}
    root = reading.root()
    for name, section in root.named_sections("args"):
        reading.obey(name, rules.argument_name, "args")
        default = section.text("default") if section.node.get("default") is not None else None
        required = section.flag("required")
        description = section.text("description")
        enum = section.texts("enum", unique=True)
        pattern = section.text("pattern", _pattern_rule)
        if default is not None and required:
            section.fail("required", "an argument with a default is never required")
        if default is None and not required:
            reading.problem(name, f"args.{name.text}: needs either a default or required: true")
        if "enum" in section and not enum:
            section.fail("enum", "must not be empty")
        if enum and pattern:
            section.fail("pattern", "enum and pattern exclude each other")
        argument = Argument(name.text, default, description, enum, pattern, reading.at(name))
        found[name.text] = argument
        sound = not (enum and pattern) and not _pattern_rule(pattern)
        if default is not None and sound and (fault := argument.fault(default)):
            section.fail("default", fault)
        for key, value in section.node.entries.values():
            for scalar in (key, *_scalars(value)):
                if _OPEN in scalar.text:
                    reading.problem(scalar, f"{section.where()}: an argument cannot be used inside 'args'")
    return found


def resolve(declared: Mapping[str, Argument], given: Mapping[str, str]) -> dict[str, str]:
    """The value of each declared argument that has one.

    Args:
        given: values by name; all of them are declared.

    Raises:
        UsageError: a value breaks its argument's enum or pattern.
    """
    values: dict[str, str] = {}
    for name, argument in declared.items():
        if name in given:
            if fault := argument.fault(given[name]):
                raise UsageError(
                    f"argument {name}: {fault}", place=argument.place, hint=printable(argument.description) or None
                )
            values[name] = given[name]
        elif argument.default is not None:
            values[name] = argument.default
    return values


def fill(reading: Reading, names: Sequence[str], declared: Mapping[str, Argument], values: Mapping[str, str]) -> None:
    """Put the values into the parsed document. A use without a value stays, marked as waiting."""
    if not names:
        return
    seen: set[int] = set()

    def scalar(node: Scalar) -> None:
        if id(node) in seen or _OPEN not in node.text:
            return
        seen.add(id(node))

        def replace(match: re.Match[str]) -> str:
            name = names[ord(match[1]) - _FIRST]
            if name not in declared:
                near = nearest(name, declared)
                hint = f"; did you mean {near!r}?" if near else ""
                reading.problem(node, f"the argument {name!r} is not declared under 'args'{hint}")
            if name not in values:
                node.waits = True
                return f"${{{{ kit.args.{name} }}}}"
            return values[name]

        node.text = _PROTECTED.sub(replace, node.text)
        node.value = node.text if node.waits or not node.plain else scalar_value(node.text) if node.text else None

    def visit(node: Node) -> None:
        if isinstance(node, Scalar):
            scalar(node)
        elif id(node) in seen:
            return
        elif isinstance(node, Listing):
            seen.add(id(node))
            for item in node.items:
                visit(item)
        elif isinstance(node, yaml.Mapping):
            seen.add(id(node))
            entries: dict[str, tuple[Scalar, Node]] = {}
            for key, value in node.entries.values():
                scalar(key)
                visit(value)
                if key.text in entries:
                    reading.problem(key, f"the key {key.text!r} is here twice once arguments are filled in")
                entries[key.text] = (key, value)
            node.entries = entries

    visit(reading.document.root)


def fill_text(text: str, values: Mapping[str, str], unknown: Callable[[str], None]) -> str:
    """A text of `files/` with its arguments filled in; `unknown` is told of uses without a value, which stay."""

    def replace(match: re.Match[str]) -> str:
        if match[1] in values:
            return values[match[1]]
        unknown(match[1])
        return match[0]

    return USE.sub(replace, text) if MARK in text else text


@dataclass
class GivenArguments:
    """The values of the command line: `[kit.]name` → value.

    A value without a kit goes to the one kit of the composition that declares the name.
    """

    values: dict[tuple[str, str], str] = field(default_factory=dict)
    """By kit (empty: not said) and name."""
    _takers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _declared: set[tuple[str, str]] = field(default_factory=set)

    def for_kit(self, kit: str, declared: Iterable[str]) -> dict[str, str]:
        """The values for a kit, remembering that it took them."""
        chosen = {}
        for name in declared:
            self._declared.add((kit, name))
            for key in (("", name), (kit, name)):
                if key in self.values:
                    self._takers.setdefault(key, []).append(kit)
                    chosen[name] = self.values[key]
        return chosen

    def check_all_used(self) -> None:
        """Raise `UsageError` when a value went nowhere, or one without a kit went to several."""
        for kit, name in self.values:
            shown = f"{kit}.{name}" if kit else name
            takers = self._takers.get((kit, name), [])
            if not takers:
                known = [f"{k}.{n}" for k, n in sorted(self._declared)]
                near = nearest(shown, known) or nearest(name, [n for _, n in self._declared])
                hint = f"declared: {', '.join(known)}" if known else "no kit here declares an argument"
                suffix = f"; did you mean {near!r}?" if near else ""
                raise UsageError(f"no kit declares the argument {shown!r}{suffix}", hint=hint)
            if not kit and len(takers) > 1:
                ways = " or ".join(f"{taker}.{name}" for taker in takers)
                raise UsageError(f"several kits declare the argument {name!r}; say {ways}")


def parse_kit_arguments(settings: Iterable[str] = (), file: Path | None = None) -> GivenArguments:
    """Values from `--kit-arg [kit.]name=value` and from a file; the command line wins.

    Args:
        file: YAML (`.yaml`, `.yml`, `.json`) with `name: value`, `kit.name: value` or `kit: {name: value}`; any other
            file holds `[kit.]name=value` lines, and lines that start with `#`.

    Raises:
        UsageError: a setting has no `=`, or a bad name; ConfigError: the file does.
    """
    given = GivenArguments()
    from_file = {} if file is None else _file_values(file)
    typed: dict[tuple[str, str], str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--kit-arg {setting!r} has no '='", hint="say --kit-arg [kit.]name=value")
        if fault := _key_fault(key):
            raise UsageError(f"--kit-arg {setting!r}: {fault}")
        typed[_split_key(key)] = value
    # A value for one kit is stronger than one without a kit; so what is typed without a kit takes the file's out.
    given.values.update({key: value for key, value in from_file.items() if ("", key[1]) not in typed})
    given.values.update(typed)
    return given


def kit_arguments(settings: Iterable[str], file: Path | None) -> list[str]:
    """The values of both as one list of settings. Raises as `parse_kit_arguments`."""
    found = parse_kit_arguments(settings, file).values
    return [f"{kit}.{name}={value}" if kit else f"{name}={value}" for (kit, name), value in found.items()]


def _file_values(file: Path) -> dict[tuple[str, str], str]:
    values: dict[tuple[str, str], str] = {}
    if file.suffix not in (".yaml", ".yml", ".json"):
        for number, line in enumerate(read_text(file).splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            key, equals, value = line.strip().partition("=")
            if not equals:
                raise ConfigError("has no '='; a line is [kit.]name=value", place=f"{file}:{number}:1")
            if fault := _key_fault(key.strip()):
                raise ConfigError(fault, place=f"{file}:{number}:1")
            values[_split_key(key.strip())] = value
        return values
    document = load_mapping(file)

    def take(kit: str, key: Scalar, node: Node) -> None:
        name = f"{kit}.{key.text}" if kit else key.text
        if isinstance(node, yaml.Mapping) and not kit:
            for inner_key, inner in node.entries.values():
                take(key.text, inner_key, inner)
            return
        if not isinstance(node, Scalar):
            raise ConfigError(f"the value of {name} must be text", place=document.at(node))
        if fault := _key_fault(name):
            raise ConfigError(fault, place=document.at(key))
        values[_split_key(name)] = node.text

    for key_node, value_node in document.root.entries.values():
        take("", key_node, value_node)
    return values


def _split_key(key: str) -> tuple[str, str]:
    kit, dot, name = key.rpartition(".")
    return (kit, name) if dot else ("", key)


def _key_fault(key: str) -> str:
    kit, name = _split_key(key)
    return (kit and rules.kit_name(kit)) or rules.argument_name(name)


def _pattern_rule(value: str) -> str:
    from runner.kits.pattern import PatternError, compile_pattern

    try:
        compile_pattern(value)
    except PatternError as error:
        return f"the pattern {value!r} is not a regular expression: {error}"
    return ""


def _scalars(node: Node) -> Iterable[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Listing):
        for item in node.items:
            yield from _scalars(item)
    elif isinstance(node, yaml.Mapping):
        for key, value in node.entries.values():
            yield key
            yield from _scalars(value)
