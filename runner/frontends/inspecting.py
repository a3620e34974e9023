"""`sbx inspect`: a sandbox and its controls, for people and for programs."""

from __future__ import annotations

from typing import Any

from runner.frontends.safe import safe_line
from runner.frontends.terminal import Styled
from runner.sandbox.effective import Effective
from runner.sandbox.listing import Listed


def lines(listed: Listed, found: Effective) -> list[Styled]:
    """Facts, then one line a control; what differs from the default is marked and says the default."""
    facts = [
        ("sandbox", listed.name),
        ("state", found.state + (f" (code {found.exit_code})" if found.state == "exited" else "")),
        ("kept", "yes" if listed.kept else "no, removed when its run ends"),
        ("kit", listed.kit),
        ("image", f"{listed.image} ({found.image_id.removeprefix('sha256:')[:12]})"),
        ("workspace", f"{listed.workspace} at {found.target}"),
        ("container", listed.container[:12]),
        ("session", listed.session),
        ("problem", listed.problem),
    ]
    shown = [Styled(f"{name + ':':<18} {safe_line(value)}") for name, value in facts if value]
    shown.append(Styled(""))
    for control in found.controls:
        text = f"{'!' if control.differs else ' '} {control.name:<16} {safe_line(control.value)}"
        if control.differs:
            shown.append(Styled(f"{text}   (default: {safe_line(control.default)})", "red"))
        else:
            shown.append(Styled(text))
    return shown


def document(listed: Listed, found: Effective) -> dict[str, Any]:
    """The same for `--json`; `controls` in the table's order."""
    return {
        **listed.to_json(),
        "state": found.state,
        "started": found.started,
        "exit_code": found.exit_code,
        "image_id": found.image_id,
        "target": found.target,
        "differs": [c.name for c in found.controls if c.differs],
        "controls": [
            {"name": c.name, "value": c.value, "default": c.default, "differs": c.differs} for c in found.controls
        ],
    }
