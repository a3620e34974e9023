"""Every attack reaches nothing in a sandbox, and something in one without the control that it is about.

`make test-escape` prints the same as a table.
"""

from __future__ import annotations

import pytest

from tests.escape.attack import Attack
from tests.escape.attacks import ATTACKS, UNSHOWABLE, Tried
from tests.escape.stage import Stage
from tests.escape.trial import HARDENED_FOR, run

pytestmark = pytest.mark.engine


def _rows(owner: int | None = None) -> list[object]:
    """The attacks as parameters; the slow ones are left to `make test-slow` and `make test-escape`."""
    return [
        pytest.param(attack, id=attack.name.replace(" ", "-"), marks=[pytest.mark.slow] if attack.slow else [])
        for attack in ATTACKS
        if owner is None or owner in attack.owners
    ]


@pytest.mark.parametrize("attack", _rows(0))
def test_reaches_nothing_where_the_workspace_is_roots(stage: Stage, attack: Attack | Tried) -> None:
    outcome = run(stage, attack, HARDENED_FOR[0])
    assert outcome.told and not outcome.reached, outcome.text


@pytest.mark.parametrize("attack", _rows(1000))
def test_reaches_nothing(stage: Stage, attack: Attack | Tried) -> None:
    outcome = run(stage, attack, HARDENED_FOR[1000])
    assert outcome.told and not outcome.reached, outcome.text


@pytest.mark.parametrize("attack", _rows())
def test_would_reach_something_without_its_control(stage: Stage, attack: Attack | Tried) -> None:
    outcome = run(stage, attack, attack.off)
    assert outcome.reached or attack.name in UNSHOWABLE, outcome.text


def test_there_are_at_least_sixty_attacks_and_no_two_share_a_name() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 60
