"""From a batch's file to its results: every line checked, images built once, so many sandboxes at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from runner import launch
from runner.cli.outcome import Outcome, Wanted
from runner.cli.running import run_async
from runner.engine import Engine
from runner.errors import EngineError, ExpectationError, Interrupted, SbxError, TurnError, UsageError
from runner.frontends.batch.lines import Line, load
from runner.frontends.batch.results import File, Result, text_of
from runner.frontends.batch.schedule import Batch, failed
from runner.frontends.batch.summary import Progress, cases, table
from runner.frontends.printer import Printer
from runner.frontends.progress import BuildProgress
from runner.frontends.terminal import Output, Styled
from runner.images.build import Image
from runner.images.events import ignore
from runner.launch.options import Options
from runner.launch.prepared import Prepared
from runner.launch.shared import Shared
from runner.session.expectations import Expectation
from runner.session.session import Session


@dataclass(frozen=True)
class How:
    """A batch as it was asked for."""

    file: Path
    output: Path | None = None
    resume: bool = False
    """`output` holds results of this batch already."""
    junit: Path | None = None
    parallel: int = 4
    retries: int = 3
    fail_fast: bool = False
    pool: int = 0
    quiet: bool = False
    timeout: float | None = None
    """Seconds; a line's own goes first."""


def run(how: How, options: Options, stdout: TextIO, stderr: TextIO) -> int:
    """Runs a batch.

    Returns: the exit code.

    Raises:
        UsageError, ConfigError, NotFoundError, RefusedError: a line is wrong; nothing was started.
        ImageError, EngineError: no line could start.
        Interrupted: a signal ended it; what is done is told first.
    """
    lines = load(how.file)
    prepared = prepare(lines, options)
    asked = {line.id: wanted(line, how) for line in lines}
    if how.junit and not how.junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {how.junit}: there is no folder {how.junit.parent}", place=str(how.junit))
    data, told = Output(stdout), Output(stderr)
    with contextlib.ExitStack() as open_files:
        file = open_files.enter_context(contextlib.closing(File(how.output))) if how.output else None
        results: list[Result] = []
        if file and how.resume:
            results = file.load(lines)
        elif file:
            file.demand_empty()
        done = {result.line.id for result in results}
        missing = [line for line in lines if line.id not in done]
        _say(told, how, prepared, missing, len(results))
        progress = Progress(told, len(missing), quiet=how.quiet)

        def take(result: Result) -> None:
            results.append(result.brief())
            progress.result(result)
            if file:
                file.write(text_of(result))
            else:
                progress.clear()
                data.write(text_of(result))

        interrupted: Interrupted | None = None
        if missing:
            engine = launch.connect(prepared[missing[0].id])
            images = _images(engine, missing, prepared, how.quiet, told)
            try:
                run_async(_work(how, engine, missing, prepared, images, asked, take, progress, data))
            except Interrupted as error:
                interrupted = error
        progress.clear()
        answered = {result.line.id for result in results}
        unanswered = [line for line in lines if line.id not in answered]
        if not how.quiet:
            told.lines(table(results, unanswered))
        if how.junit:
            from runner.frontends import junit

            suite = how.file.name
            junit.write_whole(how.junit, junit.junit(suite, cases(suite, results, unanswered)))
    if interrupted:
        raise interrupted
    return 0 if all(result.ok for result in results) and not unanswered else ExpectationError.exit_code


def prepare(lines: Sequence[Line], options: Options) -> dict[str, Prepared]:
    """Each line's run, by the line's id, all checked before anything starts.

    Raises what `launch.prepare` raises, with the line's number.
    """
    seen: dict[str, Prepared] = {}
    prepared: dict[str, Prepared] = {}
    for line in lines:
        wanted = replace(
            options,
            sandbox=line.kit or options.sandbox,
            workspace=Path(line.workspace) if line.workspace else options.workspace,
            kit_args=[*options.kit_args, *line.kit_args],
            model=line.model or options.model,
            max_tokens=line.max_tokens or options.max_tokens,
            max_tool_calls=line.max_tool_calls or options.max_tool_calls,
        )
        key = repr(replace(wanted, environ={}))
        try:
            if not wanted.sandbox:
                raise UsageError("names no kit", hint="give it a `kit`, or all of them one with --sandbox")
            if key not in seen:
                seen[key] = launch.prepare(wanted)
        except SbxError as error:
            raise _of_line(line, error) from None
        same = seen[key]
        variables = dict(line.variables)
        prepared[line.id] = replace(same, options=replace(wanted, variables=variables)) if variables else same
    return prepared


def wanted(line: Line, how: How) -> Wanted:
    """What is asked of a line beyond its answer. Raises UsageError with the line's number."""
    try:
        return Wanted(
            seconds=how.timeout if line.timeout is None else line.timeout,
            expectations=[Expectation.parse(text) for text in line.expect],
            check=line.check,
            artifacts=[(path, Path(target)) for path, target in line.artifacts.items()],
        )
    except SbxError as error:
        raise _of_line(line, error) from None


def _of_line(line: Line, error: SbxError) -> SbxError:
    error.message = f"line {line.number}: {error.message}"
    error.args = (error.message,)
    return error


def _images(
    engine: Engine, lines: Iterable[Line], prepared: Mapping[str, Prepared], quiet: bool, told: Output
) -> dict[str, Image]:
    """The image of each line, by the line's id; what is missing is built, one after the other."""
    of_plan: dict[int, Image] = {}
    images: dict[str, Image] = {}
    for line in lines:
        each = prepared[line.id]
        plan = id(each.what.plan)  # lines that ask for the same share one
        if plan not in of_plan:
            of_plan[plan] = launch.find_image(engine, each, ignore if quiet else BuildProgress(told))
        images[line.id] = of_plan[plan]
    return images


def _say(told: Output, how: How, prepared: dict[str, Prepared], missing: Sequence[Line], known: int) -> None:
    """What a person should know before it starts."""
    if how.quiet:
        return
    warnings: dict[str, None] = {}
    users: dict[Path, int] = {}
    for line in missing:
        each = prepared[line.id]
        warnings.update(dict.fromkeys(each.warnings))
        warnings.update(dict.fromkeys(f"{r.control}: {r.value} ({r.by})" for r in each.profile.relaxations))
        users[each.workspace.source] = users.get(each.workspace.source, 0) + 1
    if how.parallel > 1:
        for folder, count in users.items():
            if count > 1:
                warnings[f"{count} lines work in {folder} and may disturb each other; give each its own, or -j 1"] = (
                    None
                )
    known_text = f", {known} results are there" if known else ""
    told.lines([Styled(f"{len(missing)} lines, {how.parallel} at once{known_text}", "dim")])
    told.lines(Styled(f"warning: {text}", "yellow") for text in warnings)


async def _work(
    how: How,
    engine: Engine,
    lines: Sequence[Line],
    prepared: dict[str, Prepared],
    images: dict[str, Image],
    asked: dict[str, Wanted],
    take: Callable[[Result], None],
    progress: Progress,
    data: Output,
) -> None:
    # Each line that starts or ends waits for the engine in a thread; the default is six on two cores.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * how.parallel + how.pool + 4))

    def sandbox(line: Line) -> tuple[Prepared, Image]:
        return prepared[line.id], images[line.id]

    def took(result: Result) -> None:
        take(result)
        if data.closed:
            batch.stop()  # nobody reads on

    async def one(line: Line) -> Result:
        async with shared.session(*sandbox(line)) as session:
            return await ask(session, line, asked[line.id])

    batch = Batch(
        lines,
        one,
        parallel=how.parallel,
        retries=how.retries,
        fail_fast=how.fail_fast,
        on_start=progress.start,
        on_result=took,
    )
    folders = prepared[lines[0].id].folders
    shared = Shared(engine, folders, ahead=how.pool, upcoming=lambda: (sandbox(line) for line in batch.upcoming()))
    async with shared:
        await batch.work()


async def ask(session: Session, line: Line, wanted: Wanted) -> Result:
    """One line's question, and what it was expected to lead to.

    Raises:
        EngineError: the engine failed, so that this says nothing of the line.
    """
    printer = Printer(Output(io.StringIO()), Output(io.StringIO()), "json", quiet=True)
    outcome = Outcome(wanted)
    failure: SbxError | None = None
    try:
        await outcome.ask(session, printer, line.prompt)
    except EngineError:
        raise
    except SbxError as error:
        failure = error
    printer.document.milliseconds.update(outcome.times())
    # How a turn failed is in the document already; what ended it from outside is not.
    told = None if isinstance(failure, TurnError) else failure
    run = printer.document.to_json(told, **outcome.results)
    return failed(line, failure, run) if failure else Result(line, 0, run=run)
