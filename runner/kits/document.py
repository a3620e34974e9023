"""One YAML file read with care: what it says, and the line and column of every part of it.

Two things decide how this is done. A YAML file may come from anybody, so everything that makes a parser slow, or makes
two readers see two documents, is refused: duplicate keys, anchors that expand without end or hold themselves,
foreign tags, a second document, other encodings than UTF-8. And a plain scalar's type depends on the reader: YAML 1.1
turns `on`, `0644` and `12:30` into a boolean, an octal and a sexagesimal number; the public kit format's own reader
does not. So a scalar keeps its text, and only the core schema's few forms (null, true and false, decimal, hex and
`0o` numbers) get another type.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1024 * 1024
"""Largest file that is read, in bytes. The largest public kit known has 40 KB."""
MAX_NODES = 50_000
"""Most parts of a document, every use of an alias counted."""
MAX_DEPTH = 60
"""Deepest nesting."""

MAX_STEP = 80
"""Characters of a key that a message shows."""

Step = str | int
"""A key of a mapping, or an index into a list."""
Scalars = str | int | float | bool | None


@dataclass(slots=True, eq=False)
class Node:
    """A part of the document. `line` and `column` count from 1."""

    line: int
    column: int


@dataclass(slots=True, eq=False)
class Scalar(Node):
    text: str
    """As written, quotes and folding removed."""
    plain: bool
    """Written without quotes, so `value` may be of another type than text."""
    value: Scalars = ""
    waits: bool = False
    """Holds the place of an argument that has no value yet (`runner.kits.arguments`)."""


@dataclass(slots=True, eq=False)
class Listing(Node):
    items: list[Node]


@dataclass(slots=True, eq=False)
class Mapping(Node):
    entries: dict[str, tuple[Scalar, Node]]
    """Key → the key's own node and the value's."""

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry[1] if entry else None


@dataclass(frozen=True)
class Document:
    """A file's content and where each part of it stands.

    Give `place` a path of keys and indexes, such as pydantic's `loc`, and it names the spot:
    `document.place(("hooks", "preToolCall", 0, "command"))`.
    """

    path: Path
    root: Mapping
    text: str

    @cached_property
    def data(self) -> dict[str, Any]:
        """The content as plain dictionaries, lists and scalars."""
        plain = plain_data(self.root)
        assert isinstance(plain, dict)
        return plain

    def at(self, node: Node | None) -> str:
        """`FILE:LINE:COLUMN` of a node."""
        return f"{self.path}:{node.line}:{node.column}" if node else str(self.path)

    def find(self, steps: Iterable[Step]) -> tuple[Node | None, Node]:
        """Follow keys and indexes as far as they exist.

        Returns:
            The last key passed (`None` in a list or at the root), and the deepest node reached.
        """
        key: Node | None = None
        node: Node = self.root
        for step in steps:
            if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
                key, node = node.entries[step]
            elif isinstance(node, Listing) and isinstance(step, int) and 0 <= step < len(node.items):
                key, node = None, node.items[step]
            else:
                # pydantic puts names of union members into `loc`; what follows them may still exist
                continue
        return key, node

    def place(self, steps: Iterable[Step]) -> str:
        """`FILE:LINE:COLUMN` of the value that `steps` lead to, or of the nearest that exists."""
        return self.at(self.find(steps)[1])

    def key_place(self, steps: Iterable[Step]) -> str:
        """`FILE:LINE:COLUMN` of the last key of `steps`; of the item, when the last step is an index."""
        key, node = self.find(steps)
        return self.at(key or node)

    def error(
        self, message: str, steps: Iterable[Step] = (), *, key: bool = False, hint: str | None = None
    ) -> ConfigError:
        """A `ConfigError` at the value (or with `key`, at the key) that `steps` lead to."""
        return ConfigError(message, place=self.key_place(steps) if key else self.place(steps), hint=hint)

    def check_keys(self, known: Iterable[str], steps: Sequence[Step] = ()) -> None:
        """Raise `ConfigError` for the first key of the mapping at `steps` that is not `known`, naming the nearest."""
        node = self.find(steps)[1]
        if isinstance(node, Mapping):
            known = tuple(known)
            for name, (key, _) in node.entries.items():
                if name not in known:
                    raise unknown_key(name, known, self.at(key), dotted(steps))


def load_mapping(path: Path | str, *, limit: int = MAX_BYTES, source: str | None = None) -> Document:
    """Read the YAML file at `path`, whose top level must be a mapping.

    Args:
        path: a regular file; it may be a link to one.
        limit: most bytes that are read; a larger file is refused unread.
        source: the text, when the caller has it already; `path` then only names it in errors.

    Raises:
        ConfigError: the file is not there, too large, not UTF-8, not YAML, or breaks a rule of this module.
            Its place is `FILE:LINE:COLUMN` where there is one.
    """
    path = Path(path)
    text = read_text(path, limit=limit) if source is None else source
    return Document(path, _Reading(path, text).root(), text)


def load_list(path: Path, *, limit: int = MAX_BYTES, source: str | None = None) -> list[Node]:
    """Read the YAML file at `path`, whose top level must be a list. The rest is as in `load_mapping`."""
    reading = _Reading(path, read_text(path, limit=limit) if source is None else source)
    top = reading.top()
    if not isinstance(top, Listing):
        raise ConfigError("must be a list at its top level", place=f"{path}:{top.line}:{top.column}")
    return top.items


def read_text(path: Path, *, limit: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file of at most `limit` bytes, without a byte order mark.

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """
    try:
        # O_NONBLOCK: a FIFO in the place of a file must not make us wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError("no such file", place=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {os.strerror(error.errno or 0)}", place=str(path)) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ConfigError("is not a regular file", place=str(path))
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise _too_large(path, status.st_size, limit)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, len(data), limit)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data[:4].count(0) >= 2:
        raise ConfigError("is UTF-16 or UTF-32; only UTF-8 is read", place=f"{path}:1:1", hint="save it as UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"is not text: byte 0x{data[error.start]:02x} is not UTF-8", place=_place(path, data[: error.start])
        ) from None
    if "\0" in text:
        raise ConfigError("is not text: it holds a NUL byte", place=_place(path, data[: data.index(0)]))
    return text.removeprefix("\ufeff")


def plain_data(node: Node) -> Any:
    """A node as plain dictionaries, lists and scalars."""
    if isinstance(node, Mapping):
        return {name: plain_data(value) for name, (_, value) in node.entries.items()}
    if isinstance(node, Listing):
        return [plain_data(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def scalar_value(text: str) -> Scalars:
    """What a plain scalar means in YAML's core schema."""
    if not text or text[0] not in _TYPED_STARTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    if text[:2] in ("0x", "0o"):
        return int(text, 0)
    if text.lstrip("+-").isdecimal():
        # longer ones would run into Python's own limit on converting digits
        return int(text) if len(text) <= 40 else text
    return float(
        text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").lower().replace(".nan", "nan")
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    folded = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def unknown_key(name: str, known: Iterable[str], place: str, where: str = "") -> ConfigError:
    """The error for a key that a grammar does not have."""
    known = tuple(known)
    name = printable(name, MAX_STEP)
    inside = f" in {where}" if where else ""
    if near := nearest(name, known):
        return ConfigError(f"unknown key {name!r}{inside}; did you mean {near!r}?", place=place)
    listed = ", ".join(sorted(known)) or "none"
    return ConfigError(f"unknown key {name!r}{inside}; known keys: {listed}", place=place)


def dotted(steps: Iterable[Step]) -> str:
    """`("setup", "install", 0)` as `setup.install[0]`."""
    text = ""
    for step in steps:
        shown = printable(str(step), MAX_STEP)
        text += f"[{shown}]" if isinstance(step, int) else f".{shown}" if text else shown
    return text


def printable(text: str, limit: int = 400) -> str:
    """A text from a file for a message: cut in the middle, and without what a terminal would obey."""
    if len(text) > limit:
        text = f"{text[: limit // 2]} … {text[-limit // 2 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_WORDS: dict[str, Scalars] = {
    **dict.fromkeys(("null", "Null", "NULL", "~"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TYPED_STARTS = frozenset("nN~tTfF+-.0123456789")
_NUMBER = re.compile(
    r"[-+]?[0-9]+|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,16}"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_STR = "tag:yaml.org,2002:str"
_PLAIN = "plain"
_TAGS = {
    f"tag:yaml.org,2002:{name}": name
    for name in ("str", "int", "float", "bool", "null", "seq", "map", "binary", "timestamp")
}


def _place(path: Path, before: bytes) -> str:
    line_start = before.rfind(b"\n") + 1
    return f"{path}:{before.count(10) + 1}:{len(before[line_start:].decode(errors='replace')) + 1}"


def _too_large(path: Path, size: int, limit: int) -> ConfigError:
    return ConfigError(f"is too large: {size:,} bytes, at most {limit:,} are read", place=str(path))


class _Reading:
    """The reading of one document."""

    def __init__(self, path: Path, text: str):
        self.path = path
        self.text = text
        self.done: dict[int, tuple[Node, int]] = {}
        """By id of the parser's node: ours, and how many nodes it expands to."""
        self.open: set[int] = set()

    def root(self) -> Mapping:
        root = self.top()
        if not isinstance(root, Mapping):
            kind = "a list" if isinstance(root, Listing) else "a scalar"
            place = f"{self.path}:{root.line}:{root.column}"
            raise ConfigError(f"must be a mapping of keys at its top level, not {kind}", place=place)
        return root

    def top(self) -> Node:
        node = self._compose()
        if node is None:
            raise ConfigError("is empty", place=f"{self.path}:1:1")
        return self._convert(node, 0)[0]

    def _compose(self) -> yaml.Node | None:
        import yaml

        try:
            node: yaml.Node | None = _parser()(self.text).get_single_node()
            return node
        except yaml.reader.ReaderError as error:
            character = error.character if isinstance(error.character, str) else chr(error.character)
            where = self.text.find(character)
            message = f"holds the control character U+{ord(character):04X}"
            raise ConfigError(message, place=_place(self.path, self.text[: max(where, 0)].encode())) from None
        except yaml.MarkedYAMLError as error:
            raise self._syntax_error(error) from None
        except RecursionError:
            raise ConfigError(f"is nested deeper than {MAX_DEPTH} levels", place=str(self.path)) from None

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> ConfigError:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem or error.context or "cannot be parsed")
        if mark is None:
            return ConfigError(f"is not YAML: {problem}", place=str(self.path))
        lines = self.text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        place = f"{self.path}:{mark.line + 1}:{mark.column + 1}"
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent and mark.column <= len(indent):
            column = indent.index("\t") + 1
            return ConfigError(
                "a tab indents this line; YAML allows only spaces", place=f"{self.path}:{mark.line + 1}:{column}"
            )
        if "expected a single document" in str(error.context):
            return ConfigError("holds a second document; only one is read", place=place)
        if "undefined alias" in problem:
            return ConfigError(f"is not YAML: {problem}", place=place)
        if error.context and error.problem:
            problem = f"{error.context}, {problem}"
        return ConfigError(f"is not YAML: {problem}", place=place)

    def _convert(self, node: yaml.Node, depth: int) -> tuple[Node, int]:
        """Our node for the parser's, and how many nodes it counts for."""
        if node.id == "scalar":  # type: ignore[attr-defined]
            mark = node.start_mark
            return self._scalar(node, mark.line + 1, mark.column + 1), 1
        identity = id(node)
        if identity in self.done:
            found, count = self.done[identity]
            return found, count
        if identity in self.open:
            raise ConfigError("an anchor holds itself", place=self._at(node))
        if depth > MAX_DEPTH:
            raise ConfigError(f"is nested deeper than {MAX_DEPTH} levels", place=self._at(node))
        self.open.add(identity)
        mark = node.start_mark
        line, column = mark.line + 1, mark.column + 1
        count = 1
        ours: Node
        if node.id == "sequence":  # type: ignore[attr-defined]
            self._check_tag(node, "seq")
            items = []
            for item in node.value:
                child, size = self._convert(item, depth + 1)
                items.append(child)
                count += size
            ours = Listing(line, column, items)
        else:
            self._check_tag(node, "map")
            entries: dict[str, tuple[Scalar, Node]] = {}
            merged: list[tuple[yaml.Node, Node]] = []
            for key_node, value_node in node.value:
                key, _ = self._convert(key_node, depth + 1)
                value, size = self._convert(value_node, depth + 1)
                count += size + 1
                if not isinstance(key, Scalar):
                    raise ConfigError("a key must be text", place=self._at(key_node))
                if key.plain and key.text == "<<":
                    merged.append((value_node, value))
                    continue
                if key.text in entries:
                    first = entries[key.text][0]
                    raise ConfigError(
                        f"the key {key.text!r} is here twice; first at line {first.line}", place=self._at(key_node)
                    )
                entries[key.text] = (key, value)
            for value_node, value in merged:
                for mapping in self._merge_sources(value_node, value):
                    for name, entry in mapping.entries.items():
                        entries.setdefault(name, entry)
            ours = Mapping(line, column, entries)
        if count > MAX_NODES:
            raise ConfigError(
                f"expands to more than {MAX_NODES:,} parts; anchors may be the cause", place=self._at(node)
            )
        self.open.discard(identity)
        self.done[identity] = (ours, count)
        return ours, count

    def _merge_sources(self, node: yaml.Node, value: Node) -> Iterator[Mapping]:
        candidates = value.items if isinstance(value, Listing) else [value]
        for candidate in candidates:
            if not isinstance(candidate, Mapping):
                raise ConfigError("'<<' takes a mapping, or a list of mappings", place=self._at(node))
            yield candidate

    def _scalar(self, node: yaml.Node, line: int, column: int) -> Scalar:
        text = node.value
        if node.tag == _PLAIN:
            return Scalar(line, column, text, True, scalar_value(text) if text else None)
        if node.tag == _STR:
            return Scalar(line, column, text, False, text)
        kind = _TAGS.get(node.tag)
        if kind is None or kind in ("binary", "timestamp", "seq", "map"):
            raise ConfigError(f"the tag {_shown_tag(node.tag)} is not read", place=self._at(node))
        value = scalar_value(text) if text else None
        wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind in ("int", "float")):  # type: ignore[arg-type]
            raise ConfigError(f"{text!r} is not a value for the tag !!{kind}", place=self._at(node))
        return Scalar(line, column, text, True, value)

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if _TAGS.get(node.tag) != kind:
            raise ConfigError(f"the tag {_shown_tag(node.tag)} is not read", place=self._at(node))

    def _at(self, node: yaml.Node) -> str:
        return f"{self.path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _shown_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


@cache
def _parser() -> Any:
    """The parser class: libyaml's where PyYAML was built with it, ten times as quick as PyYAML's own."""
    import yaml

    class Resolver:
        """Only tells whether a scalar was plain; its type is settled by `scalar_value`."""

        def resolve(self, kind: object, value: str | None, implicit: Any) -> str:
            if kind is yaml.ScalarNode:
                return _PLAIN if implicit[0] else _STR
            return "tag:yaml.org,2002:seq" if kind is yaml.SequenceNode else "tag:yaml.org,2002:map"

        def descend_resolver(self, *_: object) -> None: ...

        def ascend_resolver(self) -> None: ...

    if yaml.__with_libyaml__:
        from yaml import cyaml

        c_parser: Any = vars(cyaml)["CParser"]
        return type("Parser", (c_parser, Resolver), {})

    class Parser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, Resolver):
        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)

    return Parser
