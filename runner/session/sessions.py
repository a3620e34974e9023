"""The sessions of one user: finding one, listing, taking away, giving out."""

from __future__ import annotations

import difflib
import fcntl
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runner.errors import InUseError, NotFoundError, SbxError, UsageError
from runner.session.record import FILE, load
from runner.session.state import SESSION_ID, Folders


@dataclass(frozen=True)
class Summary:
    """One line of `sbx session ls`. `damaged` says what is wrong with a record that cannot be read, else empty."""

    id: str
    started: str
    ended: str
    sandbox: str
    model: str
    workspace: str
    turns: int
    status: str
    bytes: int
    damaged: str = ""


def ids(folders: Folders) -> list[str]:
    """The ids of all sessions, oldest first."""
    try:
        found = [each.name for each in os.scandir(folders.sessions) if SESSION_ID.fullmatch(each.name)]
    except FileNotFoundError:
        return []
    return sorted(found)


def find_session(folders: Folders, name: str | None = None) -> Path:
    """The folder of a session.

    Args:
        name: an id, its beginning, or its end; None for the one that was written to last.

    Raises NotFoundError, which lists near ids; UsageError when several fit.
    """
    known = ids(folders)
    if name is None:
        written = [(_modified(folders.session(each)), each) for each in known]
        if not written:
            raise NotFoundError("there is no session yet", place=str(folders.sessions))
        return folders.session(max(written)[1])
    if name in known:
        return folders.session(name)
    fitting = [each for each in known if name and (each.startswith(name) or each.endswith(name))]
    if len(fitting) == 1:
        return folders.session(fitting[0])
    if fitting:
        raise UsageError(f"{len(fitting)} sessions fit {name!r}: {', '.join(fitting[-5:])}", hint="give more of the id")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6) or known[-3:]
    hint = f"near: {', '.join(near)}" if near else "there is no session yet"
    raise NotFoundError(f"no session {name!r}", place=str(folders.sessions), hint=hint)


def summaries(folders: Folders) -> Iterator[Summary]:
    """All sessions, oldest first. A broken one is listed as damaged and spoils nothing."""
    for session in ids(folders):
        folder = folders.session(session)
        try:
            size = (folder / FILE).stat().st_size
            lines = load(folder)
        except (OSError, SbxError) as error:
            yield Summary(session, "", "", "", "", "", 0, "damaged", 0, damaged=str(error))
            continue
        start = lines[0].data
        agent = start.get("agent")
        ends = [line for line in lines if line.name in ("turn.end", "session.end")]
        yield Summary(
            id=session,
            started=lines[0].time,
            ended=lines[-1].time,
            sandbox=str(start.get("sandbox", "")),
            model=str(agent.get("model", "")) if isinstance(agent, dict) else "",
            workspace=str(start.get("workspace", "")),
            turns=sum(line.name == "turn.start" for line in lines),
            status=str(ends[-1].data.get("status", "")) if ends else "unfinished",
            bytes=size,
        )


def remove(folder: Path) -> None:
    """Delete a session. Raises InUseError while a process has it, OSError where it cannot be deleted."""
    try:
        fd = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        shutil.rmtree(folder)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        raise InUseError(f"session {folder.name} is in use by another process") from None
    finally:
        os.close(fd)


def export(folder: Path, out: BinaryIO) -> None:
    """Write a session's record and outputs to `out` as one `.tar.gz`; plain files only, owned by nobody."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (member.isfile() or member.isdir()):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name, filter=plain)


def _modified(folder: Path) -> float:
    try:
        return (folder / FILE).stat().st_mtime
    except OSError:
        return 0.0
