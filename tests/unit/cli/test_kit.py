"""`sbx kit` and what of `sbx image` needs no engine, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
FIXTURES = REPO / "tests" / "fixtures" / "kits"


def sbx(*arguments: str | Path, cwd: Path | None = None, home: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(REPO), "DOCKER_HOST": "unix:///nowhere.sock"}
    command = [sys.executable, "-m", "runner", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd or home, env=env, timeout=60, check=False)


def test_every_kit_of_the_repository_is_valid(tmp_path: Path) -> None:
    kits = [path.parent for folder in ("sbx", "mixins") for path in sorted((REPO / folder).glob("*/spec.yaml"))]
    done = sbx("kit", "validate", "--json", *kits, *sorted(FIXTURES.iterdir()), home=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True), told
    assert len(told["kits"]) > len(kits) >= 13


def test_a_wrong_kit_is_code_2_and_the_others_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "spec.yaml").write_text('schemaVersion: "2"\nkind: mixin\nname: bad\nsetups: {}\n')
    done = sbx("kit", "validate", tmp_path / "bad", FIXTURES / "child", home=tmp_path)
    assert done.returncode == 2
    assert "spec.yaml:4:1" in done.stdout
    assert "'setup'" in done.stdout
    assert "1 of 2 kits are right" in done.stdout


def test_init_writes_a_kit_that_validate_and_inspect_take(tmp_path: Path) -> None:
    assert sbx("kit", "init", "mine", home=tmp_path).returncode == 0
    assert sbx("kit", "validate", "./mine", home=tmp_path).returncode == 0
    assert sbx("kit", "init", "mine", home=tmp_path).returncode == 3
    shown = sbx("kit", "inspect", "./mine", "--json", home=tmp_path)
    assert json.loads(shown.stdout)["name"] == "mine", shown.stderr


def test_inspect_tells_hooks_credentials_ports_and_what_cannot_work(tmp_path: Path) -> None:
    done = sbx("kit", "inspect", "hooks-demo", "--json", home=tmp_path)
    told = json.loads(done.stdout)
    guards = [hook for hook in told["hooks"] if hook["event"] == "preToolCall"]
    assert [(hook["user"], hook["on_error"], hook["matcher"]) for hook in guards] == [("hook", "fail", "^bash$")]
    every = json.loads(
        sbx("kit", "inspect", FIXTURES / "every-key", "--json", "--kit-arg", "region=eu", home=tmp_path).stdout
    )
    assert every["credentials"]
    assert every["published"]
    assert every["image"].startswith("sbx/every-key:")


def test_a_mixins_hooks_are_shown_as_its_own(tmp_path: Path) -> None:
    kit = tmp_path / "guarded"
    kit.mkdir()
    (kit / "spec.yaml").write_text('schemaVersion: "2"\nkind: mixin\nname: guarded\n')
    (kit / "hooks.yaml").write_text("preToolCall: [{command: ./guard, matcher: bash}]\n")
    told = json.loads(sbx("kit", "inspect", kit, "--json", home=tmp_path).stdout)
    assert [hook["by"] for hook in told["hooks"] if hook["command"] == "./guard"] == ["kit guarded"]


def test_ls_is_in_a_stable_order_and_names_the_ready_made_ones(tmp_path: Path) -> None:
    done = sbx("kit", "ls", "--json", home=tmp_path)
    kits = json.loads(done.stdout)
    assert [kit["name"] for kit in kits if kit["kind"] == "sandbox"] == ["ci", "coder", "hooks-demo", "shell"]
    assert done.stdout == sbx("kit", "ls", "--json", home=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("image", "ls"), 4),
        (("image", "pull", "Not A Reference"), 4),
        (("image", "build", "nosuch"), 3),
        (("image", "build", "hooks-demo", "--locked"), 2),
        (("image", "save", "x.tar"), 2),
        (("image", "frobnicate"), 2),
        (("kit", "inspect", "nosuch"), 3),
        (("kit", "init", "../walks"), 2),
    ],
)
def test_errors_have_codes_and_no_trace(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    done = sbx(*arguments, home=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
