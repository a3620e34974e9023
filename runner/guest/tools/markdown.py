"""A web page as Markdown, good enough to be read by a model. Standard library only: it runs in the sandbox, as U."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_LEFT_OUT = frozenset(
    {"script", "style", "noscript", "template", "svg", "head", "iframe", "canvas", "button", "select"}
)
_BLOCKS = frozenset(
    "p div section article main header footer aside nav ul ol dl dt dd figure figcaption table thead tbody form "
    "fieldset address details summary blockquote hr".split()
)
_VOID = frozenset({"br", "hr", "img", "input", "meta", "link", "source", "wbr", "col", "area", "base", "embed"})
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
_DEEPEST = 500
"""Open elements; a page that nests deeper is read as if it did not."""


class _Writer(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = base
        self._out: list[str] = []
        self._skip: list[str] = []
        self._pre = 0
        self._lists: list[tuple[str, int]] = []
        self._links: list[tuple[str, int]] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        if tag in _LEFT_OUT:
            if len(self._skip) < _DEEPEST:
                self._skip.append(tag)
            return
        if self._skip:
            return
        given = {name: value or "" for name, value in attrs}
        if tag == "pre":
            self._block("\n\n```\n")
            self._pre += 1
        elif tag == "code" and not self._pre:
            self._out.append("`")
        elif tag in _MARKS:
            self._out.append(_MARKS[tag])
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._block("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "a":
            href = urljoin(self._base, given.get("href", "")) if given.get("href") else ""
            self._links.append((href, len(self._out)))
        elif tag == "img" and given.get("alt", "").strip():
            self._out.append(f"[image: {_spaced(given['alt'])}]")
        elif tag == "br":
            self._out.append("\n")
        elif tag == "hr":
            self._block("\n\n---\n\n")
        elif tag in ("ul", "ol"):
            if len(self._lists) < _DEEPEST:
                self._lists.append((tag, 0))
            self._block("" if len(self._lists) > 1 else "\n\n")
        elif tag == "li":
            kind, number = self._lists.pop() if self._lists else ("ul", 0)
            self._lists.append((kind, number + 1))
            mark = f"{number + 1}." if kind == "ol" else "-"
            self._block("\n" + "  " * (min(len(self._lists), 20) - 1) + mark + " ")
        elif tag == "tr":
            self._block("\n| ")
        elif tag == "blockquote":
            self._block("\n\n> ")
        elif tag in _BLOCKS:
            self._block("\n\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skip:
            if tag in self._skip:
                while self._skip.pop() != tag:
                    pass
            return
        if tag == "pre" and self._pre:
            self._pre -= 1
            self._block("\n```\n\n")
        elif tag == "code" and not self._pre:
            self._out.append("`")
        elif tag in _MARKS:
            self._out.append(_MARKS[tag])
        elif tag == "a" and self._links:
            href, start = self._links.pop()
            text = _spaced("".join(self._out[start:]))
            if text and href.startswith(("http://", "https://")) and href != text:
                self._out[start:] = [f"[{text}]({href})"]
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            self._block("" if self._lists else "\n\n")
        elif tag in ("td", "th"):
            self._out.append(" | ")
        elif tag in _BLOCKS or (len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()):
            self._block("\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._skip:
            self._out.append(data if self._pre else re.sub(r"\s+", " ", data))

    def _block(self, text: str) -> None:
        self._out.append(text)

    def text(self) -> str:
        parts = re.split(r"(\n```\n.*?\n```\n)", "".join(self._out), flags=re.DOTALL)
        for index in range(0, len(parts), 2):
            parts[index] = "\n".join(_line(line) for line in parts[index].split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()


def _line(line: str) -> str:
    """A line outside of code: its indent stays only before a list's mark."""
    indent, text = re.match(r"([ \t]*)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    text = re.sub(r"[ \t]+", " ", text).rstrip()
    return indent + text if re.match(r"(?:-|\d+\.) ", text) else text


def _spaced(text: str) -> str:
    return " ".join(text.split())


def markdown(page: str, base: str = "") -> str:
    """The page's text with headings, lists, links, code and tables as Markdown.

    Args:
        page: HTML, however broken.
        base: the page's URL, for relative links.
    """
    writer = _Writer(base)
    writer.feed(page)
    writer.close()
    title = _spaced(writer.title)
    body = writer.text()
    return f"# {title}\n\n{body}" if title and not body.startswith(f"# {title}") else body
