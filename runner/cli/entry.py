"""Commands that run something in a sandbox: `exec`, `shell`, `start`."""

from __future__ import annotations

import os
import sys

import typer

from runner.cli.life import NAME

HOLDER_READY_WITHIN = 120.0
"""Seconds for `start`'s process in the background to have the sandbox up."""


def execute(
    name: str = typer.Argument(..., help=NAME),
    command: list[str] = typer.Argument(..., help="The command and its arguments."),
    terminal: bool = typer.Option(False, "-t", "--tty", help="Give it a terminal; stdin must be one."),
    interactive: bool = typer.Option(
        False, "-i", "--interactive", help="Accepted as `docker exec` has it: stdin is always passed."
    ),
    env: list[str] = typer.Option([], "-e", "--env", help="NAME=VALUE, or NAME to pass this shell's. Repeatable."),
    workdir: str = typer.Option("", "-w", "--workdir", help="The folder it starts in (default: the workspace)."),
) -> int:
    """Run a command in a sandbox as the workspace's owner.

    Its stdin, output and exit code are passed on byte for byte. 125 is none of the command's: sbx or the engine
    failed.
    """
    from runner.errors import UsageError
    from runner.session.commands import Order

    command = command[1:] if command[0] == "--" else command
    if not command:
        raise UsageError("there is no command after --")
    return _run(name, Order(command, variables(env), workdir, terminal))


def shell(
    name: str = typer.Argument(..., help=NAME),
    entrypoint: bool = typer.Option(False, "--entrypoint", help="Start the kit's own agent instead of a shell."),
    env: list[str] = typer.Option([], "-e", "--env", help="NAME=VALUE, or NAME to pass this shell's. Repeatable."),
) -> int:
    """Open a shell in a sandbox as the workspace's owner.

    Without a terminal it runs the script on stdin.
    """
    from runner.session.commands import Order

    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = _entrypoint(name, on_terminal) if entrypoint else ["bash", "-i"] if on_terminal else ["bash"]
    return _run(name, Order(argv, variables(env), "", on_terminal))


def start(
    names: list[str] = typer.Argument(..., help=NAME),
) -> int:
    """Start kept sandboxes in the background.

    `exec` and `cp` then find them up; a process of yours holds each until `sbx stop`, or until a run wants it.
    """
    from runner.cli.failing import report
    from runner.errors import SbxError

    code = 0
    for name in dict.fromkeys(names):
        try:
            _start(name)
            print(name, flush=True)
        except SbxError as error:
            report(error)
            code = error.exit_code
    return code


def hold(name: str = typer.Argument(..., help=NAME)) -> int:
    """The process in the background of `sbx start`."""
    import asyncio
    import json

    from runner.cli.running import run_async
    from runner.errors import SbxError
    from runner.launch.entering import enter

    async def work() -> None:
        let_go = asyncio.Event()
        async with enter(name, hold=let_go) as entered:
            print(json.dumps({"ready": entered.listed.name}), flush=True)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            assert entered.gone is not None
            waiting = [asyncio.ensure_future(let_go.wait()), asyncio.ensure_future(entered.gone())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()

    try:
        run_async(work())
    except SbxError as error:
        print(json.dumps({"error": error.to_json()}), flush=True)
        return error.exit_code
    return 0


def variables(given: list[str]) -> dict[str, str]:
    """`-e NAME=VALUE` and `-e NAME` as a mapping. Raises UsageError."""
    from runner.errors import UsageError

    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or "\0" in text:
            raise UsageError(f"-e {text}: not NAME=VALUE")
        if equals:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


def _run(name: str, order: object) -> int:
    from runner.cli.running import run_async
    from runner.launch.entering import enter
    from runner.session.commands import Order, run_joined

    assert isinstance(order, Order)

    async def work() -> int:
        async with enter(name) as entered:
            return await run_joined(entered.commander, order)

    return run_async(work())


def _entrypoint(name: str, on_terminal: bool) -> list[str]:
    """What a public kit's `sandbox.entrypoint` and `command` start."""
    from runner.errors import NotFoundError, UsageError
    from runner.launch.existing import find
    from runner.launch.options import Options
    from runner.launch.what import read_kit

    kept = find(name, os.environ)
    if kept is None:
        raise NotFoundError(f"it is not known which kit {name!r} was made from", hint="`sbx ls`")
    plan = read_kit(Options(sandbox=kept.sandbox)).plan
    rest = plan.interactive if on_terminal and plan.interactive else plan.command
    if not (plan.entrypoint or rest):
        raise UsageError(f"the kit {kept.sandbox} names no entrypoint", hint="leave --entrypoint out for a shell")
    return [*plan.entrypoint, *rest]


def _start(name: str) -> None:
    import json
    import select
    import subprocess

    from runner.errors import EngineError, EngineTimeout, SbxError

    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "hold", "--", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as out:
        ready, _, _ = select.select([out], [], [], HOLDER_READY_WITHIN)
        line = out.readline() if ready else b""
    try:
        answer = json.loads(line)
    except ValueError:
        answer = {}
    if "ready" in answer:
        process.returncode = 0  # it goes on without us, and is nobody's zombie: its parent is about to end
        return
    process.kill()
    process.wait()
    if not ready:
        raise EngineTimeout(f"the sandbox {name} was not up after {HOLDER_READY_WITHIN:g} s")
    told = answer.get("error") or {}
    error = SbxError(told.get("message") or "the process in the background died", hint=told.get("hint"))
    error.exit_code = int(told.get("code") or EngineError.exit_code)
    raise error
