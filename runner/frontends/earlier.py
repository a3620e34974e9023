"""`/sessions` and `/resume` of the conversation: earlier sessions, listed and taken up in the running sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from runner.errors import NotFoundError, SbxError
from runner.frontends.render import error_lines
from runner.frontends.repl import Command
from runner.frontends.safe import safe_line
from runner.frontends.terminal import Styled
from runner.session.sessions import Summary, find_session, summaries
from runner.session.state import Folders

SHOWN = 20
"""Sessions that are listed, the newest last."""


class TakesUp(Protocol):
    """A session that can go on with another one's conversation."""

    async def take_up(self, folder: Path) -> int: ...


def _line(each: Summary) -> Styled:
    if each.damaged:
        return Styled(f"  {each.id}  damaged: {safe_line(each.damaged)}", "yellow")
    turns = f"{each.turns} turn{'' if each.turns == 1 else 's'}"
    return Styled(f"  {each.id}  {turns}, {safe_line(each.status)}, {safe_line(each.workspace)}", "dim")


def commands(session: TakesUp, folders: Folders) -> Mapping[str, Command]:
    """The slash commands by name.

    Args:
        session: the running one.
        folders: where the sessions are.
    """

    async def ls(rest: str) -> Sequence[Styled]:
        found = list(summaries(folders))
        lines = [_line(each) for each in found[-SHOWN:]]
        if len(found) > SHOWN:
            lines.insert(0, Styled(f"  … {len(found) - SHOWN} older ones; sbx session ls shows all", "dim"))
        return lines or [Styled("  there is no session yet", "dim")]

    async def resume(rest: str) -> Sequence[Styled]:
        try:
            if not rest:
                raise NotFoundError("/resume wants the id of a session", hint="/sessions lists them")
            folder = find_session(folders, rest)
            count = await session.take_up(folder)
        except SbxError as error:
            return error_lines(error)  # the conversation goes on as it was
        return [Styled(f"session {folder.name} goes on here: {count} messages", "dim")]

    return {
        "sessions": Command("list earlier sessions", ls),
        "resume": Command("ID: go on with an earlier session's conversation, in this sandbox", resume),
    }
