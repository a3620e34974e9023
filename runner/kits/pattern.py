"""Regular expressions as the public kit format means them: Go's, which is RE2's syntax, matched against a whole value.

Python's `re` is not used on them for two reasons. It reads some of them differently (`[[:alpha:]]`, `\\z`, `(?i)` in
the middle) and takes what the format refuses (look-around, backreferences). And both the pattern and the default that
it is tried on come from the kit, so a backtracking matcher would let a kit hang whoever looks at it. This one keeps a
set of states: its time grows with the length of the value and the size of the pattern, and has a bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

MAX_REPEAT = 1000
"""As RE2's."""
MAX_PROGRAM = 10_000
"""Instructions of a compiled pattern."""
MAX_STEPS = 3_000_000
"""Steps of one match, about two seconds."""
MAX_NESTING = 100

Test = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern is not of the syntax, or too large."""


@dataclass(frozen=True)
class Pattern:
    program: tuple[tuple[object, ...], ...]

    def matches(self, value: str) -> bool:
        """Whether the whole value matches.

        Raises:
            PatternError: it would take more than `MAX_STEPS`.
        """
        states = self._follow({0}, value, 0)
        steps = 0
        for position, character in enumerate(value):
            steps += len(states) + 1
            if steps > MAX_STEPS:
                raise PatternError("the pattern is too costly for this value")
            following = set()
            for state in states:
                instruction = self.program[state]
                if instruction[0] == "test":
                    test: Test = instruction[1]  # type: ignore[assignment]
                    if test(character):
                        following.add(state + 1)
            states = self._follow(following, value, position + 1)
            if not states:
                return False
        return any(self.program[state][0] == "end" for state in states)

    def _follow(self, states: set[int], value: str, position: int) -> set[int]:
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            instruction = self.program[state]
            if instruction[0] == "split":
                waiting.extend(instruction[1:])  # type: ignore[arg-type]
            elif instruction[0] == "at" and _holds(str(instruction[1]), value, position):
                waiting.append(state + 1)
        return found


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern.

    Raises:
        PatternError: with what is wrong.
    """
    parser = _Parser(text)
    node = parser.alternatives(0)
    if parser.rest():
        raise PatternError("unexpected ')'")
    program: list[tuple[object, ...]] = []
    _emit(node, program)
    program.append(("end",))
    return Pattern(tuple(program))


def _word(value: str, index: int) -> bool:
    return 0 <= index < len(value) and value[index].isascii() and (value[index].isalnum() or value[index] == "_")


def _holds(kind: str, value: str, position: int) -> bool:
    match kind:
        case "start":
            return position == 0
        case "end":
            return position == len(value)
        case "line-start":
            return position == 0 or value[position - 1] == "\n"
        case "line-end":
            return position == len(value) or value[position] == "\n"
        case "edge":
            return _word(value, position - 1) != _word(value, position)
        case _:
            return _word(value, position - 1) == _word(value, position)


# The tree: ("test", predicate), ("at", kind), ("all", [nodes]), ("any", [nodes]), ("repeat", node, least, most or None)
_Tree = tuple[object, ...]


def _emit(node: _Tree, program: list[tuple[object, ...]]) -> None:
    if len(program) > MAX_PROGRAM:
        raise PatternError("the pattern is too large")
    kind = node[0]
    if kind in ("test", "at"):
        program.append(node)
    elif kind == "all":
        for part in node[1]:  # type: ignore[attr-defined]
            _emit(part, program)
    elif kind == "any":
        branches: list[_Tree] = node[1]  # type: ignore[assignment]
        jumps = []
        for branch in branches[:-1]:
            fork = len(program)
            program.append(("split",))
            _emit(branch, program)
            jumps.append(len(program))
            program.append(("split",))
            program[fork] = ("split", fork + 1, len(program))
        _emit(branches[-1], program)
        for jump in jumps:
            program[jump] = ("split", len(program))
    else:
        _, inner, least, most = node
        assert isinstance(least, int)
        for _ in range(least):
            _emit(inner, program)  # type: ignore[arg-type]
        if most is None:
            fork = len(program)
            program.append(("split",))
            _emit(inner, program)  # type: ignore[arg-type]
            program.append(("split", fork))
            program[fork] = ("split", fork + 1, len(program))
            return
        assert isinstance(most, int)
        forks = []
        for _ in range(most - least):
            forks.append(len(program))
            program.append(("split",))
            _emit(inner, program)  # type: ignore[arg-type]
        for fork in forks:
            program[fork] = ("split", fork + 1, len(program))


@dataclass
class _Flags:
    fold: bool = False
    dot_all: bool = False
    lines: bool = False


_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in " \t",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": lambda c: "0" <= c <= "9",
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in " \t\n\v\f\r",
    "upper": lambda c: "A" <= c <= "Z",
    "word": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_PERL: dict[str, Test] = {"d": _POSIX["digit"], "w": _POSIX["word"], "s": lambda c: c in " \t\n\f\r"}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _negation(test: Test) -> Test:
    return lambda c: not test(c)


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.flags = _Flags()

    def rest(self) -> str:
        return self.text[self.position :]

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise PatternError("it ends too early")
        self.position += 1
        return character

    def skip(self, text: str) -> bool:
        if self.text.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def alternatives(self, depth: int) -> _Tree:
        if depth > MAX_NESTING:
            raise PatternError("it is nested too deeply")
        branches = [self.sequence(depth)]
        while self.skip("|"):
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else ("any", branches)

    def sequence(self, depth: int) -> _Tree:
        parts: list[_Tree] = []
        while self.peek() not in ("", "|", ")"):
            if self.skip("\\Q"):
                quoted, _, _ = self.rest().partition("\\E")
                self.position += len(quoted)
                self.skip("\\E")
                # a repetition after it repeats its last character
                parts += [("test", self.literal(c)) for c in quoted[:-1]]
                if quoted:
                    parts.append(self.repeated(("test", self.literal(quoted[-1]))))
                continue
            atom = self.atom(depth)
            if atom is not None:
                parts.append(self.repeated(atom))
        return ("all", parts)

    def repeated(self, atom: _Tree) -> _Tree:
        repeats = 0
        while True:
            start = self.position
            if self.skip("*"):
                bounds: tuple[int, int | None] | None = (0, None)
            elif self.skip("+"):
                bounds = (1, None)
            elif self.skip("?"):
                bounds = (0, 1)
            else:
                bounds = self.counted()
            if bounds is None:
                self.position = start
                return atom
            repeats += 1
            if repeats > 1:
                raise PatternError("a repetition repeats a repetition")
            self.skip("?")
            atom = ("repeat", atom, *bounds)

    def counted(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}` or `{n,m}`; anything else after a brace is plain text, as in RE2."""
        if not self.skip("{"):
            return None
        inside, brace, _ = self.rest().partition("}")
        first, comma, last = inside.partition(",")
        if not brace or not first.isdecimal() or (last and not last.isdecimal()):
            return None
        self.position += len(inside) + 1
        least = int(first)
        most = int(last) if last else None if comma else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise PatternError(f"the repetition {{{inside}}} is not valid")
        return least, most

    def atom(self, depth: int) -> _Tree | None:
        character = self.take()
        match character:
            case "(":
                return self.group(depth)
            case "[":
                return ("test", self.bracket())
            case ".":
                return ("test", (lambda c: True) if self.flags.dot_all else (lambda c: c != "\n"))
            case "^":
                return ("at", "line-start" if self.flags.lines else "start")
            case "$":
                return ("at", "line-end" if self.flags.lines else "end")
            case "*" | "+" | "?":
                raise PatternError(f"nothing to repeat before {character!r}")
            case "\\":
                return self.escape()
            case _:
                return ("test", self.literal(character))

    def literal(self, character: str) -> Test:
        if self.flags.fold:
            folded = character.casefold()
            return lambda c: c.casefold() == folded
        return lambda c: c == character

    def group(self, depth: int) -> _Tree | None:
        outer = _Flags(self.flags.fold, self.flags.dot_all, self.flags.lines)
        if self.skip("?"):
            if self.skip("P<") or (self.peek() == "<" and self.rest()[1:2] not in ("=", "!") and self.skip("<")):
                name, closed, _ = self.rest().partition(">")
                if not closed or not name.isidentifier():
                    raise PatternError("a group's name is not valid")
                self.position += len(name) + 1
            elif self.peek() in ("=", "!", "<", ">", "#", "P"):
                raise PatternError("look-around and other (?…) extensions are not of this syntax")
            elif self.set_flags():
                return None
        node = self.alternatives(depth + 1)
        if not self.skip(")"):
            raise PatternError("a '(' is not closed")
        self.flags = outer
        return node

    def set_flags(self) -> bool:
        """Read `(?flags)` (true: it lasts to the end of the surrounding group) or `(?flags:`."""
        value = True
        while True:
            match self.take():
                case "i":
                    self.flags.fold = value
                case "s":
                    self.flags.dot_all = value
                case "m":
                    self.flags.lines = value
                case "U":
                    pass  # greed decides what a group holds, never whether the whole matches
                case "-":
                    value = False
                case ":":
                    return False
                case ")":
                    return True
                case other:
                    raise PatternError(f"unknown flag {other!r}")

    def escape(self) -> _Tree:
        character = self.take()
        match character:
            case "A":
                return ("at", "start")
            case "z":
                return ("at", "end")
            case "b":
                return ("at", "edge")
            case "B":
                return ("at", "no-edge")
        test = self.class_escape(character)
        return ("test", test or self.literal(self.escaped_character(character)))

    def class_escape(self, character: str) -> Test | None:
        """`\\d`, `\\W`, `\\pL`, `\\P{Lu}`, …"""
        lower = character.lower()
        if lower in _PERL:
            test = _PERL[lower]
        elif lower == "p":
            name = self.take()
            negated = False
            if name == "{":
                name, closed, _ = self.rest().partition("}")
                if not closed:
                    raise PatternError("a '{' is not closed")
                self.position += len(name) + 1
                negated, name = name.startswith("^"), name.removeprefix("^")
            if len(name) > 2 or name[:1] not in ("C", "L", "M", "N", "P", "S", "Z"):
                raise PatternError(f"unknown class \\p{{{name}}}")
            inner: Test = lambda c: unicodedata.category(c).startswith(name)  # noqa: E731
            test = (lambda c: not inner(c)) if negated else inner
        else:
            return None
        return (lambda c: not test(c)) if character.isupper() else test

    def escaped_character(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            if self.skip("{"):
                digits, closed, _ = self.rest().partition("}")
                self.position += len(digits) + 1
                valid = bool(closed) and 0 < len(digits) <= 6
            else:
                digits = self.text[self.position : self.position + 2]
                self.position += 2
                valid = len(digits) == 2
            try:
                return chr(int(digits, 16)) if valid else chr(-1)
            except (ValueError, OverflowError):
                raise PatternError("a \\x escape is not valid") from None
        if character in "01234567":
            octal = character
            while len(octal) < 3 and self.peek() and self.peek() in "01234567":
                octal += self.take()
            if octal[0] != "0" and len(octal) < 3:
                raise PatternError("backreferences are not of this syntax")
            return chr(int(octal, 8))
        if character.isascii() and not character.isalnum():
            return character
        raise PatternError(f"unknown escape \\{character}")

    def bracket(self) -> Test:
        negated = self.skip("^")
        tests: list[Test] = []
        first = True
        while first or self.peek() != "]":
            first = False
            if self.skip("[:"):
                name, closed, _ = self.rest().partition(":]")
                inverted, name = name.startswith("^"), name.removeprefix("^")
                if not closed or name not in _POSIX:
                    raise PatternError(f"unknown class [:{name[:20]}:]")
                self.position += len(name) + inverted + 2
                tests.append(_negation(_POSIX[name]) if inverted else _POSIX[name])
                continue
            low = self.take()
            if low == "\\":
                low = self.take()
                if test := self.class_escape(low):
                    tests.append(test)
                    continue
                low = self.escaped_character(low)
            high = low
            if self.peek() == "-" and self.rest()[1:2] not in ("]", ""):
                self.take()
                high = self.take()
                if high == "\\":
                    high = self.escaped_character(self.take())
                if high < low:
                    raise PatternError(f"the range {low}-{high} runs backwards")
            tests.append(self.range_test(low, high))
        self.take()
        found = tuple(tests)
        return (lambda c: not any(t(c) for t in found)) if negated else (lambda c: any(t(c) for t in found))

    def range_test(self, low: str, high: str) -> Test:
        if self.flags.fold:
            return lambda c: any(low <= form <= high for form in (c, c.lower(), c.upper()))
        return lambda c: low <= c <= high
