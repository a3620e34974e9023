"""A sandbox's life beside its sessions: `create`, `ls`, `inspect`, `stats`, `start`, `stop`, `rm`, `prune`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from runner.engine import Engine

NAME = "A sandbox's name, as `sbx ls` lists it."
FORMAT = "One line a row by a template, for example '{{.name}}'; '{{json .}}' is the whole row."
JSON = "Print JSON."

COLUMNS = (
    ("name", "NAME"),
    ("state", "STATE"),
    ("kept", "KEPT"),
    ("kit", "KIT"),
    ("workspace", "WORKSPACE"),
    ("age", "AGE"),
    ("problem", "PROBLEM"),
)


def create(
    sandbox: str = typer.Argument(..., help="A ready-made kit, a folder with agent.yaml or spec.yaml, or an image."),
    workspace: Path = typer.Argument(None, help="The folder that the agent works in."),
    name: str = typer.Option("", "--name", help="The sandbox's name."),
    network: str = typer.Option("none", "--network", help="none, packages, open, or bridge: the engine's own network."),
    kit: list[str] = typer.Option([], "--kit", help="A further mixin. Repeatable."),
    kit_arg: list[str] = typer.Option([], "--kit-arg", help="[KIT.]NAME=VALUE. Repeatable."),
    kit_args_file: Path | None = typer.Option(
        None, "--kit-args-file", help="File of [KIT.]NAME=VALUE lines, or YAML; --kit-arg wins."
    ),
    strict: bool = typer.Option(False, "--strict", help="Kits that clash are an error."),
    grant: list[str] = typer.Option([], "--grant", help="Allow what a kit asks for beyond the default. Repeatable."),
    mount: list[str] = typer.Option([], "--mount", help="SOURCE[:TARGET[:ro]]; a further folder. Repeatable."),
    device: list[str] = typer.Option([], "--device", help="A device of the host's. Repeatable."),
    cap_add: list[str] = typer.Option([], "--cap-add", help="A further capability of the container's. Repeatable."),
    cpus: float = typer.Option(None, "--cpus", help="CPUs (default 2)."),
    memory: str = typer.Option("", "--memory", help="Memory, for example 2g (default 4g)."),
    pids: int = typer.Option(None, "--pids", help="Processes (default 512)."),
    runtime: str = typer.Option("", "--runtime", help="A container runtime that the engine knows."),
    ca_certificate: list[Path] = typer.Option([], "--ca-certificate", help="PEM file that builds trust too."),
    as_json: bool = typer.Option(False, "--json", help=JSON),
) -> None:
    """Make a kept sandbox, and start nothing in it."""
    from runner import launch
    from runner.cli.run import build_progress
    from runner.cli.running import run_async
    from runner.frontends.document import dumps
    from runner.kits.arguments import kit_arguments

    options = launch.Options(
        sandbox=sandbox,
        workspace=workspace,
        network=network,
        keep=True,
        new=True,
        name=name,
        grants=grant,
        kits=kit,
        kit_args=kit_arguments(kit_arg, kit_args_file),
        strict=strict,
        cpus=cpus,
        memory=memory,
        pids=pids,
        runtime=runtime,
        mounts=mount,
        devices=device,
        capabilities=cap_add,
        certificates=ca_certificate,
    )
    prepared = launch.prepare(options)
    engine = launch.connect(prepared)
    image = launch.find_image(engine, prepared, build_progress(quiet=as_json))
    made = run_async(launch.create_sandbox(engine, prepared, image))
    print(
        dumps({"name": made.order.name, "container": made.container, "image": image.tag})
        if as_json
        else made.order.name
    )


def ls(
    running: bool = typer.Option(False, "--running", help="Only those that run."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Names only."),
    as_json: bool = typer.Option(False, "--json", help=JSON),
    template: str = typer.Option("", "--format", help=FORMAT),
) -> None:
    """List the sandboxes of this engine, by name."""
    from runner.frontends.listing import show_rows
    from runner.frontends.terminal import Output
    from runner.sandbox.listing import Listed, sandboxes

    found = [each for each in sandboxes(_engine()) if each.running or not running]
    out = Output(sys.stdout)
    if quiet:
        template = "{{.name}}"
    rows = [{**each.to_json(), "age": _age(each.created)} for each in found]
    if as_json:
        rows = [each.to_json() for each in found]
    known = (*Listed.__dataclass_fields__, "age")
    show_rows(out, rows, COLUMNS, as_json=as_json, template=template, known=known)


def inspect(
    name: str = typer.Argument(..., help=NAME),
    as_json: bool = typer.Option(False, "--json", help=JSON),
    template: str = typer.Option("", "--format", help=FORMAT),
) -> None:
    """Show what a sandbox may do, and what differs from the default.

    It is read from the engine, not from what was asked for.
    """
    from runner.frontends.inspecting import document, lines
    from runner.frontends.listing import show_rows
    from runner.frontends.terminal import Output
    from runner.sandbox.effective import effective
    from runner.sandbox.listing import find_sandbox

    engine = _engine()
    listed = find_sandbox(engine, name)
    found = effective(engine, listed.container)
    out = Output(sys.stdout)
    if as_json or template:
        row = document(listed, found)
        if as_json:
            from runner.frontends.document import dumps

            out.write(dumps(row, indent=2) + "\n")
        else:
            show_rows(out, [row], (), template=template)
    else:
        out.lines(lines(listed, found))


def stats(
    names: list[str] = typer.Argument(None, help="Names; all that run when left out."),
    as_json: bool = typer.Option(False, "--json", help=JSON),
    template: str = typer.Option("", "--format", help=FORMAT),
) -> None:
    """Show once what running sandboxes use.

    Processor, memory, processes, and bytes over the engine's network.
    """
    from runner.frontends.listing import show_rows
    from runner.frontends.terminal import Output
    from runner.sandbox.listing import find_sandbox, sandboxes
    from runner.sandbox.usage import COLUMNS as USAGE
    from runner.sandbox.usage import FIELDS, usage

    engine = _engine()
    asked = [find_sandbox(engine, n) for n in names] if names else [s for s in sandboxes(engine) if s.running]
    rows = [each.to_json() for each in usage(engine, asked)]
    show_rows(Output(sys.stdout), rows, USAGE, as_json=as_json, template=template, known=FIELDS)


def stop(
    names: list[str] = typer.Argument(..., help=NAME),
    seconds: int = typer.Option(10, "-t", "--time", min=0, help="Seconds it gets to end by itself."),
) -> int:
    """Stop sandboxes; a kept one keeps its home.

    A throwaway one is removed by its own session.
    """
    from runner.sandbox.container import stop as stop_container

    engine = _engine()
    return _each(engine, names, lambda listed: stop_container(engine, listed.container, seconds))


def rm(
    names: list[str] = typer.Argument(None, help=NAME),
    force: bool = typer.Option(False, "-f", "--force", help="Also one that is in use."),
    everything: bool = typer.Option(False, "--all", help="All of yours that are idle."),
) -> int:
    """Remove sandboxes with their homes.

    Their records stay: `sbx session rm` removes those.
    """
    from runner.errors import UsageError
    from runner.sandbox import removing
    from runner.sandbox.listing import sandboxes

    engine, locks = _engine(), _locks()
    if not names and not everything:
        raise UsageError("no sandbox is named", hint="`sbx ls` lists them; --all removes the idle ones")
    if everything:
        mine = [s for s in sandboxes(engine) if s.kept and removing.is_idle(s, locks)]
        names = [*(names or []), *(s.name for s in mine)]
    return _each(engine, names, lambda listed: removing.remove_sandbox(engine, listed, locks, force=force))


def prune(
    as_json: bool = typer.Option(False, "--json", help=JSON),
    dry_run: bool = typer.Option(False, "--dry-run", help="List what would be removed."),
) -> None:
    """Remove what dead runs left behind.

    That is: containers, volumes and networks whose process is certainly gone. Kept sandboxes are not touched.
    """
    from runner.frontends.document import dumps
    from runner.frontends.safe import safe_line
    from runner.sandbox.removing import leftovers, prune_leftovers

    engine, locks = _engine(), _locks()
    found = leftovers(engine, locks)
    done, failed = ([], []) if dry_run else prune_leftovers(engine, found)
    if as_json:
        print(dumps({"found": [f.to_json() for f in found], "removed": done, "failed": failed}, indent=2))
    elif dry_run:
        for each in found:
            print(f"{each.kind} {safe_line(each.name)}")
    else:
        for name in done:
            print(safe_line(name))
    if failed:
        from runner.errors import EngineError

        raise EngineError(f"{len(failed)} could not be removed: {', '.join(f['name'] for f in failed)}")


def _each(engine: Engine, names: list[str], act: object) -> int:
    """Does it to each; one that fails does not keep the others. The last failure's code."""
    from runner.cli.failing import report
    from runner.errors import SbxError
    from runner.sandbox.listing import find_sandbox

    assert callable(act)
    code = 0
    for name in dict.fromkeys(names):
        try:
            act(find_sandbox(engine, name))
            print(name, flush=True)
        except SbxError as error:
            report(error)
            code = error.exit_code
    return code


def _engine() -> Engine:
    from runner.engine import connect

    return connect(os.environ)


def _locks() -> Path:
    from runner.session.state import Folders

    return Folders.of().state / "sandboxes"


def _age(created: int) -> str:
    seconds = max(0, int(time.time()) - created)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
