"""`python -m tests.escape`: every attack with its control and without it, as a table."""

from __future__ import annotations

import sys

from tests.escape.attack import HARDENED
from tests.escape.attacks import ATTACKS, UNSHOWABLE
from tests.escape.stage import Stage
from tests.escape.trial import HARDENED_FOR, Trial, run

WIDTHS = (44, 46, 52)


def main(names: list[str]) -> int:
    trials: list[Trial] = []
    unshowable: list[tuple[str, str]] = []
    chosen = [attack for attack in ATTACKS if not names or any(name in attack.name for name in names)]
    print(f"{'attack':<{WIDTHS[0]}} {'control':<{WIDTHS[1]}} {'with it':<{WIDTHS[2]}} without it", flush=True)
    with Stage() as stage:
        for attack in chosen:
            for owner in attack.owners:
                trial = Trial(attack, owner, run(stage, attack, HARDENED_FOR[owner]))
                if owner == attack.owners[0]:
                    trial = trial.without(run(stage, attack, attack.off))
                trials.append(trial)
                shown = "(as above)" if trial.off is None else trial.off.text
                name = attack.name if HARDENED_FOR[owner] == HARDENED else f"{attack.name} (U = {owner})"
                row = f"{name:<{WIDTHS[0]}} {attack.control:<{WIDTHS[1]}} {trial.on.text:<{WIDTHS[2]}} {shown}"
                print(row + ("" if trial.held else "   <-- THROUGH"), flush=True)
                if trial.off is not None and not trial.off.reached and attack.name in UNSHOWABLE:
                    unshowable.append((attack.name, trial.off.text))
    through = sum(not trial.held for trial in trials)
    skipped = {name for name, _ in unshowable}
    unproven = [t for t in trials if t.off is not None and not t.off.reached and t.attack.name not in skipped]
    for name, text in unshowable:
        print(f"cannot be shown on this kernel: {name}: {text}")
    for trial in unproven:
        print(f"unproven: {trial.attack.name}: {trial.off.text if trial.off else ''}")
    counted = len({trial.attack.name for trial in trials} - skipped)
    print(f"attacks: {counted}, through: {through}, unproven: {len(unproven)}")
    return 1 if through or unproven else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
