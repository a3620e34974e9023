"""What the pages show: command lines in code blocks, commands and options in running text."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from runner.cli.app import app
from tests.conformance.main.conftest import REPO

DOCS = REPO / "docs"
MADE = {"commands.md", "exit-codes.md"}
"""Pages that are made from the code."""


@dataclass(frozen=True)
class Line:
    """A command line as it stands on a page, without what the page says behind `#`."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"

    @property
    def arguments(self) -> list[str]:
        """What `sbx` is given; the shell's own parts (pipes, redirections) are left out."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|<>&;")
        lexer.whitespace_split = True
        words = list(lexer)
        end = next((n for n, word in enumerate(words) if set(word) <= set("|<>&;")), len(words))
        return words[1:end]


def pages() -> list[Path]:
    """Every page that people wrote."""
    return [REPO / "README.md", *sorted(p for p in DOCS.rglob("*.md") if p.name not in MADE)]


def code_lines(page: Path) -> list[tuple[int, str]]:
    """The lines of a page's code blocks, fenced or indented, with their numbers; lines that go on are joined."""
    found: list[tuple[int, str]] = []
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            if found and found[-1][1].endswith("\\"):
                found[-1] = (found[-1][0], f"{found[-1][1][:-1].rstrip()} {line.strip()}")
            else:
                found.append((number, line))
    return found


def command_lines(page: Path) -> list[Line]:
    """The lines that call `sbx`."""
    name = str(page.relative_to(REPO))
    found = []
    for number, line in code_lines(page):
        if match := re.match(r"\s*(?:\$ |- )?(sbx .*?)(?:\s+#\s.*)?$", line):
            found.append(Line(name, number, match[1]))
    return found


def in_text(page: Path) -> list[str]:
    """What stands between single backquotes outside of code blocks."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [span.replace("\\|", "|").replace("\n", " ") for span in re.findall(r"`([^`]+)`", text)]


def understand(arguments: list[str]) -> None:
    """Takes a command line apart as `sbx` itself does, without running it.

    Raises:
        ClickException: there is no such command or option, or an argument is missing.
    """
    command, rest = find(arguments)
    command.make_context(command.name, rest)


def find(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that a command line calls, and what is left of the line."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("sbx", [], resilient_parsing=True)
    rest = list(arguments)
    while hasattr(command, "get_command") and rest:
        _, command, rest = command.resolve_command(context, rest)
    return command, rest


def options(command: Any) -> set[str]:
    """Every option of a command."""
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}


def all_options() -> set[str]:
    """Every option of every command."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("sbx", [], resilient_parsing=True)
    found = {"--version"}
    waiting = [root.get_command(context, name) for name in root.list_commands(context)]
    while waiting:
        command = waiting.pop()
        found |= options(command)
        waiting += getattr(command, "commands", {}).values()
    return found
