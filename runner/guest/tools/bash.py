"""The tool `bash`, and the background jobs it starts: `jobs`, `output`, `stop`."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

from runner.guest.spawn.capture import Capture
from runner.guest.spawn.command import OUTPUT_DIR, Command, Exit, Result, Spill
from runner.guest.spawn.spawner import Process, Spawner, open_pipe
from runner.guest.tools import arguments as checking
from runner.guest.tools import words
from runner.guest.tools.base import Place, ToolResult

DEFAULT_SECONDS = 120
MOST_SECONDS = 3600
LIMIT = 50 * 1024
"""Bytes of each stream that the model is shown."""
KEPT_BYTES = 256 * 1024 * 1024
"""Bytes of whole outputs that are kept; the oldest go first. They lie in /tmp, which is memory, and the tools' room."""
MAX_JOBS = 16


class Outputs:
    """Names for whole outputs, and an end for the old ones."""

    def __init__(self, folder: str = OUTPUT_DIR) -> None:
        self._folder = folder
        self._number = 0
        self._running: set[str] = set()

    def spill(self, call_id: str) -> Spill:
        """Where the next call's output may go, until `over`."""
        self._make_room()
        self._number += 1
        name = f"{self._number:05d}-{re.sub(r'[^A-Za-z0-9_-]', '_', call_id)[:40]}"
        self._running.add(name)
        return Spill(name, self._folder)

    def over(self, spill: Spill) -> None:
        """The call has ended; its files may go when room is needed."""
        self._running.discard(spill.name)

    def _make_room(self) -> None:
        """Looks at what is there: a call that was cancelled leaves a file that no result names."""
        try:
            with os.scandir(self._folder) as entries:
                files = sorted((entry.name, entry.path, entry.stat().st_size) for entry in entries)
        except OSError:
            return
        total = sum(size for _, _, size in files)
        for name, path, size in files:
            if total <= KEPT_BYTES:
                return
            if name.rpartition(".")[0] not in self._running:
                os.unlink(path)
                total -= size


class Job:
    """A command in the background."""

    def __init__(self, number: str, command: str, process: Process, stdout: Capture, stderr: Capture) -> None:
        self.id = number
        self.command = command
        self.process = process
        self.stdout = stdout
        self.stderr = stderr
        self.exit: Exit | None = None
        self.began = asyncio.get_running_loop().time()
        self.seconds = 0.0

    async def watch(self) -> None:
        self.exit = await self.process.wait()
        self.seconds = asyncio.get_running_loop().time() - self.began
        self.stdout.drain()
        self.stderr.drain()

    def state(self) -> str:
        if self.exit is None:
            return "running"
        return words.ending(self.exit) or "finished, exit code 0"


class Jobs:
    """The background jobs of a session."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._number = 0

    def room(self) -> bool:
        return sum(job.exit is None for job in self._jobs.values()) < MAX_JOBS

    def add(self, command: str, process: Process, stdout: Capture, stderr: Capture) -> Job:
        self._number += 1
        job = self._jobs[f"job{self._number}"] = Job(f"job{self._number}", command, process, stdout, stderr)
        watcher = asyncio.create_task(job.watch())
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return job

    def get(self, number: str) -> Job | None:
        return self._jobs.get(number)

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    async def close(self) -> None:
        """Ends every job."""
        await asyncio.gather(*(job.process.kill() for job in self._jobs.values()))
        await asyncio.gather(*self._watchers)


class Bash:
    """Runs a shell command as the tool identity."""

    name = "bash"
    changing = True
    description = (
        "Run a shell command with bash and return its output. Each call is a new shell: cd and variables do not last; "
        "use cwd. There is no terminal and no input: never start editors, pagers or programs that ask. "
        "Programs left running with & are ended when the command ends; for a server set background to true."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012 - a constant
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command, for example: ls -la"},
            "timeout": {
                "type": "number",
                "description": f"Seconds until it is ended. Default {DEFAULT_SECONDS}, at most {MOST_SECONDS}.",
                "minimum": 0.001,
                "maximum": MOST_SECONDS,
                "default": DEFAULT_SECONDS,
            },
            "cwd": {"type": "string", "description": "Folder to run it in. Default: the workspace."},
            "background": {
                "type": "boolean",
                "description": "Start it and return a job id at once. See it with jobs, output and stop.",
                "default": False,
            },
        },
        "required": ["command"],
    }

    def __init__(self, spawner: Spawner, place: Place, outputs: Outputs, jobs: Jobs) -> None:
        self._spawner = spawner
        self._place = place
        self._outputs = outputs
        self._jobs = jobs

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
            if "\0" in checked["command"] or "\0" in (checked["cwd"] or ""):
                raise checking.ArgumentError("a command cannot hold a NUL byte")
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        command = Command(
            argv=["bash", "-c", checked["command"]],
            env=self._place.environment,
            cwd=os.path.join(self._place.workspace, checked["cwd"] or ""),
            identity=self._place.owner,
        )
        if checked["background"]:
            return await self._start(command, checked["command"], call_id)
        timeout = float(checked["timeout"])
        spill = self._outputs.spill(call_id)
        try:
            result = await self._spawner.run(command, timeout=timeout, limit=LIMIT, spill=spill)
        finally:
            self._outputs.over(spill)
        return ToolResult(text(result, timeout), not result.exit.ok or result.timed_out, words.record(result))

    async def _start(self, command: Command, line: str, call_id: str) -> ToolResult:
        if not self._jobs.room():
            return ToolResult(f"There are {MAX_JOBS} background jobs already; stop one first.", True)
        spill = self._outputs.spill(call_id)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out_read, out_write = open_pipe()
        err_read, err_write = open_pipe()
        stdout, stderr = Capture(out_read, LIMIT, spill, ".stdout"), Capture(err_read, LIMIT, spill, ".stderr")
        try:
            process = await self._spawner.start(command, stdin=null, stdout=out_write, stderr=err_write)
        except BaseException:
            stdout.close()
            stderr.close()
            raise
        finally:
            for fd in (null, out_write, err_write):
                os.close(fd)
        if not process.pid:
            end = await process.wait()
            stdout.close()
            stderr.close()
            return ToolResult(words.ending(end), True, {"exit": None, "error": end.error})
        job = self._jobs.add(line, process, stdout, stderr)
        process.exit.add_done_callback(lambda _: self._outputs.over(spill))
        return ToolResult(
            f"Started in the background as {job.id}. Read what it prints with output, end it with stop.",
            False,
            {"job": job.id, "pid": process.pid},
        )


def text(result: Result, timeout: float = 0) -> str:
    """A finished command for the model: stdout, stderr under a heading of its own, then how it ended."""
    out, err = words.shown(result.stdout), words.shown(result.stderr)
    return _joined(out, err, words.ending(result.exit, result.timed_out, timeout))


def _joined(out: str, err: str, end: str) -> str:
    parts = []
    if out:
        parts.append(out.rstrip("\n"))
    if err:
        parts.append(("[stderr]\n" if out else "") + err.rstrip("\n"))
    if end:
        parts.append(f"[{end}]")
    return "\n".join(parts) or "[no output]"


class ListJobs:
    """Lists the background jobs."""

    name = "jobs"
    changing = False
    description = "List the background jobs that bash started, with their state."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        jobs = self._jobs.all()
        lines = [f"{job.id}  {job.state()}  {job.command[:200]}" for job in jobs]
        return ToolResult("\n".join(lines) or "There are no background jobs.", False, {"jobs": len(jobs)})


_JOB = {"type": "string", "description": "The job's id, for example job1."}


class Output:
    """What a background job has printed."""

    name = "output"
    changing = False
    description = "Show what a background job has printed so far, and whether it still runs."
    parameters: dict[str, Any] = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "job": _JOB,
            "wait": {
                "type": "number",
                "description": "Seconds to wait for it to end first. Default 0.",
                "minimum": 0,
                "maximum": MOST_SECONDS,
                "default": 0,
            },
        },
        "required": ["job"],
    }

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        job = self._jobs.get(checked["job"])
        if job is None:
            return _no_job(self._jobs, checked["job"])
        if checked["wait"] and job.exit is None:
            await asyncio.wait([job.process.exit], timeout=checked["wait"])
            await asyncio.sleep(0)  # lets the watcher take what was printed last
        out, err = job.stdout.captured(), job.stderr.captured()
        failed = job.exit is not None and not job.exit.ok
        data: dict[str, Any] = {"job": job.id, "running": job.exit is None, "stdout": out.size, "stderr": err.size}
        if job.exit:
            data["exit"] = job.exit.code
        return ToolResult(_joined(words.shown(out), words.shown(err), job.state()), failed, data)


class Stop:
    """Ends a background job."""

    name = "stop"
    changing = True
    description = "End a background job and everything it started."
    parameters: dict[str, Any] = {"type": "object", "properties": {"job": _JOB}, "required": ["job"]}  # noqa: RUF012

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        job = self._jobs.get(checked["job"])
        if job is None:
            return _no_job(self._jobs, checked["job"])
        if job.exit is not None:
            return ToolResult(f"{job.id} was over already: {job.state()}.", False, {"job": job.id})
        await job.process.kill()
        end = await job.process.wait()
        return ToolResult(f"{job.id} was ended with everything it started.", False, {"job": job.id, "ended": end.ended})


def _no_job(jobs: Jobs, number: str) -> ToolResult:
    names = ", ".join(job.id for job in jobs.all()) or "none"
    return ToolResult(f"There is no job {number[:40]!r}; there are: {names}.", True, {"error": "no such job"})
