"""`sbx log`, `sbx report`, `sbx session`: what happened in a session."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

ID = "A session's id, its beginning or its end; the last one when left out."


def log(
    session: str = typer.Argument(None, help=ID),
    as_json: bool = typer.Option(False, "--json", help="Print the record's lines as they are."),
    hooks: bool = typer.Option(False, "--hooks", help="A table of the hooks that ran: event, hook, verdict, ms."),
    full: bool = typer.Option(False, "--full", help="Long texts in full."),
    stats: bool = typer.Option(False, "--stats", help="A summary in a few lines."),
) -> None:
    """Show the record of a session, each line with its time."""
    from runner.frontends.log import hook_table, log_lines, stats_lines
    from runner.frontends.terminal import Output
    from runner.session.record import FILE, iterate, load
    from runner.session.sessions import find_session
    from runner.session.state import Folders

    folder = find_session(Folders.of(), session)
    if as_json:
        for raw in iterate(folder / FILE):
            sys.stdout.buffer.write(raw)
        return
    out = Output(sys.stdout)
    lines = load(folder)
    if hooks:
        out.lines(hook_table(lines))
    elif stats:
        out.lines(stats_lines(lines))
    else:
        for line in log_lines(lines, folder, full=full):
            out.lines([line])


def report(
    session: str = typer.Argument(None, help=ID),
    output: Path = typer.Option(..., "-o", "--output", help="The page; - for stdout."),
) -> None:
    """Write a session as one self-contained HTML page."""
    from runner.frontends.report import report_html
    from runner.session.record import load
    from runner.session.sessions import find_session
    from runner.session.state import Folders

    folder = find_session(Folders.of(), session)
    page = report_html(load(folder), folder)
    write_out(output, page)


def write_out(output: Path, text: str) -> None:
    """Writes a result to a file, or to stdout for `-`."""
    from runner.errors import UsageError

    if str(output) == "-":
        print(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", place=str(output)) from None


session_app = typer.Typer(help="Earlier sessions: list, show, remove, export.", no_args_is_help=True)


@session_app.command("ls")
def list_sessions(as_json: bool = typer.Option(False, "--json", help="Print them as JSON.")) -> None:
    """List the sessions, oldest first."""
    from dataclasses import asdict

    from runner.frontends.safe import safe_line
    from runner.session.sessions import summaries
    from runner.session.state import Folders

    found = list(summaries(Folders.of()))
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    for each in found:
        status = each.damaged or each.status or "unfinished"
        print(f"{each.id}  {each.turns:>3} turns  {safe_line(status, 40):<12} {safe_line(each.sandbox, 60)}")


session_app.command("show")(log)


@session_app.command("rm")
def remove_sessions(sessions: list[str] = typer.Argument(..., help="Ids.")) -> None:
    """Remove sessions, their records with them."""
    from runner.session.sessions import find_session, remove
    from runner.session.state import Folders

    folders = Folders.of()
    for name in sessions:
        folder = find_session(folders, name)
        remove(folder)
        print(folder.name)


@session_app.command("export")
def export_session(
    session: str = typer.Argument(None, help=ID),
    output: Path = typer.Option(..., "-o", "--output", help="A new tar.gz file."),
) -> None:
    """Pack a session, record and outputs, into one archive."""
    from runner.errors import UsageError
    from runner.session.sessions import export, find_session
    from runner.session.state import Folders

    folder = find_session(Folders.of(), session)
    try:
        with output.open("xb") as file:
            export(folder, file)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", place=str(output)) from None
