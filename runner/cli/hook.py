"""`sbx hook`: try a hook, bring the hooks of another agent along, see the chain as it will run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="Hooks: try one, import those of another agent, list a sandbox's chain.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("test")
def test(
    hook: str = typer.Argument(..., help="A file, or the name of a ready-made hook."),
    arguments: list[str] = typer.Argument(None, help="Arguments of the hook, after --."),
    event: str = typer.Option("", "--event", help="Default: preToolCall with --tool, else preGeneration."),
    tool: str = typer.Option("", "--tool", help="The tool's name."),
    given: str = typer.Option("", "--input", help="The tool's input, as JSON; @FILE reads a file, - stdin."),
    prompt: str = typer.Option("", "--prompt", help="The question."),
    output: str = typer.Option("", "--output", help="The tool's output, for postToolCall."),
    is_error: bool = typer.Option(False, "--is-error", help="The tool failed."),
    answer: str = typer.Option("", "--answer", help="The turn's answer, for postGeneration and stop."),
    data: str = typer.Option("", "--data", help="Further fields of the event, as JSON; @FILE, -."),
    matcher: str = typer.Option(None, "--matcher", help="As in agent.yaml."),
    timeout: str = typer.Option("10s", "--timeout", help="As in agent.yaml."),
    on_error: str = typer.Option("warn", "--on-error", help="As in agent.yaml."),
    user: str = typer.Option(None, "--user", help="As in agent.yaml."),
    dialect: str = typer.Option(None, "--dialect", help="As in agent.yaml."),
    persistent: bool = typer.Option(False, "--persistent", help="As in agent.yaml."),
    sandbox: str = typer.Option("", "--sandbox", help="Whose image is taken: the base, or hooks-demo for Node."),
    workspace: Path = typer.Option(None, "--workspace", help="Default: a copy of the demo's playground."),
    samples: bool = typer.Option(False, "--samples", help="Run all samples of a ready-made hook and compare."),
    expect: str = typer.Option("", "--expect", help="The verdict that is expected; another one is code 7."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> int:
    """Run one hook in the same sandbox as a run, and print its verdict."""
    from runner.cli import hook_trying as trying
    from runner.frontends.hooks import sample_lines, tried_lines
    from runner.frontends.terminal import Output
    from runner.kits.readymade import find_program

    program = find_program(hook)
    out = Output(sys.stdout)
    if samples:
        results = trying.run_samples(program, sandbox)
        if as_json:
            print(json.dumps(results, indent=2))
        else:
            out.lines(sample_lines(results))
        return 0 if all(result["ok"] for result in results) else 7
    event = event or ("preToolCall" if tool else "preGeneration" if prompt else "")
    fields = trying.fields(event, tool, trying.json_option("--input", given), prompt, output, is_error, answer)
    fields |= trying.json_option("--data", data) or {}
    keys = {"matcher": matcher, "timeout": timeout, "onError": on_error, "user": user, "dialect": dialect}
    wanted = trying.hook_for(program, event, arguments or [], persistent=persistent, **keys)
    tried = trying.run_one(program, wanted, fields, sandbox, workspace)
    if as_json:
        print(json.dumps({"hook": wanted.name, "event": event, **tried}, indent=2))
    else:
        out.lines(tried_lines(tried))
    if expect and tried["verdict"] != expect:
        Output(sys.stderr).write(f"expected {expect}, the verdict is {tried['verdict']}\n")
        return 7
    return 0


@app.command("import")
def import_settings(file: Path = typer.Argument(..., help="Another agent's settings, such as settings.json.")) -> None:
    """Print the `hooks:` block that does what an agent's settings say."""
    from runner.frontends.render import notice_line
    from runner.frontends.terminal import Output
    from runner.kits.claude import import_claude_settings

    block, warnings = import_claude_settings(file)
    Output(sys.stderr).lines([notice_line("warning", warning) for warning in warnings])
    print(block, end="")


@app.command("ls")
def list_hooks(
    sandbox: str = typer.Argument(..., help="A sandbox or kit, as `sbx run` takes it."),
    hook: list[str] = typer.Option([], "--hook", help="EVENT=COMMAND, as with `sbx run`. Repeatable."),
    kit: list[str] = typer.Option([], "--kit", help="A further mixin. Repeatable."),
    kit_arg: list[str] = typer.Option([], "--kit-arg", help="[KIT.]NAME=VALUE. Repeatable."),
    kit_args_file: Path | None = typer.Option(
        None, "--kit-args-file", help="File of [KIT.]NAME=VALUE lines, or YAML; --kit-arg wins."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List the hooks of a sandbox in the order they will run."""
    from runner.cli.hook_trying import chain_of
    from runner.frontends.hooks import chain_lines, chain_rows
    from runner.frontends.terminal import Output
    from runner.kits.arguments import kit_arguments

    hooks = chain_of(sandbox, hooks=hook, kits=kit, kit_args=kit_arguments(kit_arg, kit_args_file))
    if as_json:
        print(json.dumps(chain_rows(hooks), indent=2))
    else:
        Output(sys.stdout).lines(chain_lines(hooks))
