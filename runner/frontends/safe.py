"""Text that came out of the container, made safe to show: nothing in it is obeyed by a terminal.

An escape sequence can clear the screen, write the clipboard, answer as if the user typed, or hide what a command
does; an override of the writing direction shows one thing for another. They are shown as what they are, `\\x1b` or
`\\u202e`, never dropped: a reader should see that something was there. Tabs and line ends stay. Joiners stay too in
`safe`, since emoji and several scripts need them; `strict`, for what a person is asked to approve, shows every
character that has no glyph of its own.
"""

from __future__ import annotations

import re
import unicodedata

# C0 but tab and newline, DEL, C1; embeddings, overrides and isolates; lone surrogates; tags; noncharacters.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_CARRIAGE = re.compile(r"\r+\n")


def _shown(match: re.Match[str]) -> str:
    return visible(match.group())


def visible(character: str) -> str:
    """The character as an escape that a person can read."""
    code = ord(character)
    if character == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe(text: str) -> str:
    """`text` with line ends and tabs as they are, CRLF as LF, and everything a terminal would obey shown."""
    return _OBEYED.sub(_shown, _CARRIAGE.sub("\n", text))


def safe_line(text: str, limit: int = 400) -> str:
    """`text` as one line of at most `limit` characters, line ends shown as ` ⏎ `; says how much was cut.

    Reads no more than `limit` characters of it, so that a line of 64 MiB costs nothing.
    """
    cut = len(text) - limit
    kept = safe(text[:limit]).replace("\t", " ").strip("\n").replace("\n", " ⏎ ")
    return f"{kept} … [{cut} more characters]" if cut > 0 else kept


def strict(text: str) -> str:
    """Like `safe`, and invisible characters are shown too: zero width, soft hyphen, private use, odd spaces."""
    return "".join(_strict(character) for character in safe(text))


def _strict(character: str) -> str:
    if character in "\n\t" or " " <= character <= "~":
        return character
    if unicodedata.category(character) in ("Cf", "Co", "Cn", "Cs", "Zs", "Zl", "Zp"):
        return visible(character)
    return character


def head(text: str, lines: int, width: int = 400) -> tuple[list[str], int]:
    """The first `lines` lines of `text`, each safe and cut to `width`, and how many more lines there are."""
    shown: list[str] = []
    at = 0
    while at < len(text) and len(shown) < lines:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        cut = end - at - width
        line = safe(text[at : min(end, at + width)].removesuffix("\r"))
        shown.append(f"{line} … [{cut} more characters]" if cut > 0 else line)
        at = end + 1
    more = text.count("\n", at) + (0 if text.endswith("\n") else 1) if at < len(text) else 0
    return shown, more
