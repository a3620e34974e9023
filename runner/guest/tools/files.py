"""The file tools as the model sees them. Their work is done by `worker`, as the tool identity."""

from __future__ import annotations

import json
from typing import Any

from runner.guest.spawn.command import Command
from runner.guest.spawn.spawner import Spawner
from runner.guest.tools import arguments as checking
from runner.guest.tools import listing, words
from runner.guest.tools.base import Place, ToolResult

SECONDS = 60.0
"""Longest time of one call."""
ANSWER_LIMIT = 4 * 1024 * 1024
"""Most bytes of the worker's answer."""
_RIPGREP_LIMIT = 256 * 1024


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


_PATH = {"type": "string", "description": "Path of the file. Relative paths start in the workspace."}


class FileTool:
    """A tool whose work is one function of the worker."""

    name: str
    description: str
    parameters: dict[str, Any]
    changing = False
    worker = "runner.guest.tools.worker:main"
    """The function that does the work, in a child of its own."""

    def __init__(self, spawner: Spawner, place: Place) -> None:
        self._spawner = spawner
        self._place = place

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        return await self.work(checked)

    async def work(self, checked: dict[str, Any]) -> ToolResult:
        """Has the worker do it."""
        order = Command(
            argv=[self.name],
            env=self._place.environment,
            cwd=self._place.workspace,
            identity=self._place.owner,
            call=self.worker,
            grace=0,
        )
        given = json.dumps(checked).encode("ascii")
        result = await self._spawner.run(order, input=given, timeout=SECONDS, limit=ANSWER_LIMIT)
        if not result.exit.ok or result.stdout.truncated:
            why = words.ending(result.exit, result.timed_out, SECONDS) or "the answer is too large"
            said = words.shown(result.stderr)[-500:].strip()
            return ToolResult(f"{self.name} failed: {why}{': ' + said if said else ''}", True, words.record(result))
        answer = json.loads(result.stdout.data)
        data = {"ms": round(result.seconds * 1000, 1), **answer.get("data", {})}
        return ToolResult(answer["output"], answer.get("is_error", False), data)


class ReadFile(FileTool):
    name = "read_file"
    description = (
        "Read a text file. Returns its lines as they are. A long file is returned in parts: "
        "go on with the offset that the answer names."
    )
    parameters = _object(
        ["path"],
        path=_PATH,
        offset={"type": "integer", "description": "First line, from 1. Default 1.", "minimum": 1, "default": 1},
        limit={
            "type": "integer",
            "description": "Most lines. Default 2000.",
            "minimum": 1,
            "maximum": 100_000,
            "default": 2000,
        },
    )


class WriteFile(FileTool):
    name = "write_file"
    description = (
        "Write a whole file: create it, or replace all of its content. Missing folders are made. "
        "To change a part of a file use edit_file."
    )
    parameters = _object(
        ["path", "content"], path=_PATH, content={"type": "string", "description": "The whole new content."}
    )
    changing = True


class EditFile(FileTool):
    name = "edit_file"
    description = (
        "Replace text in a file. 'old' must be copied exactly from the file, with its white space, and be there only "
        "once, unless all is true. Returns the difference."
    )
    parameters = _object(
        ["path", "old", "new"],
        path=_PATH,
        old={"type": "string", "description": "The text to replace, exactly as it is in the file."},
        new={"type": "string", "description": "The text to put in its place; may be empty."},
        all={"type": "boolean", "description": "Replace every place. Default false.", "default": False},
    )
    changing = True


class ListFiles(FileTool):
    name = "list_files"
    description = "List the files and folders in a folder. With a pattern, find files by name in all folders below."
    parameters = _object(
        [],
        path={"type": "string", "description": "The folder. Default: the workspace."},
        pattern={"type": "string", "description": "Only names like this, for example *.py"},
        depth={"type": "integer", "description": "Levels of folders. Default 1.", "minimum": 1, "maximum": 64},
    )


class Search(FileTool):
    name = "search"
    description = (
        "Search the content of files for a regular expression. Returns the lines that match as path:line:text."
    )
    parameters = _object(
        ["pattern"],
        pattern={"type": "string", "description": "Regular expression, for example def main"},
        path={"type": "string", "description": "File or folder. Default: the workspace."},
        glob={"type": "string", "description": "Only files named like this, for example *.py"},
        ignore_case={"type": "boolean", "description": "Default false.", "default": False},
    )

    async def work(self, checked: dict[str, Any]) -> ToolResult:
        """By ripgrep where the image has it."""
        options = ["--no-config", "--line-number", "--with-filename", "--no-heading", "--color=never", "--hidden"]
        options += ["--max-columns=300", "--max-columns-preview", "--glob=!.git/"]
        if checked["ignore_case"]:
            options.append("--ignore-case")
        if checked["glob"]:
            options.append(f"--glob={checked['glob']}")
        where = checked["path"] or "./"
        if where.startswith("~/"):
            where = self._place.environment["HOME"] + where[1:]
        order = Command(
            argv=["rg", *options, "--regexp", checked["pattern"], "--", where],
            env=self._place.environment,
            cwd=self._place.workspace,
            identity=self._place.owner,
        )
        if "\0" in "".join(order.argv):
            return ToolResult("a pattern or path cannot hold a NUL byte", True, {"error": "arguments"})
        result = await self._spawner.run(order, timeout=SECONDS, limit=_RIPGREP_LIMIT)
        if result.exit.error == "rg: not found":
            return await super().work(checked)
        if result.exit.code not in (0, 1) and not (result.exit.code == 2 and result.stdout.size):
            why = words.shown(result.stderr).strip()[-1000:] or words.ending(result.exit, result.timed_out, SECONDS)
            return ToolResult(f"search failed: {why}", True, words.record(result))
        return _matches(result.stdout.parts()[0], result.stdout.truncated, words.record(result))


def _matches(text: str, truncated: bool, data: dict[str, Any]) -> ToolResult:
    lines = [words.clean(line.removeprefix("./")) for line in text.split("\n")]
    # Every line ends with a newline, and a cut one is left out. Ripgrep's threads finish in any order; its own sorting
    # would leave it one thread.
    whole = sorted(lines[:-1], key=_place_of)
    shown = whole[: listing.MAX_MATCHES]
    output = "\n".join(shown) or "[no match]"
    if truncated:
        output += "\n[… more matches; make the pattern narrower]"
    elif len(whole) > len(shown):
        output += f"\n[… {len(whole) - len(shown):,} more of {len(whole):,} matches; make the pattern narrower]"
    return ToolResult(output, False, {**data, "matches": len(whole), "truncated": truncated or len(whole) > len(shown)})


def _place_of(line: str) -> tuple[str, int]:
    path, _, rest = line.partition(":")
    number = rest.partition(":")[0]
    return path, int(number) if number.isdecimal() else 0


class Plan:
    """The model's own list of steps, kept for the session."""

    name = "plan"
    changing = False
    description = (
        "Keep a list of the steps of a longer task. Send the whole list each time a step changes. "
        "Only one step is in progress at a time."
    )
    parameters = _object(
        ["steps"],
        steps={
            "type": "array",
            "description": "All steps in order.",
            "items": {
                "type": "object",
                "properties": {
                    "step": {"type": "string"},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "done"]},
                },
                "required": ["step", "status"],
            },
        },
    )
    _MOST = 100
    _MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}  # noqa: RUF012

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
            steps = [self._step(item) for item in checked["steps"]]
            if len(steps) > self._MOST:
                raise checking.ArgumentError(f"more than {self._MOST} steps")
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        self.steps = steps
        lines = [f"{self._MARKS[status]} {step}" for step, status in steps]
        return ToolResult("\n".join(lines) or "The plan is empty.", False, {"steps": [list(step) for step in steps]})

    def _step(self, item: object) -> tuple[str, str]:
        if isinstance(item, str):
            return item, "pending"
        if isinstance(item, dict) and isinstance(item.get("step"), str):
            status = item.get("status", "pending")
            if status in self._MARKS:
                return item["step"], str(status)
        raise checking.ArgumentError('each step is {"step": "…", "status": "pending", "in_progress" or "done"}')


class FetchContent(FileTool):
    """A page of the web; offered where anything may leave the sandbox."""

    name = "fetch_content"
    changing = True
    description = "Fetch a page from the web and return it as Markdown text. Long pages come in parts."
    parameters = _object(
        ["url"],
        url={"type": "string", "description": "The address, beginning with https:// or http://"},
        offset={"type": "integer", "description": "Byte to go on from. Default 0.", "minimum": 0, "default": 0},
    )
    worker = "runner.guest.tools.fetch:main"
