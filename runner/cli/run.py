"""`sbx run`: a sandbox, an agent in it, and a question or a conversation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import typer

if TYPE_CHECKING:
    from runner.cli.outcome import Outcome
    from runner.engine import Engine
    from runner.images.build import Image
    from runner.images.events import Progress
    from runner.launch.prepared import Prepared

MAX_PROMPT = 32 * 1024 * 1024
"""Most bytes of a question."""


def run(
    sandbox: str = typer.Argument(..., help="A ready-made kit, a folder with agent.yaml or spec.yaml, or an image."),
    workspace: Path = typer.Argument(None, help="The folder that the agent works in."),
    prompt: str = typer.Option(None, "-p", "--prompt", help="Ask one question and exit; - reads stdin, @FILE a file."),
    demo: bool = typer.Option(False, "--demo", help="Take the built-in scripted model instead of a real one."),
    network: str = typer.Option("none", "--network", help="none, packages, open, or bridge: the engine's own network."),
    allow: list[str] = typer.Option([], "--allow", help="HOST[:PORT] that the sandbox may reach. Repeatable."),
    deny: list[str] = typer.Option(
        [], "--deny", help="HOST[:PORT] that it may not reach, whoever allows it. Repeatable."
    ),
    resolve: list[str] = typer.Option([], "--resolve", help="NAME=ADDRESS; instead of looking it up. Repeatable."),
    learn: bool = typer.Option(False, "--learn", help="Let everything public through, and tell what to allow."),
    rm: bool = typer.Option(None, "--rm/--keep", help="Remove the sandbox at the end (default with -p), or keep it."),
    pool: int = typer.Option(
        0, "--pool", min=0, max=64, help="Without -p: so many sandboxes wait, started, and each /new takes a fresh one."
    ),
    name: str = typer.Option("", "--name", help="The sandbox's name."),
    new: bool = typer.Option(False, "--new", help="Make a new sandbox, even where an idle one fits."),
    json: bool = typer.Option(False, "--json", help="With -p: print one JSON document."),
    events: bool = typer.Option(False, "--events", help="With -p: print each event as a line of JSON."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="With -p: nothing but the answer and errors."),
    stats: bool = typer.Option(False, "--stats", help="At the end a summary on stderr: rounds, tokens, hooks, times."),
    timeout: float = typer.Option(None, "--timeout", help="With -p: seconds until the run is ended (code 124)."),
    output: Path = typer.Option(None, "-o", "--output", help="With -p: write to this file what stdout would get."),
    expect: list[str] = typer.Option(
        [], "--expect", help="With -p: a regular expression the answer must match, or jmespath:EXPR. Repeatable."
    ),
    check: str = typer.Option("", "--check", help="With -p: a command run in the sandbox afterwards; must end with 0."),
    artifact: list[str] = typer.Option([], "--artifact", help="With -p: PATH=DEST, copied out at the end. Repeatable."),
    junit: Path = typer.Option(None, "--junit", help="With -p: write the result to this file as JUnit's XML."),
    resume: str = typer.Option(None, "--resume", help="Go on with an earlier session: its id."),
    go_on: bool = typer.Option(False, "--continue", help="Go on with the last session."),
    model: str = typer.Option("", "--model", help="Another model than agent.yaml names."),
    base_url: str = typer.Option("", "--base-url", help="Another model server than agent.yaml names."),
    yolo: bool = typer.Option(None, "--yolo/--no-yolo", help="Run tool calls without asking, or ask."),
    max_tokens: int = typer.Option(None, "--max-tokens", min=1, help="End a turn that used so many tokens."),
    max_tool_calls: int = typer.Option(None, "--max-tool-calls", min=1, help="End a turn that wants more tool calls."),
    hook: list[str] = typer.Option([], "--hook", help="EVENT=COMMAND; runs after the agent's own. Repeatable."),
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
    workspace_mode: str = typer.Option("mount", "--mode", help="The workspace: mount, clone (a copy), ro, none."),
    untracked: str = typer.Option("normal", "--untracked", help="With clone, of a git workspace: none, normal, all."),
    protect: list[str] = typer.Option([], "--protect", help="GLOB in the workspace, to read only. Repeatable."),
    git_config: str = typer.Option("ro", "--git-config", help="rw lets the agent change .git/config."),
    publish: list[str] = typer.Option([], "--publish", help="[HOSTPORT:]PORT[/udp] on 127.0.0.1. Repeatable."),
    startup: bool = typer.Option(True, "--startup/--no-startup", help="Run the kits' startup commands, or leave them."),
    cpus: float = typer.Option(None, "--cpus", help="CPUs (default 2)."),
    memory: str = typer.Option("", "--memory", help="Memory, for example 2g (default 4g)."),
    pids: int = typer.Option(None, "--pids", help="Processes (default 512)."),
    runtime: str = typer.Option("", "--runtime", help="A container runtime that the engine knows."),
    ca_certificate: list[Path] = typer.Option(
        [], "--ca-certificate", help="PEM file that builds trust too (default: what this host trusts). Repeatable."
    ),
    no_cache: bool = typer.Option(False, "--no-cache", help="Build the image anew."),
    pull: bool = typer.Option(False, "--pull", help="Ask the registry for a newer base."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would run, and start nothing."),
) -> int:
    """Run an agent in a sandbox: with -p one question, without it a conversation."""
    from runner import launch
    from runner.cli import outcome
    from runner.errors import SbxError, UsageError
    from runner.kits.arguments import kit_arguments
    from runner.launch import existing

    question = read_prompt(prompt) if prompt is not None else None
    if question is None and not dry_run and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to talk on", hint='ask with -p "…", or -p - to read the question')
    with_question = {
        "--json": json,
        "--events": events,
        "--timeout": timeout is not None,
        "-q": quiet,
        "--output": output,
        "--expect": expect,
        "--check": check,
        "--artifact": artifact,
        "--junit": junit,
    }
    for option, given in with_question.items():
        if given and question is None and not dry_run:
            raise UsageError(f"{option} goes with -p")
    if json and events:
        raise UsageError("--json or --events, not both")
    if timeout is not None and timeout <= 0:
        raise UsageError("--timeout must be more than 0")
    wanted = outcome.Wanted.parse(
        seconds=timeout, expect=expect, check=check, artifacts=artifact, junit=junit, changes=json or events
    )
    if pool and (question is not None or rm is False or name or resume is not None or go_on):
        raise UsageError("--pool is for a conversation in throwaway sandboxes: without -p, --keep, --name and --resume")
    throwaway = rm if rm is not None else question is not None or pool > 0
    options = launch.Options(
        sandbox=sandbox,
        workspace=workspace,
        demo=demo,
        network=network,
        allow=allow,
        deny=deny,
        resolve=resolve,
        learn=learn,
        keep=not throwaway,
        new=new,
        name=name,
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
        devices=device,
        capabilities=cap_add,
        publish=publish,
        mode=workspace_mode,
        untracked=untracked,
        protect=protect,
        git_config=git_config,
        quiet=quiet,
        dry_run=dry_run,
        startup=startup,
        certificates=ca_certificate,
        no_cache=no_cache,
        pull=pull,
        interactive=question is None,
        resume="" if go_on and resume is None else resume,
    )
    run_of = outcome.Outcome(wanted)
    try:
        prepared = launch.prepare(existing.resolve(options, remove=rm is True))
        if dry_run:
            return _dry_run(prepared)
        engine = launch.connect(prepared)
        image = launch.find_image(engine, prepared, build_progress(quiet))
    except SbxError as error:
        run_of.write_junit(error, name=case_name(question or sandbox), group=sandbox)
        raise
    if question is None:
        return _talk(engine, prepared, image, stats, pool)
    mode: Literal["text", "json", "events"] = "json" if json else "events" if events else "text"
    if output is None:
        return _ask(engine, prepared, image, question, mode, quiet, run_of, sys.stdout, stats)
    with open_output(output) as file:
        return _ask(engine, prepared, image, question, mode, quiet, run_of, file, stats)


def read_prompt(text: str) -> str:
    """The question: as given, or from stdin (`-`) or a file (`@FILE`).

    Raises:
        UsageError: it is empty, too large, not UTF-8, or the file cannot be read.
    """
    from runner.errors import UsageError

    if text == "-":
        raw, place = sys.stdin.buffer.read(MAX_PROMPT + 1), "stdin"
    elif text.startswith("@") and len(text) > 1:
        place = text[1:]
        try:
            with Path(place).open("rb") as file:
                raw = file.read(MAX_PROMPT + 1)
        except OSError as error:
            raise UsageError(f"the question cannot be read: {error.strerror}", place=place) from None
    else:
        raw, place = text.encode("utf-8", "surrogateescape"), "-p"
    if len(raw) > MAX_PROMPT:
        raise UsageError(f"the question is over {MAX_PROMPT // 1024**2} MiB", place=place)
    try:
        question = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the question is not UTF-8: byte {error.start}", place=place) from None
    if not question.strip():
        raise UsageError("the question is empty", place=place)
    return question


def build_progress(quiet: bool) -> Progress:
    from runner.images.events import ignore

    if quiet:
        return ignore
    from runner.frontends.progress import BuildProgress
    from runner.frontends.terminal import Output

    return BuildProgress(Output(sys.stderr))


def open_output(path: Path) -> TextIO:
    """The file for a result, empty from now on. Raises UsageError where it cannot be written."""
    from runner.errors import UsageError

    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {path}: cannot be written: {error.strerror}", place=str(path)) from None


def case_name(question: str) -> str:
    """A question as the name of a test case: its first line, cut."""
    first = question.strip().splitlines()[0]
    return first if len(first) <= 100 else first[:99] + "…"


def _ask(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    question: str,
    mode: Literal["text", "json", "events"],
    quiet: bool,
    run_of: Outcome,
    stdout: TextIO,
    stats: bool,
) -> int:
    from runner.cli.running import run_async
    from runner.errors import SbxError
    from runner.frontends.printer import Printer
    from runner.frontends.terminal import Output, Styled
    from runner.gateway.redaction import mask_error
    from runner.launch.network import learned_lines
    from runner.launch.opening import open_session

    printer = Printer(Output(stdout), Output(sys.stderr), mode, quiet=quiet)
    records: list[Path] = []

    async def work() -> None:
        async with open_session(engine, prepared, image) as session:
            records.append(session.record.folder)
            await run_of.ask(session, printer, question)

    failure: SbxError | None = None
    try:
        run_async(work())
    except SbxError as error:
        failure = mask_error(error)
    Output(sys.stderr).lines([Styled(line) for line in learned_lines(prepared.outgoing)])
    if stats and records:
        _show_stats(records[0])
    run_of.report(printer, failure, name=case_name(question), group=prepared.what.name)
    return failure.exit_code if failure else 0


def _show_stats(record: Path) -> None:
    from runner.frontends.log import stats_lines
    from runner.frontends.terminal import Output
    from runner.session.record import load

    Output(sys.stderr).lines(stats_lines(load(record)))


def _talk(engine: Engine, prepared: Prepared, image: Image, stats: bool, pool: int) -> int:
    from runner.cli.running import run_async
    from runner.frontends import earlier
    from runner.frontends.log import log_lines
    from runner.frontends.repl import Repl
    from runner.frontends.terminal import Output, Styled
    from runner.launch.network import learned_lines
    from runner.launch.opening import open_session
    from runner.session.record import load

    async def work() -> int:
        async with open_session(engine, prepared, image) as session:
            records.append(session.record.folder)

            def log() -> list[Styled]:
                folder = session.record.folder
                return list(log_lines(load(folder), folder))

            further = earlier.commands(session, prepared.folders)
            repl = Repl(session, prepared.folders.history, log=log, commands=further)
            return await repl.run()

    async def work_ahead() -> int:
        from runner.launch.fresh import Fresh

        async with Fresh(engine, prepared, image, pool) as fresh:
            records.append(fresh.record)
            log = lambda: list(log_lines(load(fresh.record), fresh.record))  # noqa: E731
            return await Repl(fresh, prepared.folders.history, log=log).run()

    records: list[Path] = []
    try:
        return run_async(work_ahead() if pool else work(), interrupts=False)
    finally:
        Output(sys.stderr).lines([Styled(line) for line in learned_lines(prepared.outgoing)])
        if stats and records:
            _show_stats(records[0])


def _dry_run(prepared: Prepared) -> int:
    from runner.images.build import tag
    from runner.launch.network import rule_lines

    plan = prepared.what.plan
    print(f"sandbox    {plan.name}")
    print(f"image      {tag(plan)}")
    print(f"workspace  {prepared.workspace.source} at {prepared.workspace.target}")
    for control, value, asked in prepared.profile.table():
        print(f"{control:<17} {value}" + (f"   (relaxed by {asked})" if asked else ""))
    for rule in rule_lines(prepared.outgoing.policy):
        print(rule)
    return 0
