"""One attack, tried once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.escape.attack import HARDENED, HARDENED_ROOT, Attack, Outcome
from tests.escape.attacks import Tried
from tests.escape.stage import Stage

HARDENED_FOR = {1000: HARDENED, 0: HARDENED_ROOT}


@dataclass(frozen=True)
class Trial:
    """An attack against the hardened sandbox and, once an attack, against one without the control."""

    attack: Attack | Tried
    owner: int
    on: Outcome
    off: Outcome | None = None

    @property
    def held(self) -> bool:
        """It ran, and reached nothing."""
        return self.on.told and not self.on.reached

    def without(self, off: Outcome) -> Trial:
        return replace(self, off=off)


def run(stage: Stage, attack: Attack | Tried, where: str) -> Outcome:
    """Runs the attack's script, and what looks for its traces, in a sandbox of that name."""
    if not isinstance(attack, Attack):
        return attack.run(stage, where)
    box = stage.box(where)
    first = Outcome.of(box.run(attack.script))
    if not attack.then or first.reached or not first.told:
        return first
    return Outcome.of(box.run(attack.then))
