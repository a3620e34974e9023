"""What `sbx hook` does between the command line and the sandbox: a session without a model, and hooks run in it."""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from runner.kits.readymade import Program, Sample
    from runner.launch.prepared import Prepared
    from runner.session.session import Session
    from runner.wire.agent import Hook

TOOLS_KIT = "hooks-demo"
"""Whose image has Node and jq, which the base has not."""
AGENT = "provider: llmman\nmodel: none\n"
MOMENTS = (
    "sessionStart",
    "preGeneration",
    "preModelRequest",
    "textDelta",
    "preToolCall",
    "permissionRequest",
    "postToolCall",
    "message",
    "stop",
    "postGeneration",
    "sessionEnd",
)
"""The events in the order in which a session meets them."""
Result = TypeVar("Result")


def json_option(option: str, text: str) -> dict[str, Any] | None:
    """An option's JSON object: as given, from a file (`@FILE`) or stdin (`-`). None when it was not given.

    Raises:
        UsageError: it is no JSON object, or cannot be read.
    """
    if not text:
        return None
    try:
        raw = sys.stdin.read() if text == "-" else Path(text[1:]).read_text("utf-8") if text[0] == "@" else text
        value = json.loads(raw)
    except OSError as error:
        raise UsageError(f"{option}: cannot be read: {error.strerror}", place=text[1:]) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object")
    return value


def fields(
    event: str, tool: str, given: dict[str, Any] | None, prompt: str, output: str, is_error: bool, answer: str
) -> dict[str, Any]:
    """An event's own fields.

    Raises:
        UsageError: the event is not told, or lacks its tool.
    """
    from runner.kits.hooks import ALL_EVENTS
    from runner.wire.agent import TOOL_EVENTS

    if not event:
        raise UsageError("which event?", hint=f"--event, one of: {', '.join(ALL_EVENTS)}")
    if event in TOOL_EVENTS and not tool:
        raise UsageError(f"{event} is about a tool", hint='--tool bash --input \'{"command": "ls"}\'')
    call = {"tool": {"id": "call_1", "name": tool, "input": given or {}}}
    by_event: dict[str, dict[str, Any]] = {
        "preGeneration": {"prompt": prompt},
        "preToolCall": call,
        "permissionRequest": {**call, "forced": False},
        "postToolCall": {**call, "output": output, "isError": is_error},
        "postGeneration": {"prompt": prompt, "answer": answer, "error": "", "usage": {}},
        "sessionEnd": {"status": "ended"},
        "preModelRequest": {"request": {"model": "", "system": "", "round": 1}},
        "textDelta": {"text": answer, "flush": False, "attempt": 1},
        "message": {"message": {"role": "user", "content": prompt}},
        "stop": {"answer": answer, "pushed": 0},
    }
    return by_event.get(event, {})


def hook_for(
    program: Program, event: str, arguments: Sequence[str], *, persistent: bool = False, **keys: str | None
) -> Hook:
    """The hook as `agent.yaml` would describe it.

    Raises:
        UsageError: a key or the event is wrong.
    """
    from runner.kits import hooks
    from runner.kits.readymade import with_arguments

    entry: dict[str, Any] = {key: value for key, value in keys.items() if value is not None}
    entry |= {"command": with_arguments(program.command, arguments), "persistent": persistent}
    try:
        return hooks.to_wire(hooks.check_hooks({event: [entry]}, where="sbx hook test"), source="command line")[0]
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None


def run_one(program: Program, hook: Hook, data: dict[str, Any], sandbox: str, workspace: Path | None) -> dict[str, Any]:
    """Runs the hook once; what it came to, as the guest says it."""

    async def work(session: Session, folder: Path) -> dict[str, Any]:
        return await session.try_hook(hook, data)

    return _in_session(program, sandbox, workspace, work)


def run_samples(program: Program, sandbox: str) -> list[dict[str, Any]]:
    """Runs every sample, each in a fresh workspace.

    Returns:
        For each: `case`, `ok`, `expected`, `answered`, `failure`, `stderr`, `ms`.
    """
    from runner.kits.readymade import lay_playground, samples

    cases = samples(program)

    async def work(session: Session, folder: Path) -> list[dict[str, Any]]:
        results = []
        for number, case in enumerate(cases):
            lay_playground(folder)
            results.append(await _sample(program, session, case, number))
        return results

    return _in_session(program, sandbox, None, work)


async def _sample(program: Program, session: Session, case: Sample, number: int) -> dict[str, Any]:
    workspace = session.sandbox.order.target
    today = datetime.datetime.now(datetime.UTC).date()  # the container's zone
    given = case.filled(case.given, workspace, today)
    hook = hook_for(program, given["event"], case.filled(case.args, workspace, today), timeout="60s")
    tried = await session.try_hook(hook, {"session": f"sample-{number}", **given}, exact=True)
    expected = case.filled(case.answer, workspace, today)
    try:
        answered = json.loads(tried["stdout"] or "{}")
    except ValueError:
        answered = tried["stdout"]
    return {
        "case": case.name,
        # An answer that says "error" is a failure, and may be the expected one.
        "ok": answered == expected and (not tried["failure"] or expected.get("action") == "error"),
        "expected": expected,
        "answered": answered,
        "failure": tried["failure"],
        "stderr": tried["stderr"],
        "ms": tried["ms"],
    }


def chain_of(sandbox: str, *, hooks: Sequence[str], kits: Sequence[str], kit_args: Sequence[str]) -> tuple[Hook, ...]:
    """A sandbox's hooks in the order they will run. Looking grants nothing and needs no grant."""
    from runner import launch
    from runner.gateway.grants import NAMES
    from runner.launch import existing

    asked = existing.resolve(launch.Options(sandbox, hooks=hooks, kits=kits, kit_args=kit_args))
    with tempfile.TemporaryDirectory(prefix="sbx-hooks-") as folder:
        options = replace(asked, workspace=asked.workspace or Path(folder), grants=tuple(NAMES))
        found = launch.prepare(options).agent.hooks
    return tuple(sorted(found, key=lambda hook: MOMENTS.index(hook.event)))


@contextmanager
def _prepared(program: Program, sandbox: str, workspace: Path | None) -> Iterator[tuple[Prepared, Path]]:
    """A run that will have the program's files as its kit, and a workspace that is nobody's."""
    from runner import launch
    from runner.kits.readymade import lay_kit, lay_playground

    with tempfile.TemporaryDirectory(prefix="sbx-hook-test-") as name:
        root = Path(name)
        kit, own = root / "hook-test", root / "playground"
        kit.mkdir()
        own.mkdir()
        lay_kit(program, kit)
        lay_playground(own)
        base = root / "base" / "hook-test"
        base.mkdir(parents=True)
        (base / "agent.yaml").write_text(AGENT)
        chosen = sandbox or (TOOLS_KIT if program.needs_tools else str(base))
        place = workspace or own
        prepared = launch.prepare(launch.Options(chosen, workspace=place))
        bare = replace(prepared.agent, hooks=())
        yield replace(prepared, what=replace(prepared.what, folder=kit), agent=bare), place


def _in_session(
    program: Program, sandbox: str, workspace: Path | None, work: Callable[[Session, Path], Awaitable[Result]]
) -> Result:
    from runner import launch
    from runner.cli.running import run_async
    from runner.frontends.progress import BuildProgress
    from runner.frontends.terminal import Output
    from runner.session.sessions import remove

    with _prepared(program, sandbox, workspace) as (prepared, folder):
        engine = launch.connect(prepared)
        image = launch.find_image(engine, prepared, BuildProgress(Output(sys.stderr)))
        record: list[Path] = []

        async def run() -> Result:
            async with launch.open_session(engine, prepared, image) as session:
                record.append(session.record.folder)
                return await work(session, folder)

        try:
            return run_async(run())
        finally:
            for each in record:  # nobody has asked anything: there is no session to remember
                remove(each)
