"""`sbx doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import typer


def doctor(json: bool = typer.Option(False, "--json", help="Print the findings as JSON.")) -> None:
    """Check the engine, the disk, the base image and the model server, one line each."""
    raise NotImplementedError
