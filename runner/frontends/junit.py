"""JUnit's XML, as CI systems read it: one suite, one case a run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from runner.errors import UsageError

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One run. At most one of `failure`, `error` and `skipped` is said."""

    name: str
    group: str
    """The class name that CI systems sort by."""
    seconds: float = 0.0
    failure: str = ""
    """What it did not do that it should have."""
    error: str = ""
    """Why nothing can be said about that."""
    skipped: str = ""
    """Why it did not run."""
    output: str = ""


def write(path: Path, suite: str, cases: Sequence[Case]) -> None:
    """Writes the report, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(document(suite, cases), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"the JUnit report cannot be written: {error.strerror}", place=str(path)) from None


def document(suite: str, cases: Sequence[Case]) -> str:
    """The report's text."""
    counts = f'tests="{len(cases)}" failures="{sum(bool(c.failure) for c in cases)}"'
    counts += f' errors="{sum(bool(c.error) for c in cases)}" skipped="{sum(bool(c.skipped) for c in cases)}"'
    counts += f' time="{sum(c.seconds for c in cases):.3f}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>"]
    lines += [f"  <testsuite name={_attribute(suite)} {counts}>", *map(_case, cases), "  </testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"


def _case(case: Case) -> str:
    head = f'    <testcase name={_attribute(case.name)} classname={_attribute(case.group)} time="{case.seconds:.3f}"'
    inside = [
        f"<{tag} message={_attribute(text)}/>"
        for tag, text in (("failure", case.failure), ("error", case.error), ("skipped", case.skipped))
        if text
    ]
    if case.output:
        inside.append(f"<system-out>{escape(_clean(case.output))}</system-out>")
    return head + (f">{''.join(inside)}</testcase>" if inside else "/>")


def _attribute(text: str) -> str:
    return quoteattr(_clean(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _clean(text: str) -> str:
    """What XML cannot hold is shown as its code."""
    return _NOT_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
