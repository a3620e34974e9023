"""Keeping what a hook refused or masked out of what is said about it.

A question that a guard stopped must reach no event, yet the guard's own words about it do: a reason may quote it, and
the stderr of a hook that failed earlier in the same chain may hold the whole payload. The stderr is dropped; reasons
and responses lose the question's lines and whatever in it looks like a secret. What any hook writes to stderr, and the
reasons it gives, lose what has the form of a secret in any case.
"""

from __future__ import annotations

import re

MASK = "[…]"

MIN_LINE = 12
"""Characters of a line of the question that is masked where it is quoted. Shorter ones are everybody's words."""

MIN_TOKEN = 6
"""Characters of a word with letters and digits or signs in it, such as a password or key."""

MAX_PIECES = 2000

_WORD = re.compile(r"[^\s\"'`(),;<>]+")
_PLAIN = re.compile(r"[A-Za-zÀ-ɏ]+([-'][A-Za-zÀ-ɏ]+)*[.,:;!?]*|[0-9]+[.,:;!?%]*")


_SECRETS = re.compile(
    r"""(?xs)
      -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----|\Z)
    | (?<![A-Za-z0-9]) (?:
          sk-(?=[A-Za-z0-9_-]{0,40}[0-9])[A-Za-z0-9_-]{16,200}
        | gh[pousr]_[A-Za-z0-9]{20,255} | github_pat_\w{20,255} | glpat-[\w-]{20,100}
        | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16} | AIza[\w-]{35} | xox[abeprs]-[A-Za-z0-9-]{10,200}
        | [sr]k_live_[A-Za-z0-9]{16,200} | eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}
      )
    | (?<=://)[^\s:/@"']{0,100}:[^\s/@"']{3,200}(?=@)
    """
)
"""What has a secret's form wherever it stands."""

_NAMED = re.compile(
    r"(?i)(?P<name>(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key)"
    r"[\"']?\s{0,3}(?:[:=]|\bis\b)\s{0,3}[\"']?(?:bearer\s)?|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?\w{0,10}\s)"
    r"(?P<value>[^\s\"',;]{4,500})"
)
_LOOKS_MADE = re.compile(r"[0-9!@#$%^&*+?~]")


def mask_secrets(text: str) -> str:
    """`text` without what has the form of a password, key or token: a hook's stderr may quote what it was given."""
    if not text:
        return text
    text = _SECRETS.sub(MASK, text)
    return _NAMED.sub(lambda m: m["name"] + MASK if _LOOKS_MADE.search(m["value"]) else m[0], text)


def scrub(text: str, question: str) -> str:
    """`text` without the lines of `question` and without the words of it that may be secrets."""
    if not text or not question:
        return text
    lines = {line.strip() for line in question.splitlines()}
    pieces = {line for line in lines if len(line) >= MIN_LINE}
    for word in _WORD.findall(question)[:MAX_PIECES]:
        bare = word.rstrip(".,:;!?")
        if len(bare) >= MIN_TOKEN and not _PLAIN.fullmatch(bare):
            pieces.add(bare)
        for part in re.split(r"[=:]", bare)[1:]:
            if len(part) >= MIN_TOKEN and not _PLAIN.fullmatch(part):
                pieces.add(part)
    for piece in sorted(pieces, key=len, reverse=True)[:MAX_PIECES]:
        if piece in text:
            text = text.replace(piece, MASK)
    return text
