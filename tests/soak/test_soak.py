"""The short form of the soak, and the whole of it (`make soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.soak import Soak

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def kit(folder: Path) -> Path:
    path = folder / "soak"
    path.mkdir()
    (path / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    return path


def test_twenty_runs_with_faults_are_all_accounted_for_and_leave_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    faults = {0.2: "kill host", 0.4: "lose model", 0.8: "jump clock"}
    summary = Soak(root, kit(tmp_path), runs=20, parallel=4, faults=faults, engine=None, seed=3).run()
    assert summary.wrong == [], summary.text()
    assert len(summary.faults) == 3
    assert summary.hosts == 2


@pytest.mark.slow
def test_a_hundred_questions_end_exactly_as_their_plan_says(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    summary = Soak(root, kit(tmp_path), runs=100, parallel=8, faults={}, engine=None, seed=100).run()
    assert summary.wrong == [], summary.text()
    assert (summary.codes, summary.by_fault, summary.hosts) == ({0: 80, 1: 18, 124: 2}, 0, 1)
