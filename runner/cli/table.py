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


PASS_ON = {"allow_interspersed_args": False}
"""Options after the first argument belong to another command."""

COMMANDS: Mapping[str, Entry] = {
    "run": Entry("run:run", "Run an agent in a sandbox: with -p one question, without it a conversation."),
    "batch": Entry("batch:batch", "Ask many questions, each in a throwaway sandbox of its own."),
    "create": Entry("life:create", "Make a kept sandbox, and start nothing in it."),
    "ls": Entry("life:ls", "List the sandboxes of this engine, by name."),
    "exec": Entry("entry:execute", "Run a command in a sandbox as the workspace's owner.", PASS_ON),
    "shell": Entry("entry:shell", "Open a shell in a sandbox as the workspace's owner."),
    "cp": Entry("cp:cp", "Copy files between this machine and a sandbox."),
    "diff": Entry("changes:diff", "Show what an agent changed in its copy of a workspace, as a patch."),
    "apply": Entry("changes:apply", "Write what an agent changed in its copy into your workspace."),
    "export": Entry(
        "changes:export",
        "Copy a sandbox's private workspace into a folder.",
    ),
    "inspect": Entry("life:inspect", "Show what a sandbox may do, and what differs from the default."),
    "stats": Entry("life:stats", "Show once what running sandboxes use."),
    "start": Entry("entry:start", "Start kept sandboxes in the background."),
    "stop": Entry("life:stop", "Stop sandboxes; a kept one keeps its home."),
    "rm": Entry("life:rm", "Remove sandboxes with their homes."),
    "prune": Entry("life:prune", "Remove what dead runs left behind."),
    "completion": Entry("completion:completion", "Print a script that completes commands, options and names."),
    "hold": Entry("entry:hold", "The process in the background of `sbx start`.", hidden=True),
    "log": Entry("log:log", "Show the record of a session, each line with its time."),
    "report": Entry("log:report", "Write a session as one self-contained HTML page."),
    "session": Entry("log:session_app", "Earlier sessions: list, show, remove, export."),
    "policy": Entry("policy:policy_app", "What may leave a sandbox: check a host, list the rules, show the log."),
    "secret": Entry("secret:secret_app", "Credentials for kits: bind, list, remove, check."),
    "kit": Entry("kit:app", "Check, show, begin and list kits."),
    "image": Entry("image:app", "Build, share, compare and check images."),
    "hook": Entry("hook:app", "Hooks: try one, import those of another agent, list a sandbox's chain."),
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
