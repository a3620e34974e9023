"""What a person and a CI system see of a batch."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest

from runner.frontends.batch.lines import Line
from runner.frontends.batch.results import Result
from runner.frontends.batch.summary import Progress, cases, table
from runner.frontends.junit import junit
from runner.frontends.terminal import Output

A, B, C = Line(1, "a", "p"), Line(2, "b", "p"), Line(3, "c", "p")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_is_in_the_files_order_and_counts() -> None:
    rows = [line.text for line in table([Result(B, 4, "gone", 4, 12.34), Result(A, 0, seconds=1.0)], [C])]
    assert rows == [
        "line  id  code  seconds  tries",
        "   1  a      0      1.0      1",
        "   2  b      4     12.3      4  gone",
        "1 ok, 1 failed, 1 not run",
    ]


def test_a_long_table_lists_what_failed() -> None:
    many = [Result(Line(n, str(n), "p"), 1 if n == 50 else 0, "x" if n == 50 else "") for n in range(1, 101)]
    rows = [line.text for line in table(many, [])]
    assert len(rows) == 4
    assert rows[1].startswith("  50  50")
    assert rows[2:] == ["(99 that are ok are not listed)", "99 ok, 1 failed"]


def test_what_an_agent_said_moves_no_terminal() -> None:
    text = "\n".join(line.text for line in table([Result(A, 1, "\x1b[2Jboo\nline")], []))
    assert "\x1b" not in text
    assert "boo ⏎ line" in text


def test_without_a_terminal_each_result_is_a_line_and_nothing_moves() -> None:
    stream = io.StringIO()
    progress = Progress(Output(stream), 2)
    progress.start(A)
    progress.result(Result(A, 0, seconds=1.0))
    progress.result(Result(B, 1, "no", seconds=2.0))
    progress.clear()
    assert stream.getvalue() == "[1/2] a ok (1.0 s)\n[2/2] b code 1: no (2.0 s)\n"


def test_on_a_terminal_one_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    now = [0.0]
    progress = Progress(Output(stream), 2, clock=lambda: now[0])
    progress.start(A)
    now[0] = 65.0
    progress.result(Result(A, 1, "no", seconds=1.0))
    assert "1/2 done · 1 failed · 0 running · 1:05" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1  # only the failure stays
    progress.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    progress = Progress(Output(stream), 1, quiet=True)
    progress.start(A)
    progress.result(Result(A, 1, "no"))
    assert stream.getvalue() == ""


def test_junit_tells_failures_errors_and_what_did_not_run() -> None:
    results = [Result(A, 7, "it <said> no", seconds=1.5), Result(B, 4, "engine")]
    suite = ElementTree.fromstring(junit("batch.jsonl", cases("batch.jsonl", results, [C])))[0]
    counts = {"tests": "3", "failures": "1", "errors": "1", "skipped": "1", "time": "1.500"}
    assert dict(suite.attrib) == {"name": "batch.jsonl", **counts}
    assert [(case.get("name"), case[0].tag, case[0].get("message")) for case in suite] == [
        ("a", "failure", "code 7: it <said> no"),
        ("b", "error", "code 4: engine"),
        ("c", "skipped", "not run"),
    ]
