"""Values for a kit's arguments, given in a file and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.cli.app import run

SPEC = """\
schemaVersion: "2"
kind: sandbox
name: words
sandbox: {image: "debian:bookworm-slim"}
args: {first: {default: a}, second: {default: b}, third: {default: c}}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("words.args", "# a remark\nfirst=from the file\nwords.second=from the file\n"),
        ("words.yaml", "first: from the file\nwords: {second: from the file}\n"),
    ],
)
def test_a_file_gives_values_and_the_command_line_wins(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = tmp_path / "words"
    kit.mkdir()
    (kit / "spec.yaml").write_text(SPEC)
    file = tmp_path / name
    file.write_text(text)
    command = ["kit", "inspect", str(kit), "--json", "--kit-args-file", str(file), "--kit-arg", "second=typed"]
    assert run(command) == 0
    (shown,) = json.loads(capsys.readouterr().out)["kits"]
    assert shown["arguments"] == {"first": "from the file", "second": "typed", "third": "c"}


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kit", "inspect", "hooks-demo", "--kit-args-file", str(tmp_path / "none")]) == 2
    assert f"{tmp_path}/none: no such file" in capsys.readouterr().err
