from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from runner.errors import EngineTimeout
from runner.frontends.printer import Mode, Printer
from runner.frontends.terminal import Output
from runner.wire.messages import Ask, Event
from tests.unit.frontends.scripted import ScriptedSession, hang

DENIED = [
    Event(
        "hook", {"event": "preToolCall", "hook": "guard", "verdict": "deny", "reason": "no rm", "ms": 3, "call": "1"}
    ),
    Event(
        "tool.denied", {"id": "1", "name": "bash", "input": {"command": "rm -r x"}, "by": "guard", "reason": "no rm"}
    ),
]
READ = [
    Event("tool.start", {"id": "2", "name": "bash", "input": {"command": "cat todo.txt"}}),
    Event("tool.end", {"id": "2", "name": "bash", "output": "milk\n", "is_error": False, "ms": 5, "exit": 0}),
]
END = Event(
    "turn.end",
    {"status": "completed", "reason": "answer", "answer": "Milk.", "usage": {"total_tokens": 9}, "rounds": 3, "ms": 40},
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def run(steps: list[Any], mode: Mode = "text", stdout: Any = None) -> tuple[str, str, ScriptedSession]:
    out, err = stdout or io.StringIO(), io.StringIO()
    session = ScriptedSession(lambda prompt: steps)
    printer = Printer(Output(out, {}), Output(err, {}), mode)
    await printer.run(session, "question")
    printer.finish()
    return out.getvalue(), err.getvalue(), session


async def test_stdout_holds_the_answer_and_nothing_else():
    out, err, _ = await run([*DENIED, *READ, END])
    assert out == "Milk.\n"
    assert "🪝 bash [denied by a hook: no rm]\n" in err
    assert "$ cat todo.txt\n" in err
    assert "preGeneration×2 preToolCall×1" in err
    assert "\x1b" not in err


async def test_a_stopped_questions_response_is_the_answer():
    blocked = Event("turn.blocked", {"turn": 1, "hook": "h", "reason": "r", "response": "🔐 no"})
    end = Event("turn.end", {"status": "stopped", "reason": "hook", "answer": "🔐 no"})
    out, err, _ = await run([blocked, end])
    assert out == "🔐 no\n"
    assert "[stopped by a hook: r]" in err


async def test_nobody_is_asked():
    asks = [Ask(1, "consent", {"name": "bash"}), Ask(2, "question", {"question": "?"})]
    _, _, session = await run([*asks, END])
    assert session.answers == [{"choice": "reject", "reason": "nobody can be asked"}, {"answer": None}]


async def test_deltas_do_not_reach_stdout_before_or_beside_the_answer():
    out, _, _ = await run([Event("model.delta", {"text": "Mi"}), Event("model.delta", {"text": "lk."}), END])
    assert out == "Milk.\n"


async def test_escapes_in_the_answer_are_shown_not_obeyed():
    out, _, _ = await run([Event("turn.end", {"status": "completed", "answer": "\x1b[2Jhi"})])
    assert out == "\\x1b[2Jhi\n"


async def test_an_empty_answer_prints_nothing():
    out, _, _ = await run([Event("turn.end", {"status": "failed", "answer": "", "error": "e"})])
    assert out == ""


async def test_one_json_document_tells_the_whole_run():
    out, _, _ = await run([*DENIED, *READ, END], "json")
    document = json.loads(out)
    assert document["answer"] == "Milk."
    assert (document["status"], document["reason"], document["rounds"]) == ("completed", "answer", 3)
    assert [(call["name"], call["status"]) for call in document["tool_calls"]] == [("bash", "denied"), ("bash", "ok")]
    assert document["tool_calls"][1]["output"] == "milk\n"
    assert document["hooks"][0]["verdict"] == "deny"
    assert document["usage"] == {"total_tokens": 9}
    assert document["milliseconds"] == {"turn": 40, "model": 0, "tools": 5, "hooks": 3}
    assert "error" not in document


async def test_an_error_is_json_too_with_code_place_and_hint():
    out, err = io.StringIO(), io.StringIO()
    printer = Printer(Output(out, {}), Output(err, {}), "json")
    printer.fail(EngineTimeout("the engine did not answer", place="unix:///x", hint="is it up?"))
    assert json.loads(out.getvalue())["error"] == {
        "code": 4,
        "kind": "engine-timeout",
        "message": "the engine did not answer",
        "place": "unix:///x",
        "hint": "is it up?",
    }


async def test_events_are_one_object_a_line_and_end_with_the_document():
    out, _, _ = await run(
        [*READ, Event("model.delta", {"text": "M"}), Event("notice", {"text": "\u2028\n\x1b"}), END], "events"
    )
    events = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [event["name"] for event in events] == [
        "turn.start",
        "tool.start",
        "tool.end",
        "notice",
        "turn.end",
        "run.end",
    ]
    assert events[-1]["data"]["answer"] == "Milk."
    assert "\x1b" not in out


async def test_numbers_that_json_lacks_leave_it_json():
    out, _, _ = await run([Event("notice", {"text": float("nan")}), END], "events")
    for line in out.splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


async def test_colours_only_on_a_terminal_and_never_with_no_color():
    line = [Event("notice", {"level": "error", "text": "x"}), END]

    async def err(environ: dict[str, str], stream: io.StringIO) -> str:
        session = ScriptedSession(lambda prompt: line)
        await Printer(Output(io.StringIO(), environ), Output(stream, environ)).run(session, "q")
        return stream.getvalue()

    assert "\x1b[31merror: x\x1b[0m" in await err({"TERM": "xterm"}, Terminal())
    assert "\x1b" not in await err({"TERM": "xterm", "NO_COLOR": "1"}, Terminal())
    assert "\x1b" not in await err({"TERM": "dumb"}, Terminal())
    assert "\x1b" not in await err({"TERM": "xterm"}, io.StringIO())


async def test_a_stream_without_the_characters_gets_escapes_for_them():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Output(stream, {}).write("🪝 é\n")
    assert raw.getvalue() == b"\\U0001fa9d \\xe9\n"


async def test_a_reader_that_goes_away_ends_an_events_run():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        session = ScriptedSession(lambda prompt: [Event("notice", {"text": "x"}), hang, END])
        printer = Printer(Output(stream, {}), Output(io.StringIO(), {}), "events")
        document = await printer.run(session, "q")
        printer.finish()
    assert document.status == "cancelled"


def test_a_closed_stdout_leaves_no_complaint_behind():
    script = """
import sys
from runner.frontends.terminal import Output
out = Output(sys.stdout)
for _ in range(10000):
    out.write("x" * 1000 + "\\n")
sys.exit(0 if out.closed else 9)
"""
    command = f"set -o pipefail; {sys.executable} -c '{script}' | head -n1 >/dev/null"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
