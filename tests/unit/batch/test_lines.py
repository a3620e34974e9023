"""The file of a batch: what it may hold, and that a mistake is told with its line before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, UsageError
from runner.frontends.batch.lines import Line, load


def write(folder: Path, text: str, name: str = "batch.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_line_is_a_question_and_its_number_is_its_id(tmp_path: Path) -> None:
    (line,) = load(write(tmp_path, '{"prompt": "hello"}\n'))
    assert line == Line(1, "1", "hello")


def test_empty_lines_are_passed_over_and_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    lines = load(write(tmp_path, '\n{"prompt": "a"}\n   \n{"prompt": "b"}'))
    assert [(line.number, line.id) for line in lines] == [(2, "2"), (4, "4")]


def test_every_key_is_taken(tmp_path: Path) -> None:
    (line,) = load(
        write(
            tmp_path,
            '{"id": 7, "prompt": "p", "kit": "demo", "workspace": "w", "variables": {"A": 1}, "kit_args": {"k.n": "v"},'
            ' "model": "m", "expect": "yes", "check": "test -e x", "artifacts": {"out": "o"}, "timeout": 1.5,'
            ' "max_tokens": 10, "max_tool_calls": 2}',
        )
    )
    assert line == Line(
        1,
        "7",
        "p",
        "demo",
        str(tmp_path / "w"),
        {"A": "1"},
        ("k.n=v",),
        "m",
        ("yes",),
        "test -e x",
        {"out": str(tmp_path / "o")},
        1.5,
        10,
        2,
    )


def test_variables_go_into_the_prompt_and_what_is_none_stays(tmp_path: Path) -> None:
    text = '{"prompt": "${A} $A ${B} ${HOME} $${A}", "variables": {"A": "${B}", "B": "x"}}'
    (line,) = load(write(tmp_path, text))
    assert line.prompt == "${B} $A x ${HOME} $${B}"  # once: what a variable holds is not looked into


@pytest.mark.parametrize("kit", ["hooks-demo", "registry.example/team/kit:1", "name@sha256:abc"])
def test_a_kit_that_is_no_path_stays_as_it_is(tmp_path: Path, kit: str) -> None:
    (line,) = load(write(tmp_path, f'{{"prompt": "p", "kit": "{kit}"}}'))
    assert line.kit == kit


@pytest.mark.parametrize("kit", ["./kit", "../kit", "kits/mine"])
def test_a_path_is_relative_to_the_file(tmp_path: Path, kit: str) -> None:
    (line,) = load(write(tmp_path, f'{{"prompt": "p", "kit": "{kit}"}}'))
    assert line.kit == str(tmp_path / kit)


def test_yaml_is_a_list_with_the_same_keys(tmp_path: Path) -> None:
    text = "# questions\n- prompt: hello\n- id: two\n  prompt: |\n    several\n    lines\n  variables: {N: 2}\n"
    lines = load(write(tmp_path, text, "batch.yaml"))
    assert [(line.number, line.id, line.prompt) for line in lines] == [
        (2, "2", "hello"),
        (3, "two", "several\nlines\n"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('{"prompt": "a"}\n{"promt": "b"}', 2, "did you mean 'prompt'"),
        ('{"prompt": "a"}\n{"prompt": "b"', 2, "is not JSON"),
        ('{"prompt": "a", "prompt": "b"}', 1, "stands twice"),
        ('{"prompt": NaN}', 1, "NaN"),
        ('["prompt"]', 1, "mapping"),
        ('{"prompt": " "}', 1, "prompt"),
        ('{"id": "x"}', 1, "prompt"),
        ('{"prompt": 1}', 1, "prompt: must be text"),
        ('{"prompt": "a", "id": "x\\u0007"}', 1, "printable"),
        ('{"prompt": "a", "id": true}', 1, "id"),
        ('{"prompt": "a", "id": "x"}\n{"prompt": "a", "id": "x"}', 2, "line 1"),
        ('{"prompt": "a"}\n{"prompt": "a", "id": "1"}', 2, "line 1"),
        ('{"prompt": "a", "variables": {"A B": "1"}}', 1, "'A B'"),
        ('{"prompt": "a", "variables": {"A": [1]}}', 1, "A must be"),
        ('{"prompt": "a", "variables": {"A": "\\u0000"}}', 1, "NUL"),
        ('{"prompt": "a", "variables": []}', 1, "variables"),
        ('{"prompt": "a", "timeout": 0}', 1, "timeout"),
        ('{"prompt": "a", "timeout": true}', 1, "timeout"),
        ('{"prompt": "a", "max_tokens": 1.5}', 1, "max_tokens"),
        ('{"prompt": "a", "expect": [""]}', 1, "expect"),
        ('{"prompt": "a", "check": {"a": 1}}', 1, "check"),
        ("[" * 100_000, 1, "is not JSON"),
    ],
)
def test_a_mistake_is_told_with_the_files_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.place == f"{path}:{line}"
    assert said in str(caught.value)


def test_a_mistake_in_yaml_has_its_line_too(tmp_path: Path) -> None:
    path = write(tmp_path, "- prompt: a\n- prompt: b\n  kti: x\n", "b.yml")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.place == f"{path}:2"
    with pytest.raises(ConfigError, match="list"):
        load(write(tmp_path, "prompt: a\n", "c.yml"))


def test_a_batch_without_a_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no line"):
        load(write(tmp_path, "\n\n"))


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path / "missing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "latin.jsonl")


def test_a_digest_is_of_the_question_and_not_of_its_place() -> None:
    line = Line(1, "a", "p", variables={"X": "1"})
    assert line.digest == Line(9, "a", "p", variables={"X": "1"}).digest
    assert line.digest != Line(1, "a", "p", variables={"X": "2"}).digest
    assert line.digest != Line(1, "a", "q", variables={"X": "1"}).digest
