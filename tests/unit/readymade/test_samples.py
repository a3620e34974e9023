"""Every sample beside a ready-made hook is what that hook really answers."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import HOOKS, Run

SAMPLES = HOOKS / "samples"
CASES = sorted(path.relative_to(SAMPLES).as_posix().removesuffix(".in.json") for path in SAMPLES.glob("*/*.in.json"))
READY_MADE = sorted(
    path for path in HOOKS.iterdir() if path.suffix in (".js", ".py", ".sh") and path.stat().st_mode & 0o111
)


def sample(case: str, kind: str, workspace: Path, default: Any = None) -> Any:
    path = SAMPLES / f"{case}.{kind}.json"
    if default is not None and not path.exists():
        return default
    today = datetime.date.today()
    text = path.read_text("utf-8").replace("${WORKSPACE}", str(workspace))
    return json.loads(text.replace("${TODAY}", f"{today:%A}, {today:%Y-%m-%d}"))


@pytest.mark.parametrize("case", CASES)
def test_a_hook_answers_as_its_sample_says(case: str, run: Run, workspace: Path) -> None:
    hook = next(path.name for path in READY_MADE if path.stem == case.split("/")[0])
    outcome = run(hook, sample(case, "in", workspace), args=sample(case, "args", workspace, default=[]))
    assert outcome.code == 0
    assert outcome.stderr == b""
    assert outcome.answer == sample(case, "out", workspace)


@pytest.mark.parametrize("hook", [path.name for path in READY_MADE])
def test_every_ready_made_hook_has_samples(hook: str) -> None:
    assert [case for case in CASES if case.split("/")[0] == Path(hook).stem]


def test_every_sample_has_an_answer_and_a_hook() -> None:
    stems = {path.stem for path in READY_MADE}
    assert {case.split("/")[0] for case in CASES} <= stems
    assert all((SAMPLES / f"{case}.out.json").is_file() for case in CASES)
