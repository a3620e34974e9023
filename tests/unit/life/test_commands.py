"""The command line itself: its pages, its completion, its words for a mistake."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.app import run
from runner.cli.completion import bash, describe, fish, zsh
from runner.cli.examples import EXAMPLES
from runner.cli.reference import MEANINGS, pages

REPO = Path(__file__).resolve().parents[3]


def test_the_reference_pages_are_current() -> None:
    for name, text in pages().items():
        assert (REPO / "docs" / "reference" / name).read_text() == text, f"{name}: run scripts/reference"


def test_every_error_ends_with_a_code_that_is_explained() -> None:
    from runner import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.SbxError)]
    codes = {k.exit_code for k in kinds if k is not errors.Interrupted} | {0, 130, 143}
    assert codes == set(MEANINGS)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_of_its_command_and_its_options_are_there(name: str) -> None:
    described = {each.name: each for each in describe()}[name]
    flags = {flag for each in described.flags for flag in each.names} | {"--help"}
    for line, _ in EXAMPLES[name]:
        _, _, after = line.replace('"', "").partition("sbx ")
        command, *words = shlex.split(after.split("<")[0].rstrip(")"))
        assert command == name
        own = words[: words.index("NAME")] if name == "exec" else words
        assert {word for word in own if word.startswith("-") and word != "-"} <= flags


def test_every_listed_command_has_an_example_or_is_a_group() -> None:
    without = {each.name for each in describe() if each.name not in EXAMPLES and not each.words}
    assert without == set()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sbx", "exe"], ["exec"]),
        (["sbx", "run", "--exp"], ["--expect"]),
        (["sbx", "run", "hooks-d"], ["hooks-demo"]),
        (["sbx", "session", "expo"], ["export"]),
        (["sbx", "inspect", "--js"], ["--json"]),
        (["sbx", "exec", "remembered-"], ["remembered-box"]),
    ],
)
def test_bash_completes_commands_options_and_names(words: list[str], expected: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state" / "sbx" / "sandboxes"
    state.mkdir(parents=True)
    (state / "remembered-box.json").write_text("{}")
    script = f"""
        sbx() {{ {sys.executable} -m runner "$@"; }}
        {bash(describe())}
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _sbx; echo "${{COMPREPLY[@]}}"
    """
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPO),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "DOCKER_HOST": "unix:///no/such/socket",
    }
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_every_shell_knows_every_command() -> None:
    described = describe()
    for script in (bash(described), zsh(described), fish(described)):
        assert all(each.name in script for each in described)


def test_completing_names_imports_no_command_line() -> None:
    program = (
        "import sys; sys.argv = ['sbx', '_complete', 'kits', 'sandboxes', 'sessions']\n"
        "from runner.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'typer', 'docker', 'pydantic', 'httpx', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    environ = {"PYTHONPATH": str(REPO), "DOCKER_HOST": "unix:///no/such/socket", "HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert ("hooks-demo" in done.stdout.split(), done.stderr) == (True, "[]\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["rnu"], 2, "did you mean 'run'?"),
        (["ls", "--jsn"], 2, "did you mean --json?"),
        (["exec", "--workdri", "x", "y"], 125, "did you mean --workdir?"),
        (["exec"], 125, "Missing argument"),
        (["stop", "-t", "x", "y"], 2, "Invalid value"),
        (["cp", "a", "b"], 2, "neither is in a sandbox"),
        (["completion", "csh"], 2, "none of bash, zsh, fish"),
        (["rm"], 2, "no sandbox is named"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(arguments) == code
    said = capsys.readouterr()
    assert (said.out, words in said.err, said.err.startswith("error: ")) == ("", True, True)


def test_a_mistake_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", "--json", "--no-such"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_changes_no_code_and_crashes_nothing(closed: str, tmp_path: Path) -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPO),
        "XDG_STATE_HOME": str(tmp_path),
        "DOCKER_HOST": "unix:///no/such/socket",
    }
    line = f"exec {sys.executable} -m runner ls {closed}"
    done = subprocess.run(["sh", "-c", line], env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False)
    assert not (tmp_path / "sbx" / "last-crash.txt").exists()


def test_a_name_that_is_a_path_neither_stops_a_prune_nor_is_opened(tmp_path: Path) -> None:
    from runner.sandbox import owner
    from runner.sandbox.removing import leftovers

    here = owner.current()
    dead = owner.Owner(here.host, here.boot, here.namespace, 2**22 - 3, 1).label()

    class Engine:
        def get(self, path: str, **_: object) -> object:
            if path.startswith("/containers"):
                labels = {"dev.sbx.sandbox": "../../evil", "dev.sbx.owner": dead}
                return [{"Id": "a" * 64, "Names": ["/x"], "Labels": labels, "State": "created", "Created": 1}]
            return {"Volumes": None} if path.startswith("/volumes") else []

    found = leftovers(Engine(), tmp_path / "locks")  # type: ignore[arg-type]
    assert [(each.kind, each.name) for each in found] == [("container", "../../evil")]
    assert list(tmp_path.rglob("*evil*")) == []
