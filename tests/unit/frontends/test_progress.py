from __future__ import annotations

import io

from runner.frontends.progress import BuildProgress
from runner.frontends.terminal import Output as Stream
from runner.images.events import Note, Output, Ready, Step
from tests.unit.frontends.test_printer import Terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_each_step_is_one_line_and_nothing_moves():
    stream = io.StringIO()
    progress = BuildProgress(Stream(stream, {}))
    for event in (
        Note("pulling debian"),
        Step(1, 2, "RUN apt-get install nodejs"),
        Output("Reading…\n\x1b[2Kdone\r\n"),
        Step(2, 2, "COPY a b"),
        Ready("sbx/demo:abc", 12.4),
    ):
        progress(event)
    assert stream.getvalue() == (
        "pulling debian\n[1/2] RUN apt-get install nodejs\n[2/2] COPY a b\nimage sbx/demo:abc is ready (12 s)\n"
    )


def test_on_a_terminal_one_line_changes_and_is_taken_away():
    stream, clock = Terminal(), Clock()
    progress = BuildProgress(Stream(stream, {"TERM": "xterm"}), clock)
    progress(Step(1, 2, "RUN x"))
    clock.now = 3.0
    progress(Output("unpacking\nhalf"))
    progress(Ready("sbx/demo:abc", 3.0))
    written = stream.getvalue()
    assert "[1/2] RUN x 3 s · unpacking" in written
    assert written.endswith("\r\x1b[K\x1b[2mimage sbx/demo:abc is ready (3 s)\x1b[0m\n")
    assert written.count("\n") == 1


def test_a_failure_shows_its_step_and_the_end_of_that_steps_output():
    stream = io.StringIO()
    progress = BuildProgress(Stream(stream, {}))
    progress(Step(1, 3, "RUN first"))
    progress(Output("of the first step\n"))
    progress(Step(2, 3, "RUN second"))
    progress(Output("".join(f"{number}\n" for number in range(100))))
    progress(Output("E: \x1b[31mno such pack"))
    progress(Output("age"))
    progress.failed()
    shown = stream.getvalue().splitlines()[2:]
    assert shown[0] == "failed in [2/3] RUN second"
    assert shown[1:] == [*(f"  | {number}" for number in range(61, 100)), "  | E: \\x1b[31mno such package"]


def test_output_without_a_line_end_does_not_grow_for_ever():
    progress = BuildProgress(Stream(io.StringIO(), {}))
    progress(Step(1, 1, "RUN yes"))
    for _ in range(1000):
        progress(Output("y" * 10_000))
    progress.failed()
    assert len(progress.log()) <= 2000
