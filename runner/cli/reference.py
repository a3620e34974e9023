"""The reference pages that are made from the code: every command with its options, and every exit code."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from typing import Any

from runner import errors
from runner.cli.examples import EXAMPLES
from runner.cli.lazy import load
from runner.cli.table import ABOUT, COMMANDS

HEAD = "<!-- Made by scripts/reference from the code; a test keeps it current. -->\n\n"

MEANINGS = {
    0: "The turn completed. A question that a hook stopped on purpose counts too: the hook's response is the answer.",
    1: "The turn failed: a model error, a failing hook with `onError: fail`, a limit of rounds, tokens or calls, the "
    "loop breaker.",
    2: "Something in the command line or a file is wrong; nothing was started.",
    3: "There is no such sandbox, kit or session, or it is in use.",
    4: "There is no engine, or it failed, or the sandbox went away.",
    5: "An image could not be built, pulled or verified, or speaks another version of the wire.",
    6: "Policy refuses: a grant is missing.",
    7: "An expectation was not met: `--expect`, `--check`, `--artifact`; for a batch, any line failed.",
    124: "The run's time was up (`--timeout`).",
    130: "Ended by SIGINT (Ctrl-C).",
    137: "The sandbox ran out of memory.",
    143: "Ended by SIGTERM.",
}
"""What each exit code means; those of `runner.errors`, and 0."""


def pages() -> dict[str, str]:
    """File name in `docs/reference/`, and its text."""
    return {"commands.md": commands_page(), "exit-codes.md": exit_codes_page()}


def commands_page() -> str:
    """Every command that is listed: what it does, its arguments, options and examples."""
    parts = [HEAD, "# Commands\n\n", f"{ABOUT}\n\n", _contents()]
    for name, entry in COMMANDS.items():
        if entry.hidden:
            continue
        command = load(name, entry)
        parts.append(_command(f"sbx {name}", command, "##"))
        for each, below in sorted(getattr(command, "commands", {}).items()):
            parts.append(_command(f"sbx {name} {each}", below, "###"))
        if rows := EXAMPLES.get(name):
            width = max(len(line) for line, _ in rows)
            lines = "\n".join(f"{line:<{width}}   # {what}" for line, what in rows)
            parts.append(f"```sh\n{lines}\n```\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def _contents() -> str:
    listed = [f"| [`{n}`](#sbx-{n}) | {e.help} |\n" for n, e in COMMANDS.items() if not e.hidden]
    return "| command | does |\n|---|---|\n" + "".join(listed) + "\n"


def _command(title: str, command: Any, level: str) -> str:
    about = inspect.cleandoc(command.help or "")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([title, *(["[OPTIONS]"] if options else []), *(_argument(p) for p in arguments)])
    text = f"{level} {title}\n\n{about}\n\n    {usage}\n\n"
    rows = [f"| `{_argument(p)}` | {_cell(p.help)} |\n" for p in arguments]
    rows += [f"| {_names(p)} | {_cell(p.help)} |\n" for p in options]
    return text + ("| | |\n|---|---|\n" + "".join(rows) + "\n" if rows else "")


def _argument(parameter: Any) -> str:
    name = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} VALUE"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def exit_codes_page() -> str:
    """Every exit code, and the errors that end with it."""
    by_code: dict[int, list[type[errors.SbxError]]] = {}
    for kind in _kinds(errors.SbxError):
        for code in (130, 143) if kind is errors.Interrupted else (kind.exit_code,):
            by_code.setdefault(int(code), []).append(kind)
    rows = []
    for code, meaning in sorted(MEANINGS.items()):
        kinds = ", ".join(f"`{name}`" for name in sorted(_kind(k) for k in by_code.get(code, ())))
        rows.append(f"| {code} | {meaning} | {kinds or '—'} |\n")
    return (
        HEAD + "# Exit codes\n\n"
        "Each code means one thing. Under `--json` and `--events` the error is on stdout as JSON, with its `code`,\n"
        "its `kind`, a `message`, and where known a `place`, a `hint` and a `log`; for people it is on stderr.\n\n"
        "| code | meaning | kinds |\n|---|---|---|\n" + "".join(rows) + "\n"
        "`sbx exec` and `sbx shell` pass on the command's own code: 128 and the number for a signal, 127 when it is\n"
        "not found, 126 when it cannot be executed. For `sbx exec`, whatever sbx or the engine fails at is 125, as\n"
        "for `docker exec`; the message on stderr tells which.\n\n"
        "`make situations` causes these for real and prints a table of them.\n"
    )


def _kinds(kind: type[errors.SbxError]) -> Iterator[type[errors.SbxError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _kind(kind: type[errors.SbxError]) -> str:
    made = errors.Interrupted(signal.SIGINT) if kind is errors.Interrupted else kind("")
    return made.kind
