"""`sbx cp`: files into a sandbox and out of it."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def cp(
    source: str = typer.Argument(..., help="A path here, NAME:PATH in a sandbox, or - for a tar on stdin."),
    target: str = typer.Argument(..., help="The same; - for a tar on stdout."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Say nothing of what was copied."),
    as_json: bool = typer.Option(False, "--json", help="Print what was copied as JSON."),
) -> int:
    """Copy files between this machine and a sandbox.

    What comes out is made with your own rights: links that lead out of the copy, devices and pipes are left out and
    named, owners and setuid bits do not travel. What goes in belongs to the workspace's owner.
    """
    from runner.cli.running import run_async
    from runner.errors import UsageError
    from runner.frontends.document import dumps
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled
    from runner.launch.entering import enter
    from runner.session.copying import copy
    from runner.session.copying.folder import Written

    here, there = copy.parse(source), copy.parse(target)
    if bool(here.sandbox) == bool(there.sandbox):
        both = "both are in sandboxes" if here.sandbox else "neither is in a sandbox"
        raise UsageError(f"{source} and {target}: {both}", hint="one of the two is written NAME:PATH")

    async def work() -> Written | None:
        async with enter(here.sandbox or there.sandbox) as entered:
            commander, workspace = entered.commander, entered.target
            if here.sandbox:
                if target == "-":
                    await copy.stream_out(commander, workspace, here.path, sys.stdout.fileno())
                    return None
                return await copy.copy_out(commander, workspace, here.path, Path(target))
            if source == "-":
                await copy.stream_in(commander, workspace, sys.stdin.fileno(), there.path)
                return None
            # Not a Path from the start: that would drop the `/.` that means a folder's content.
            return await copy.copy_in(commander, workspace, source, there.path)

    written = run_async(work())
    if written is None:
        return 0
    if as_json:
        print(dumps(vars(written), indent=2))
        return 0
    out = Output(sys.stderr)
    for each in written.left_out:
        out.lines([Styled(f"left out: {safe_line(each)}", "yellow")])
    if written.left_out_count > len(written.left_out):
        out.lines([Styled(f"left out: {written.left_out_count - len(written.left_out)} more", "yellow")])
    if not quiet:
        parts = [(written.files, "files"), (written.folders, "folders"), (written.links, "links")]
        told = ", ".join(f"{n} {w if n != 1 else w[:-1]}" for n, w in parts if n) or "nothing"
        out.lines([Styled(f"copied {told} ({written.size} bytes)", "dim")])
    return 0
