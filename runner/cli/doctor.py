"""`sbx doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import json
import os
import sys

import typer

MARKS = {"ok": ("ok  ", "green"), "warning": ("warn", "yellow"), "failed": ("FAIL", "red")}


def doctor(as_json: bool = typer.Option(False, "--json", help="Print the findings as JSON.")) -> int:
    """Check the engine, the disk, the base image and the model server.

    One line each, with what to do about what is not well.
    """
    from runner.engine.doctor import examine, passed
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled
    from runner.kits.agent import default_agent

    checks = examine(os.environ, model_urls=default_agent(os.environ).urls)
    if as_json:
        print(json.dumps({"ok": passed(checks), "checks": [check.to_json() for check in checks]}, indent=2))
        return 0 if passed(checks) else 4
    out = Output(sys.stdout)
    for check in checks:
        mark, style = MARKS[check.status]
        out.lines([Styled(f"{mark} {check.name:<12} {safe_line(check.text)}", style if style != "green" else "plain")])
        if check.hint and check.status != "ok":
            out.lines([Styled(f"     {'':<12} {safe_line(check.hint)}", "dim")])
    return 0 if passed(checks) else 4
