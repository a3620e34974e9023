"""Shell commands as a tree: the grammar by `bashlex`, a parser ported from bash's own, the words by this module.

`bashlex` alone is not enough for a guard. It drops what stands between two quoted parts (`'a'$(rm -rf x)'b'` is one
literal to it), does not look into `${x:-$(…)}`, and gives up on `case`, `time`, `[[`, `$((…))` and `<<'EOF'`. So it
is asked for the structure only, its three gaps there are closed, and words are taken apart here: into text that is
known before the command runs, text that is not, and the commands in substitutions.
"""

import os
import re
import sys

try:
    import bashlex
except ImportError:  # in a sandbox it lies beside the program's other libraries
    _HERE = os.path.dirname(os.path.realpath(__file__))
    sys.path += [os.path.join(os.path.dirname(_HERE), folder) for folder in ("lib", "vendor", "site-packages")]
    import bashlex  # noqa: F401

from bashlex import ast, heredoc, parser, tokenizer

MOST_VARIABLES = 50
"""Variables of a script whose values are followed; with more of them, none is."""

UNKNOWN = "\0"
"""Stands in a word for text that is only known when the command runs."""


class CannotParse(Exception):
    """The text is no shell command that can be understood here."""


class Word:
    """One word: `text` with quotes removed and `UNKNOWN` for what is not known; `scripts` are the texts of its
    substitutions; `split` tells that an unquoted expansion may make several words of it."""

    def __init__(self, raw, variables=None):
        self.raw = raw
        self.scripts = []
        self.split = False
        self.text = ""
        self._variables = variables or {}
        self._scan(raw, 0, len(raw), quoted=False)

    @property
    def known(self):
        return UNKNOWN not in self.text

    def _scan(self, raw, at, end, *, quoted):
        # `quoted`: between double quotes, where only $ ` and \ mean something.
        while at < end:
            char = raw[at]
            if char == "\\":
                following = raw[at + 1 : at + 2]
                if following == "\n":
                    pass
                elif quoted and following not in '$`"\\':
                    self.text += "\\" + following
                else:
                    self.text += following
                at += 2
            elif char == "'" and not quoted:
                close = raw.find("'", at + 1)
                close = end if close < 0 else close
                self.text += raw[at + 1 : close]
                at = close + 1
            elif char == '"' and not quoted:
                close = _double_quote_end(raw, at + 1)
                self._scan(raw, at + 1, close, quoted=True)
                at = close + 1
            elif char == "$":
                at = self._dollar(raw, at, quoted)
            elif char == "`":
                close = _backquote_end(raw, at + 1)
                self.scripts.append(re.sub(r"\\([$`\\])", r"\1", raw[at + 1 : close]))
                self._unknown(quoted)
                at = close + 1
            elif char in "<>" and raw[at + 1 : at + 2] == "(" and not quoted:
                close = _parenthesis_end(raw, at + 2)
                self.scripts.append(raw[at + 2 : close])
                self.text += UNKNOWN
                at = close + 1
            elif char == "{" and not quoted and re.match(r"\{[^{}\s]*(,|\.\.)", raw[at:]):
                self._unknown(quoted)  # brace expansion: several words of it
                at += 1
            else:
                self.text += char
                at += 1

    def _dollar(self, raw, at, quoted):
        following = raw[at + 1 : at + 2]
        if following == "'" and not quoted:
            close = at + 2
            while close < len(raw) and raw[close] != "'":
                close += 2 if raw[close] == "\\" else 1
            self.text += _ansi_c(raw[at + 2 : close])
            return close + 1
        if following == '"' and not quoted:
            return at + 1  # a translated string: the text is its own
        if raw.startswith("$((", at):
            close = _parenthesis_end(raw, at + 2)
            self._nested(raw[at + 3 : close - 1])
            self._unknown(quoted)
            return close + 1
        if following == "(":
            close = _parenthesis_end(raw, at + 2)
            self.scripts.append(raw[at + 2 : close])
            self._unknown(quoted)
            return close + 1
        if following == "{":
            close = _brace_end(raw, at + 2)
            inside = raw[at + 2 : close]
            self._nested(inside)
            self._variable(inside, quoted)
            return close + 1
        if following == "[":
            close = raw.find("]", at)
            close = len(raw) if close < 0 else close
            self._nested(raw[at + 2 : close])
            self._unknown(quoted)
            return close + 1
        name = re.match(r"[A-Za-z_]\w*|[0-9@*#?$!-]", raw[at + 1 :])
        if not name:
            self.text += "$"
            return at + 1
        self._variable(name[0], quoted)
        return at + 1 + len(name[0])

    def _variable(self, name, quoted):
        value = self._variables.get(name)
        if value is None:
            self._unknown(quoted)
        else:
            self.text += value
            self.split = self.split or (not quoted and any(char.isspace() for char in value))

    def _nested(self, text):
        self.scripts += Word('"' + text.replace('"', "") + '"').scripts

    def _unknown(self, quoted):
        self.text += UNKNOWN
        self.split = self.split or not quoted


class Command:
    """A simple command: its words, and what stands on its stdin when the text itself says so."""

    def __init__(self, words, assignments, stdin):
        self.words = words
        self.assignments = assignments
        self.stdin = stdin
        """Text of a here-document or here-string as a `Word`, else None."""


def pipelines(text):
    """All pipelines of a script at any depth of its structure, each a list of `Command`; not those in substitutions,
    which are the words' `scripts`. Words outside any command (of `for`, `case`, redirections) come as a command
    without words but with `assignments`.

    Raises:
        CannotParse: the text is not in the grammar.
    """
    trees = _trees(text)
    variables = _known_variables(text, trees)
    found = []
    for tree, source in trees:
        _walk(tree, source, variables, found)
    return found


def _trees(text):
    """Each complete command of a script, with the text that its positions refer to."""
    # Not `bashlex.parse`: it expands the words of every line but the first, and stops at a line that is a comment.
    trees = []
    while text.strip():
        line, _, rest = text.partition("\n")
        if not line.strip() or line.lstrip().startswith("#"):
            text = rest
            continue
        try:
            tree = parser._parser(text, expansionlimit=-1).parse()
            ends = parser._endfinder()
            ends.visit(tree)
        except RecursionError as error:
            raise CannotParse("nested too deeply") from error
        except Exception as error:  # bashlex raises AttributeError, IndexError and its own for what it does not know
            raise CannotParse(type(error).__name__) from error
        trees.append((tree, text))
        end = max(tree.pos[1], ends.end)
        left, _, rest = text[end:].partition("\n")
        # A newline ends a complete command; what stands between it and the tree must mean nothing.
        if left.strip(" \t;&") and not left.lstrip(" \t;&").startswith("#"):
            raise CannotParse("text after the end of a command")
        text = rest
    return trees


def _walk(node, text, variables, found):
    if node.kind == "pipeline":
        stages = [part for part in node.parts if part.kind not in ("reservedword", "pipe")]
        found.append([_command(part, text, variables) for part in stages if part.kind == "command"])
        for part in stages:
            if part.kind != "command":
                found.append([_stage(part, text, variables)])
                _walk(part, text, variables, found)
        if any(part.kind != "command" for part in stages):
            _mixed(stages, text, variables, found)
    elif node.kind == "command":
        found.append([_command(node, text, variables)])
    elif node.kind in ("word", "assignment"):
        found.append([Command([], [Word(_raw(node, text), variables)], None)])
    elif node.kind == "redirect":
        found.append([_redirects([node], text, variables)])
    else:
        for part in _children(node):
            _walk(part, text, variables, found)


def _mixed(stages, text, variables, found):
    """`{ …; } | sh`, `curl … | while read …`: the stage before a command is a group."""
    found.append(
        [_command(part, text, variables) if part.kind == "command" else Command([], [], None) for part in stages]
    )


def _stage(node, text, variables):
    return _redirects(getattr(node, "redirects", []), text, variables)


def _children(node):
    for name in ("list", "parts", "redirects"):
        yield from getattr(node, name, [])
    if node.kind == "function" and not getattr(node, "parts", None):
        yield node.body


def _command(node, text, variables):
    words = [Word(_raw(part, text), variables) for part in node.parts if part.kind == "word"]
    assignments = [Word(_raw(part, text), variables) for part in node.parts if part.kind == "assignment"]
    redirects = _redirects([part for part in node.parts if part.kind == "redirect"], text, variables)
    return Command(words, assignments + redirects.assignments, redirects.stdin)


def _redirects(nodes, text, variables):
    words = []
    stdin = None
    for node in nodes:
        if node.heredoc is not None:
            body = node.heredoc.value
            stdin = Word("''") if node.quoted else Word('"' + body.replace('"', '\\"') + '"', variables)
            if node.quoted:
                stdin.text = body
            words.append(stdin)
        elif hasattr(node.output, "kind"):
            word = Word(_raw(node.output, text), variables)
            words.append(word)
            if node.type == "<<<":
                stdin = word
    return Command([], words, stdin)


def _raw(node, text):
    word = getattr(node, "word", None)
    value = getattr(word, "value", word)
    return value if isinstance(value, str) else text[node.pos[0] : node.pos[1]]


def _known_variables(text, trees):
    """Values of the variables that are set exactly once in a script, to text that is known.

    A name that stands anywhere else but after a `$` (in `read x`, `for x in …`, `declare x`) is not known. Nor is
    anything once IFS is set, as words then come apart elsewhere.
    """
    if re.search(r"\bIFS\b(?<!\$IFS)(?<!\$\{IFS)", text):
        return {}
    found = {}
    commands = []
    for tree, source in trees:
        _walk(tree, source, {}, commands)
    for pipeline in commands:
        for command in pipeline:
            for word in command.assignments:
                match = re.match(r"([A-Za-z_]\w*)=", word.text)
                if match and word.known:
                    found[match[1]] = word.text[match.end() :]
    if len(found) > MOST_VARIABLES:
        return {}
    return {name: value for name, value in found.items() if _mentions(name, text) == 1}


def _mentions(name, text):
    return len(re.findall(rf"(?<![\w$])(?<!\$\{{){name}(?!\w)", text))


def _ansi_c(text):
    def decoded(match):
        code = match[1]
        if code[0] in "xuU":
            return chr(int(code[1:], 16) % 0x110000)
        if code[0] in "01234567":
            return chr(int(code, 8) % 256)
        return {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}.get(
            code, code
        )

    pattern = r"(?s)\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)"
    return re.sub(pattern, decoded, text)


def _double_quote_end(raw, at):
    while at < len(raw) and raw[at] != '"':
        if raw[at] == "\\":
            at += 2
        elif raw.startswith("$(", at):
            at = _parenthesis_end(raw, at + 2) + 1
        elif raw.startswith("${", at):
            at = _brace_end(raw, at + 2) + 1
        elif raw[at] == "`":
            at = _backquote_end(raw, at + 1) + 1
        else:
            at += 1
    return at


def _backquote_end(raw, at):
    while at < len(raw) and raw[at] != "`":
        at += 2 if raw[at] == "\\" else 1
    return at


def _parenthesis_end(raw, at):
    return _end(raw, at, "(", ")")


def _brace_end(raw, at):
    return _end(raw, at, "{", "}")


def _end(raw, at, opening, closing):
    depth = 1
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            at += 1
        elif char == "'":
            close = raw.find("'", at + 1)
            at = len(raw) if close < 0 else close
        elif char == '"':
            at = _double_quote_end(raw, at + 1)
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(raw)


# --- the gaps in bashlex's structure -------------------------------------------------------------------------------


def _node_for_the_unimplemented(production, kind):
    """`case`, `select`, `time`: keeps the parts, so that the commands in them are seen."""
    if kind == "coproc":  # its command is no node of its own
        raise NotImplementedError(kind)
    parts = parser._makeparts(production)
    span = parser._partsspan(parts) if parts else production.lexspan(1)
    production[0] = ast.node(kind="compound", list=parts, redirects=[], pos=span)


def _make_heredoc(lexer, redirect, _line, strips_tabs):
    """As bashlex does it, and also with a quoted delimiter, and with the end of the text in place of a newline."""
    written = redirect.output.word
    delimiter = Word(str(written)).text
    redirect.quoted = delimiter != written
    start = lexer._shell_input_line_index
    lines = []
    while True:
        line = lexer.readline(False)
        if not line:
            raise CannotParse("a here-document without its end")
        shown = line.lstrip("\t") if strips_tabs else line
        if shown.rstrip("\n") == delimiter:
            break
        lines.append(shown)
    end = lexer._shell_input_line_index - 1
    redirect.heredoc = ast.node(kind="heredoc", value="".join(lines), pos=(start, end))
    if redirect.pos[1] + 1 == start:
        redirect.pos = (redirect.pos[0], end)


# `[[ a && b ]]` is read as the commands `[[ a` and `b ]]`: enough to see what stands in its words.
tokenizer.valid_reserved_first_command.pop("[[", None)
parser.handleNotImplemented = _node_for_the_unimplemented
heredoc.makeheredoc = _make_heredoc
