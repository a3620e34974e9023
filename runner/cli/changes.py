"""`sbx diff`, `sbx apply`, `sbx export`: what an agent changed in its private copy of a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.sandbox.changes import Change, Changes
    from runner.sandbox.cloning import Baseline
    from runner.sandbox.listing import Listed
    from runner.sandbox.transfer import Refused

MARK = {"added": "A", "modified": "M", "deleted": "D"}
EXIT_LEFT = 1
"""Something was not applied."""


def diff(
    name: str = typer.Argument(..., help="The sandbox, made with --mode clone."),
    paths: list[str] = typer.Argument(None, help="Only these files."),
    names: bool = typer.Option(False, "--name-only", help="The files alone."),
    as_json: bool = typer.Option(False, "--json", help="The files as JSON."),
) -> int:
    """Show what an agent changed in its copy of a workspace, as a patch."""
    from runner.frontends.document import dumps
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output
    from runner.sandbox import changes

    with _copy_of(name) as (found, _):
        chosen = _chosen(found, paths)
        if as_json:
            print(
                dumps({"sandbox": name, "changes": [c.to_json() for c in chosen], "left_out": _left(found)}, indent=2)
            )
        elif names:
            for change in chosen:
                print(f"{MARK[change.kind]} {safe_line(change.path)}{_notes(change)}")
        else:
            _tell(Output(sys.stderr), chosen, found.refused)
            text = changes.patch(found, {change.path for change in chosen})
            if sys.stdout.isatty():
                from runner.frontends.safe import safe

                print(safe(text.decode("utf-8", "replace")), end="")
            else:
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()
    return 0


def apply(
    name: str = typer.Argument(..., help="The sandbox, made with --mode clone."),
    paths: list[str] = typer.Argument(None, help="Only these files."),
    interactive: bool = typer.Option(False, "-i", "--interactive", help="Ask about each file."),
    force: bool = typer.Option(False, "--force", help="Also files that you have changed meanwhile."),
    as_json: bool = typer.Option(False, "--json", help="Print what was done as JSON."),
) -> int:
    """Write what an agent changed in its copy into your workspace.

    A file that you have changed meanwhile is left alone, and named (code 1). Links that lead out, devices and .git
    never come along.
    """
    from runner.errors import UsageError
    from runner.frontends.document import dumps
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled
    from runner.sandbox import changes, cloning

    if interactive and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", hint="name the files instead of --interactive")
    with _copy_of(name) as (found, clones):
        chosen = _chosen(found, paths)
        out = Output(sys.stderr)
        if interactive:
            chosen = [change for change in chosen if _wanted(found, change)]
        elif not as_json:
            _tell(out, chosen, found.refused)
        done = changes.apply(found, {change.path for change in chosen}, force=force)
        cloning.save(clones, name, done.baseline)
    if as_json:
        refused = [{"path": each.name, "reason": each.reason} for each in (*found.refused, *done.refused)]
        told = {"written": done.written, "deleted": done.deleted, "conflicts": done.conflicts, "left_out": refused}
        print(dumps({key: list(value) for key, value in told.items()}, indent=2))
    else:
        for path in done.conflicts:
            out.lines([Styled(f"not applied, you have changed it too: {safe_line(path)}", "yellow")])
        for each in done.refused:
            out.lines([Styled(f"not applied: {safe_line(each.name)}: {each.reason}", "yellow")])
        print(f"{len(done.written)} written, {len(done.deleted)} deleted")
    return EXIT_LEFT if done.conflicts or done.refused else 0


def export(
    name: str = typer.Argument(..., help="The sandbox, made with --mode clone or none."),
    folder: Path = typer.Argument(..., help="A new or empty folder."),
    as_json: bool = typer.Option(False, "--json", help="Print what was left out as JSON."),
) -> int:
    """Copy a sandbox's private workspace into a folder.

    Its git history comes along; its git hooks and git configuration, which would run on this machine, do not.
    """
    from runner.errors import UsageError
    from runner.frontends.document import dumps
    from runner.frontends.terminal import Output
    from runner.sandbox import changes
    from runner.sandbox.effective import effective, mode_of
    from runner.sandbox.profile import PRIVATE_MODES

    engine, listed = _found(name)
    known = effective(engine, listed.container)
    if mode_of(known.document) not in PRIVATE_MODES:
        raise UsageError(f"the sandbox {name} works on {listed.workspace} itself: there is nothing to export")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be used: {error.strerror}") from None
    if not empty:
        raise UsageError(f"{folder} is not empty", hint="name a new folder")
    report = changes.take_out(engine, listed.container, known.target, folder, git=True)
    if as_json:
        refused = [{"path": each.name, "reason": each.reason} for each in report.refused]
        print(dumps({"folder": str(folder), "files": len(report.written), "left_out": refused}, indent=2))
        return 0
    _tell(Output(sys.stderr), [], tuple(report.refused))
    print(f"{len(report.written)} files in {folder}")
    return 0


def _found(name: str) -> tuple[Engine, Listed]:
    from runner.engine import connect
    from runner.sandbox.listing import find_sandbox

    engine = connect(os.environ)
    return engine, find_sandbox(engine, name)


@contextmanager
def _copy_of(name: str) -> Iterator[tuple[Changes, Path]]:
    """The changes of a sandbox's copy, and the folder in which its baseline is kept."""
    from runner.errors import UsageError
    from runner.launch.workplace import baseline, clones
    from runner.sandbox import changes
    from runner.session.state import Folders

    engine, listed = _found(name)
    folders = Folders.of()
    made: Baseline | None = baseline(folders, listed.name)
    if made is None:
        raise UsageError(
            f"the sandbox {name} has no copy of a workspace that was made on this machine",
            hint="`sbx run --mode clone --keep` makes one; `sbx export` takes all files out",
        )
    with changes.collected(engine, listed.container, made) as found:
        yield found, clones(folders)


def _chosen(found: Changes, paths: list[str] | None) -> list[Change]:
    from runner.errors import UsageError

    if not paths:
        return list(found.changes)
    wanted = {path.rstrip("/").removeprefix("./") for path in paths}
    chosen = [c for c in found.changes if c.path in wanted or any(c.path.startswith(f"{w}/") for w in wanted)]
    for path in sorted(wanted):
        if not any(c.path == path or c.path.startswith(f"{path}/") for c in chosen):
            raise UsageError(f"{path} was not changed")
    return chosen


def _notes(change: Change) -> str:
    notes = ["you have changed it too"] if change.conflict else []
    notes += [change.acts] if change.acts else []
    return f"  ({'; '.join(notes)})" if notes else ""


def _left(found: Changes) -> list[dict[str, str]]:
    return [{"path": each.name, "reason": each.reason} for each in found.refused]


def _tell(out: object, chosen: list[Change], refused: tuple[Refused, ...]) -> None:
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled

    assert isinstance(out, Output)
    lines = [f"acts on this machine: {safe_line(c.path)} ({c.acts})" for c in chosen if c.acts and c.kind != "deleted"]
    lines += [f"you have changed it too: {safe_line(c.path)}" for c in chosen if c.conflict]
    lines += [f"left out: {safe_line(each.name)}: {safe_line(each.reason)}" for each in refused]
    out.lines([Styled(line, "yellow") for line in lines])


def _wanted(found: Changes, change: Change) -> bool:
    """Shows one file and asks."""
    from runner.frontends.safe import safe, safe_line
    from runner.sandbox import changes

    print(safe(changes.patch(found, {change.path}).decode("utf-8", "replace")))
    question = f"{MARK[change.kind]} {safe_line(change.path)}{_notes(change)}: apply? [y/N] "
    return input(question).strip().lower() in ("y", "yes")
