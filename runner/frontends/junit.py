"""Results as JUnit's XML, in the form that GitLab, Jenkins and the GitHub actions for it read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from runner.errors import ExpectationError, SbxError, TurnError, UsageError

# What XML 1.0 cannot hold at all, not even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MAX_TEXT = 256 * 1024
"""Characters of one output."""


@dataclass(frozen=True)
class Case:
    """One run."""

    name: str
    group: str
    """The kit."""
    seconds: float
    answer: str = ""
    error: SbxError | None = None
    """Why it did not do what it should. Expectations and failed turns are failures, the rest errors."""
    skipped: str = ""
    """Why it did not run at all."""


def junit(name: str, cases: Sequence[Case]) -> bytes:
    """The document."""
    failed = [case for case in cases if case.error and _is_failure(case.error)]
    errors = sum(case.error is not None for case in cases) - len(failed)
    counts = {
        "tests": str(len(cases)),
        "failures": str(len(failed)),
        "errors": str(errors),
        "skipped": str(sum(bool(case.skipped) for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _text(name), **counts})
    for case in cases:
        attributes = {"name": _text(case.name), "classname": _text(case.group), "time": f"{case.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", attributes)
        if case.error:
            kind = "failure" if _is_failure(case.error) else "error"
            told = ElementTree.SubElement(
                element, kind, {"type": case.error.kind, "message": _text(case.error.message)[:1000]}
            )
            lines = (str(case.error), case.error.place, case.error.hint, case.error.log)
            told.text = _text("\n".join(line for line in lines if line))
        if case.skipped:
            ElementTree.SubElement(element, "skipped", {"message": _text(case.skipped)})
        if case.answer:
            ElementTree.SubElement(element, "system-out").text = _text(case.answer)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a result so that no reader ever sees half of it. Raises UsageError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot be written: {error.strerror}", place=str(path)) from None


def _is_failure(error: SbxError) -> bool:
    return isinstance(error, (ExpectationError, TurnError))


def _text(text: str) -> str:
    cut = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT} more characters]"
    return _FORBIDDEN.sub("\ufffd", cut)
