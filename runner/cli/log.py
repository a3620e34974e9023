"""`sbx log`: what happened in a session."""

from __future__ import annotations

import typer


def log(
    session: str = typer.Argument(None, help="A session's id, or a part of it; the last one when left out."),
    json: bool = typer.Option(False, "--json", help="Print the record's lines as they are."),
    hooks: bool = typer.Option(False, "--hooks", help="A table of the hooks that ran: event, hook, verdict, ms."),
) -> None:
    """Show the record of a session."""
    from runner.frontends import log as rendering
    from runner.session.sessions import find_session
    from runner.session.state import Folders

    folder = find_session(Folders.of(), session)
    rendering.show(folder, raw=json, hooks=hooks)
