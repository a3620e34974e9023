"""`sbx batch`: many questions from a file, one throwaway sandbox each."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def batch(
    file: Path = typer.Argument(..., help="JSON Lines, or .yaml with a list; - reads JSON Lines from stdin."),
    parallel: int = typer.Option(4, "-j", "--parallel", min=1, max=256, help="Lines at once."),
    sandbox: str = typer.Option("", "--sandbox", help="The kit of lines that name none."),
    workspace: Path = typer.Option(None, "--workspace", help="The folder of lines that name none."),
    output: Path = typer.Option(None, "--output", help="Write the results here instead of to stdout."),
    resume: Path = typer.Option(None, "--resume", help="Results of this batch: run what is missing, and add to them."),
    junit: Path = typer.Option(None, "--junit", help="Write a JUnit report here at the end."),
    retries: int = typer.Option(3, "--retries", min=0, max=20, help="Further attempts after an error of the engine."),
    fail_fast: bool = typer.Option(False, "--fail-fast", help="End everything with the first line that fails."),
    pool: int = typer.Option(0, "--pool", min=0, max=64, help="Sandboxes to keep started ahead of their lines."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Nothing on stderr but errors."),
    demo: bool = typer.Option(False, "--demo", help="Take the built-in scripted model instead of a real one."),
    timeout: float = typer.Option(None, "--timeout", help="Seconds until a line is ended (code 124)."),
    model: str = typer.Option("", "--model", help="Another model than agent.yaml names."),
    base_url: str = typer.Option("", "--base-url", help="Another model server than agent.yaml names."),
    yolo: bool = typer.Option(None, "--yolo/--no-yolo", help="Run tool calls without asking; nobody can be asked."),
    max_tokens: int = typer.Option(None, "--max-tokens", min=1, help="End a turn that used so many tokens."),
    max_tool_calls: int = typer.Option(None, "--max-tool-calls", min=1, help="End a turn that wants more tool calls."),
    hook: list[str] = typer.Option([], "--hook", help="EVENT=COMMAND; runs after the agent's own. Repeatable."),
    kit: list[str] = typer.Option([], "--kit", help="A further mixin. Repeatable."),
    kit_arg: list[str] = typer.Option([], "--kit-arg", help="[KIT.]NAME=VALUE. Repeatable."),
    kit_args_file: Path | None = typer.Option(
        None, "--kit-args-file", help="File of [KIT.]NAME=VALUE lines, or YAML; --kit-arg wins."
    ),
    strict: bool = typer.Option(False, "--strict", help="Kits that clash are an error."),
    network: str = typer.Option("none", "--network", help="none, packages, open, or bridge: the engine's own network."),
    allow: list[str] = typer.Option([], "--allow", help="HOST[:PORT] that a sandbox may reach. Repeatable."),
    deny: list[str] = typer.Option([], "--deny", help="HOST[:PORT] that it may not reach. Repeatable."),
    resolve: list[str] = typer.Option([], "--resolve", help="NAME=ADDRESS; instead of looking it up. Repeatable."),
    grant: list[str] = typer.Option([], "--grant", help="Allow what a kit asks for beyond the default. Repeatable."),
    mount: list[str] = typer.Option([], "--mount", help="SOURCE[:TARGET[:ro]]; a further folder. Repeatable."),
    cpus: float = typer.Option(None, "--cpus", help="CPUs of each sandbox (default 2)."),
    memory: str = typer.Option("", "--memory", help="Memory of each sandbox, for example 2g (default 4g)."),
    pids: int = typer.Option(None, "--pids", help="Processes of each sandbox (default 512)."),
    runtime: str = typer.Option("", "--runtime", help="A container runtime that the engine knows."),
    ca_certificate: list[Path] = typer.Option(
        [], "--ca-certificate", help="PEM file that builds trust too (default: what this host trusts). Repeatable."
    ),
) -> int:
    """Ask many questions, each in a throwaway sandbox of its own.

    The code is 7 when any line failed.
    """
    from runner import launch
    from runner.cli import batching
    from runner.errors import UsageError
    from runner.kits.arguments import kit_arguments

    if timeout is not None and timeout <= 0:
        raise UsageError("--timeout must be more than 0")
    if resume and output and resume.resolve() != output.resolve():
        raise UsageError("--resume adds to its own file; leave --output out")
    if resume and not resume.exists():
        raise UsageError("there are no results to go on with", place=str(resume), hint="the first run has --output")
    options = launch.Options(
        sandbox=sandbox,
        workspace=workspace,
        demo=demo,
        network=network,
        allow=allow,
        deny=deny,
        resolve=resolve,
        new=True,
        grants=grant,
        hooks=hook,
        kits=kit,
        kit_args=kit_arguments(kit_arg, kit_args_file),
        strict=strict,
        model=model,
        base_url=base_url,
        yolo=yolo,
        max_tokens=max_tokens,
        max_tool_calls=max_tool_calls,
        cpus=cpus,
        memory=memory,
        pids=pids,
        runtime=runtime,
        mounts=mount,
        certificates=ca_certificate,
    )
    how = batching.How(
        file=file,
        output=resume or output,
        resume=resume is not None,
        junit=junit,
        parallel=parallel,
        retries=retries,
        fail_fast=fail_fast,
        pool=pool,
        quiet=quiet,
        timeout=timeout,
    )
    return batching.run(how, options, sys.stdout, sys.stderr)
