"""`sbx kit`: check, show, begin and list kits. Nothing of a kit is run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(help="Check, show, begin and list kits.", no_args_is_help=True, rich_markup_mode=None)


@app.command("validate")
def validate(
    paths: list[str] = typer.Argument(..., metavar="PATH…", help="Folders, spec files, names or pinned references."),
    as_json: bool = typer.Option(False, "--json", help="Print the verdicts as JSON."),
    portable: bool = typer.Option(False, "--portable", help="Warn of what Docker's own command does not read."),
) -> int:
    """Check kits, many at once: code 0 when all are right."""
    from runner.kits.validate import validate as check

    verdicts = check(paths, portable=portable)
    failed = [verdict for verdict in verdicts if not verdict.ok]
    if as_json:
        print(json.dumps({"ok": not failed, "kits": [verdict.to_json() for verdict in verdicts]}, indent=2))
        return failed[0].code if failed else 0
    out = _out()
    for verdict in verdicts:
        out.lines([_line(f"{'ok  ' if verdict.ok else 'FAIL'} {verdict.path}", "plain" if verdict.ok else "red")])
        out.lines(_line(f"     {text}", "red") for text in verdict.errors)
        out.lines(_line(f"     warning: {text}", "yellow") for text in verdict.warnings)
    if len(verdicts) > 1:
        out.lines([_line(f"{len(verdicts) - len(failed)} of {len(verdicts)} kits are right")])
    return failed[0].code if failed else 0


@app.command("inspect")
def inspect(
    kit: str = typer.Argument(..., help="A kit's name or folder."),
    kits: list[str] = typer.Option([], "--kit", help="A further mixin. Repeatable."),
    kit_arg: list[str] = typer.Option([], "--kit-arg", help="[KIT.]NAME=VALUE. Repeatable."),
    kit_args_file: Path | None = typer.Option(
        None, "--kit-args-file", help="File of [KIT.]NAME=VALUE lines, or YAML; --kit-arg wins."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print all of it as JSON."),
) -> int:
    """Show what a kit comes to: installed, opened, mounted, published, credentials, hooks. Nothing is run."""
    from runner.images.build import tag
    from runner.kits.arguments import kit_arguments
    from runner.kits.effective import effective

    document = effective(kit, kits, kit_arguments(kit_arg, kit_args_file), os.environ, tag)
    if as_json:
        print(json.dumps(document, indent=2))
        return 0
    _out().lines(_line(text) for text in _shown(document))
    return 0


@app.command("init")
def init(
    name: str = typer.Argument(..., help="The kit's name, which becomes a folder here."),
    kind: str = typer.Option("sandbox", "--kind", help="sandbox, or mixin."),
    folder: Path = typer.Option(Path(), "--in", help="Where the folder is made."),
) -> int:
    """Write the skeleton of a new kit."""
    from runner.kits.shelf import init as write

    target = write(name, folder, kind=kind)
    _out().lines([_line(f"{target} is a kit now; next: sbx kit validate {target}")])
    return 0


@app.command("ls")
def ls(as_json: bool = typer.Option(False, "--json", help="Print the list as JSON.")) -> int:
    """List the kits that a bare word can name."""
    from runner.kits.shelf import ls as found

    kits = found()
    if as_json:
        print(json.dumps([kit.to_json() for kit in kits], indent=2))
        return 0
    width = max((len(kit.name) for kit in kits), default=0)
    for kit in kits:
        said = f"cannot be read: {kit.error}" if kit.error else kit.description
        mark = " (hidden by another of this name)" if kit.hidden else ""
        style = "red" if kit.error else "plain"
        _out().lines([_line(f"{kit.name:<{width}}  {kit.kind or '?':<7}  {kit.source:<10}  {said}{mark}", style)])
    return 0


def _out() -> Any:
    from runner.frontends.terminal import Output

    return Output(sys.stdout)


def _line(text: str, style: str = "plain") -> Any:
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Styled

    return Styled(safe_line(text), style)


def _shown(told: dict[str, Any]) -> list[str]:
    """The effective plan for people: one block a subject, empty ones left out."""
    base = told["base"]
    lines = [f"kit          {told['name']}", f"image        {told['image']}"]
    lines.append(f"base         {base.get('image') or base['context'] + ', ' + base['dockerfile']}")
    resources = told["resources"]
    lines.append(f"resources    {resources['cpus']:g} CPUs, {resources['memory'] // 1024**2} MiB")
    for kit in told["kits"]:
        arguments = "".join(f" {name}={value}" for name, value in kit["arguments"].items())
        lines.append(f"kit          {kit['name']} ({kit['kind']}){arguments}, from {kit['from']}")
    for layer in told["installed"]:
        lines += [f"installs     {layer['kit']}, user {c['user']}: {c['command'].strip()}" for c in layer["commands"]]
        lines += [f"home file    {layer['kit']}: {path}" for path in layer["home"]]
    opened = told["opened"]
    for word, rules in (
        ("opens", opened["allow"]),
        ("denies", opened["deny"]),
        ("build opens", opened["during_build"]["allow"]),
        ("build denies", opened["during_build"]["deny"]),
    ):
        lines += [f"{word:<12} {rule['host']} ({rule['by']})" for rule in rules]
    for volume in told["mounted"]:
        lines.append(f"mounts       {volume['type']} at {volume['path']} {volume['size']} ({volume['by']})")
    for port in told["published"]:
        lines.append(f"publishes    {port['container']}/{port['protocol']} {port['name']} ({port['by']})")
    for credential in told["credentials"]:
        need = "required" if credential["required"] else "optional"
        goes = ", ".join(credential["sent_to"]) or "nowhere"
        lines.append(f"credential   {credential['service']}, {need}, sent to {goes} ({credential['by']})")
    lines += [f"variable     {name}={v['value']} ({v['by']})" for name, v in told["environment"].items()]
    for file in told["files"]["written_at_start"]:
        lines.append(f"writes       {file['path']} {file['mode']} ({file['by']})")
    lines += [f"workspace    {path}" for path in told["files"]["workspace"]]
    for entry in told["startup"]:
        where = ", in the background" if entry["background"] else ""
        lines.append(f"at start     user {entry['user']}{where}: {' '.join(entry['command'])} ({entry['by']})")
        if fault := entry.get("cannot_work"):
            lines.append(f"             this cannot work: {fault}")
    lines += [f"instructs    {i['file']}, {i['characters']} characters ({i['by']})" for i in told["instructions"]]
    agent = told["agent"]
    lines.append(f"agent        {agent['provider']} {agent['model'] or '(first model that the server lists)'}")
    lines += [f"model URL    {url}" for url in agent["urls"]]
    lines.append(
        f"tools        {' '.join(agent['tools']) or 'none'}{', without asking' if agent['yolo'] else ', asked'}"
    )
    for hook in told["hooks"]:
        of = f" on {hook['matcher']}" if hook["matcher"] else ""
        at = "host" if hook["where"] == "host" else f"as {hook['user']}"
        lines.append(
            f"hook         {hook['event']}{of}: {hook['command']} ({at}, onError {hook['on_error']}, {hook['by']})"
        )
    for name in told["privileged"]:
        lines.append(f"asks for     a privileged container ({name}); refused without --grant privileged")
    lines += [f"warning      {text}" for text in told["warnings"]]
    return lines
