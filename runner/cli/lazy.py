"""Commands that are imported and built when they are called, from the rows of `table`."""

from __future__ import annotations

import importlib

import typer
from typer import _click
from typer.core import TyperGroup

from runner.cli.examples import shown
from runner.cli.table import COMMANDS, Entry, root_help


def load(name: str, entry: Entry) -> _click.Command:
    """Imports and builds a command."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(importlib.import_module(f"runner.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode, found._add_completion = None, False
    else:
        single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
        # \b keeps the lines as they are.
        epilog = f"\b\n{shown(name)}" if shown(name) else None
        settings = dict(entry.settings) or None
        single.command(name, context_settings=settings, hidden=entry.hidden, epilog=epilog)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    return command


class Commands(TyperGroup):
    """The group `sbx`."""

    def list_commands(self, ctx: _click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: _click.Context, cmd_name: str) -> _click.Command | None:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = load(cmd_name, COMMANDS[cmd_name])
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: _click.Context, args: list[str]
    ) -> tuple[str | None, _click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from runner.kits.document import nearest

            near = nearest(args[0], list(COMMANDS))
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {near!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: _click.Context) -> str:
        return root_help().rstrip("\n")
