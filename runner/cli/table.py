"""The commands by name, and what `sbx --help` says. Light to import: Typer alone costs seven starts of Python.

A new command is one row here. A test keeps each row equal to what the command says of itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `dataclasses` would take longer to import than the help to print
    from collections.abc import Mapping
    from typing import Any

ABOUT = "Run an LLM agent, its tool calls and its hooks inside a throwaway hardened container."
TRY = (
    'sbx run hooks-demo --demo -p "Which files are here?"     one question, scripted model',
    "sbx run hooks-demo                                       a conversation",
    "sbx doctor                                               what works here, and what to do about the rest",
)


class Entry:
    """One command, or one group of commands.

    Args:
        target: `MODULE:NAME` under `runner.cli`: a function, or a `typer.Typer` with a group's commands.
        help: first line of its help.
        settings: context settings, such as those of a command that passes options on.
        hidden: it is not listed.
    """

    def __init__(
        self, target: str, help: str, settings: Mapping[str, Any] | None = None, *, hidden: bool = False
    ) -> None:
        self.target = target
        self.help = help
        self.settings = settings or {}
        self.hidden = hidden


COMMANDS: Mapping[str, Entry] = {
    "run": Entry("run:run", "Run an agent in a sandbox: with -p one question, without it a conversation."),
    "log": Entry("log:log", "Show the record of a session, each line with its time."),
    "report": Entry("log:report", "Write a session as one self-contained HTML page."),
    "session": Entry("log:session_app", "Earlier sessions: list, show, remove, export."),
    "doctor": Entry("doctor:doctor", "Check the engine, the disk, the base image and the model server."),
}


def root_help() -> str:
    """What `sbx --help` prints."""
    shown = {name: entry.help for name, entry in COMMANDS.items() if not entry.hidden}
    width = max(map(len, shown))
    lines = ["Usage: sbx COMMAND [OPTIONS] [ARGS]...", "", f"  {ABOUT}", "", "Commands:"]
    lines += [f"  {name:<{width}}  {text}" for name, text in shown.items()]
    lines += [
        "",
        "Options:",
        "  --version   Print the version.",
        "  -h, --help  Print this; `sbx COMMAND --help` for more.",
    ]
    lines += ["", "Try:", *(f"  {line}" for line in TRY)]
    return "\n".join(lines) + "\n"
