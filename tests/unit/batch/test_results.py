"""Results on a disk: which are there already, what a torn file means, and that nothing is lost."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from runner.errors import ConfigError, InUseError, UsageError
from runner.frontends.batch.lines import Line
from runner.frontends.batch.results import File, Result, text_of

LINES = [Line(1, "a", "one"), Line(2, "b", "two"), Line(3, "c", "three")]


def written(path: Path, *results: Result) -> Path:
    path.write_text("".join(map(text_of, results)))
    return path


def load(path: Path) -> list[Result]:
    with contextlib.closing(File(path)) as file:
        return file.load(LINES)


def test_what_is_written_is_found_again(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(LINES[0], 0, run={"answer": "é\n"}), Result(LINES[1], 1, "why", 3, 2.5))
    file = File(path)
    assert file.load(LINES) == [Result(LINES[0], 0), Result(LINES[1], 1, "why", 3, 2.5)]
    file.write(text_of(Result(LINES[2], 7, "no")))
    file.close()
    assert [json.loads(line)["code"] for line in path.read_text().splitlines()] == [0, 1, 7]


def test_a_torn_last_line_is_taken_off_and_runs_again(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(LINES[0], 0), Result(LINES[1], 0))
    path.write_bytes(path.read_bytes()[:-10])
    file = File(path)
    assert [r.line.id for r in file.load(LINES)] == ["a"]
    file.write(text_of(Result(LINES[1], 0)))
    file.close()
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize("middle", [b"{}\n", b"not json\n", b"\0\0\n", b'{"id": "a", "code": "0"}\n'])
def test_a_damaged_line_in_the_middle_is_told_and_left(tmp_path: Path, middle: bytes) -> None:
    path = tmp_path / "r"
    content = text_of(Result(LINES[0], 0)).encode() + middle + text_of(Result(LINES[1], 0)).encode()
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.place == f"{path}:2"
    assert path.read_bytes() == content


def test_a_question_that_changed_is_not_taken_for_answered(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(Line(1, "a", "another question"), 0))
    with pytest.raises(ConfigError, match="asks now"):
        load(path)


def test_results_of_another_batch_are_told(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(Line(1, "z", "one"), 0))
    with pytest.raises(ConfigError, match="no line of this batch"):
        load(path)


def test_a_result_that_stands_twice_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(LINES[0], 0), Result(LINES[0], 1))
    with pytest.raises(ConfigError, match="second result"):
        load(path)


def test_results_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "r", Result(LINES[0], 0))
    with pytest.raises(UsageError) as caught, contextlib.closing(File(path)) as file:
        file.demand_empty()
    assert caught.value.hint is not None
    assert "--resume" in caught.value.hint


def test_two_batches_do_not_write_one_file(tmp_path: Path) -> None:
    first = File(tmp_path / "r")
    with pytest.raises(InUseError):
        File(tmp_path / "r")
    first.close()
    File(tmp_path / "r").close()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        File(tmp_path / "missing" / "r")
    with pytest.raises(UsageError):
        File(tmp_path)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    file = File(Path("/dev/full"))
    with pytest.raises(UsageError, match="No space left"):
        file.write(text_of(Result(LINES[0], 0)))
    file.close()
