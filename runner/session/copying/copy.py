"""`sbx cp`: what a source and a destination mean, and the two ways between them.

The words are `docker cp`'s: into a folder that is there, under the source's own name; to a name that is not there yet,
under that name; `FOLDER/.` means the folder's content; `-` is a tar stream on stdin or stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import EngineError, NotFoundError, SbxError, UsageError
from runner.session.commands import Commander, code_of
from runner.session.copying import archive
from runner.session.copying.archive import ArchiveError, Reader
from runner.session.copying.folder import Unpacker, Written, pack
from runner.wire import messages as m
from runner.wire.mux import StreamReset

STDERR_KEPT = 4096
PIECE = 256 * 1024
_LOOK = """for p do
if [ -L "$p" ]; then echo l; elif [ -d "$p" ]; then echo d; elif [ -e "$p" ]; then echo f; else echo -; fi
done"""
"""What each path is: a link, a folder, something else, nothing."""


class CopyError(SbxError):
    """A copy could not be made, or not all of it."""


@dataclass(frozen=True)
class Place:
    """One end of a copy."""

    sandbox: str
    """Empty: on the host."""
    path: str


def parse(text: str) -> Place:
    """`NAME:PATH` in a sandbox, or a path on the host. A host's path with a colon is written with `./` or `/` first.

    Raises UsageError.
    """
    if not text:
        raise UsageError("a path is empty")
    name, colon, path = text.partition(":")
    if not colon or "/" in name or name in ("", ".", ".."):
        return Place("", text)
    return Place(name, path or ".")


async def copy_out(commander: Commander, workspace: str, source: str, target: Path) -> Written:
    """From a sandbox to the host.

    Args:
        workspace: where relative paths of the sandbox start.
        source: in the sandbox.
        target: on the host.

    Raises:
        NotFoundError: there is no such path in the sandbox.
        UsageError: the destination cannot be.
        CopyError: a part could not be read, or what came is no archive.
    """
    path = posixpath.join(workspace, source)
    contents = path.endswith("/.") or path in (".", "/")
    clean = posixpath.normpath(path)
    kind = (await look(commander, clean + ("/." if contents or path.endswith("/") else "")))[0]
    if kind == "-":
        raise NotFoundError(f"there is no {source} in the sandbox", place=clean)
    if contents and kind != "d":
        raise UsageError(f"{source} is not a folder in the sandbox", place=clean)
    if contents:
        _make_folder(target)
        return await _unpack(commander, [clean, "."], target, (b".", b"."))
    name = os.fsencode(posixpath.basename(clean))
    folder, called = _destination(target, name, kind == "d")
    return await _unpack(commander, [posixpath.dirname(clean), posixpath.basename(clean)], folder, (name, called))


def _make_folder(target: Path) -> None:
    try:
        target.mkdir(exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{target} is a file: a folder's content cannot go there", place=str(target)) from None
    except OSError as error:
        raise UsageError(f"the folder {target} cannot be made: {error.strerror}", place=str(target)) from None


def _destination(target: Path, name: bytes, is_folder: bool) -> tuple[Path, bytes]:
    """The folder on the host that is written, and what the copy is called in it."""
    if target.is_dir():
        return target, name
    if str(target).endswith("/") or not target.parent.is_dir():
        raise UsageError(f"there is no folder {target}", place=str(target), hint=f"mkdir -p {target}")
    if is_folder and target.exists():
        raise UsageError(f"{target} is a file: a folder cannot go there", place=str(target))
    return target.parent, os.fsencode(target.name)


async def _unpack(commander: Commander, what: Sequence[str], folder: Path, rename: tuple[bytes, bytes]) -> Written:
    unpacker = Unpacker(folder, rename)
    try:
        async with _tar_out(commander, what) as stream:
            reader = Reader(stream)
            try:
                written = await unpacker.unpack(reader)
                await reader.rest()
            except ArchiveError as error:
                raise CopyError(f"what the sandbox sent is no archive: {error}") from None
            except OSError as error:
                raise CopyError(
                    f"cannot be written: {error.strerror}", place=f"{folder}/{os.fsdecode(error.filename or '')}"
                ) from None
    finally:
        unpacker.close()
    if not (written.files or written.folders or written.links) and written.left_out:
        raise CopyError("nothing could be copied", log="\n".join(written.left_out))
    return written


async def copy_in(commander: Commander, workspace: str, given: str, target: str) -> Written:
    """From the host into a sandbox; what is made belongs to U.

    Args:
        given: on the host, as it was written: `FOLDER/.` means the folder's content.

    Raises:
        UsageError: there is no such source, or the destination cannot be.
        CopyError: a part could not be written.
    """
    source = _Source.of(given)
    path = posixpath.join(workspace, target)
    clean = posixpath.normpath(path)
    kind, above = await look(commander, clean + "/.", posixpath.dirname(clean) + "/.")
    if kind == "d":
        folder, name = clean, "." if source.contents else source.name
    elif above == "d" and (source.contents or not path.endswith("/")):
        if source.is_folder and (await look(commander, clean))[0] != "-":
            raise UsageError(f"{target} is a file in the sandbox: a folder cannot go there", place=clean)
        if source.contents:
            await _run(commander, ["mkdir", "--", clean], f"{target} cannot be made")
            folder, name = clean, "."
        else:
            folder, name = posixpath.dirname(clean), posixpath.basename(clean)
    else:
        raise NotFoundError(f"there is no folder {posixpath.dirname(clean)} in the sandbox", place=clean)
    left_out = Written()
    await _tar_in(commander, folder, _packed(source.path, os.fsencode(name), left_out))
    return left_out


@dataclass(frozen=True)
class _Source:
    """What is copied in."""

    path: Path
    name: str
    is_folder: bool
    contents: bool
    """Not the folder, what is in it."""

    @classmethod
    def of(cls, given: str) -> _Source:
        path = Path(given)
        if not path.exists() and not path.is_symlink():
            raise UsageError(f"there is no {given}", place=given)
        name = path.resolve().name if path.name in ("", "..") else path.name
        contents = given.endswith("/.") or given == "."
        if contents and not path.is_dir():
            raise UsageError(f"{given} is not a folder", place=given)
        return cls(path, name, path.is_dir() and not path.is_symlink(), contents)


async def _packed(source: Path, name: bytes, written: Written) -> AsyncIterator[bytes]:
    held = bytearray()
    for member, fd in pack(source, name, written):
        held += archive.header(member)
        if fd < 0:
            written.folders += member.kind == archive.FOLDER
            written.links += member.kind == archive.LINK
        else:
            written.files += 1
            written.size += member.size
            left = member.size
            while left:
                # A file that shrinks meanwhile is filled with zeros: its size is said already.
                piece = os.read(fd, min(PIECE, left)) or b"\0" * min(PIECE, left)
                left -= len(piece)
                held += piece
                if len(held) >= PIECE:
                    yield bytes(held)
                    held.clear()
            held += b"\0" * (-member.size % archive.BLOCK)
        if len(held) >= PIECE:
            yield bytes(held)
            held.clear()
    yield bytes(held) + archive.END


async def stream_out(commander: Commander, workspace: str, source: str, fd: int) -> None:
    """A tar of the source, as it comes, to a descriptor."""
    clean = posixpath.normpath(posixpath.join(workspace, source))
    if (await look(commander, clean))[0] == "-":
        raise NotFoundError(f"there is no {source} in the sandbox", place=clean)
    what = [posixpath.dirname(clean), posixpath.basename(clean) or "."]
    async with _tar_out(commander, what) as stream:
        async for data in stream:
            view = memoryview(data)
            while view:
                view = view[await asyncio.to_thread(os.write, fd, view) :]


async def stream_in(commander: Commander, workspace: str, fd: int, target: str) -> None:
    """A tar from a descriptor, unpacked by the sandbox's own `tar` into a folder there."""
    clean = posixpath.normpath(posixpath.join(workspace, target))
    if (await look(commander, clean + "/."))[0] != "d":
        raise NotFoundError(f"there is no folder {target} in the sandbox", place=clean)

    async def pieces() -> AsyncIterator[bytes]:
        while data := await asyncio.to_thread(os.read, fd, PIECE):
            yield data

    await _tar_in(commander, clean, pieces())


async def look(commander: Commander, *paths: str) -> list[str]:
    """What each path in the sandbox is, as U sees it: `d`, `f`, `l` (a link) or `-`."""
    said = await _run(commander, ["sh", "-c", _LOOK, "sh", *paths], "the sandbox cannot be looked into")
    kinds = said.decode("ascii", "replace").split()
    return kinds if len(kinds) == len(paths) and set(kinds) <= set("dfl-") else ["-"] * len(paths)


async def _run(commander: Commander, argv: Sequence[str], failed: str) -> bytes:
    out, err = commander.open(), commander.open()
    _, ended, _ = commander.exec(argv, stdout=out.channel, stderr=err.channel, cwd="/", timeout=60.0)
    said, complaint, exited = await asyncio.gather(_head(out), _head(err), ended)
    if code_of(exited) != 0:
        raise CopyError(failed, log=_told(complaint, exited))
    return said


@contextlib.asynccontextmanager
async def _tar_out(commander: Commander, what: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
    """`tar` of `what[1]` in the folder `what[0]`. Raises CopyError when it says that something could not be read."""
    out, err = commander.open(), commander.open()
    argv = ["tar", "--create", "--format=gnu", "--file=-", "--directory", what[0], "--", what[1]]
    _, ended, _ = commander.exec(argv, stdout=out.channel, stderr=err.channel, cwd="/", env={"LC_ALL": "C"})
    complaining = asyncio.create_task(_head(err))
    try:
        yield out.__aiter__()
        exited = await ended
        complaint = await complaining
    except StreamReset as error:
        raise EngineError(f"the sandbox went away: {error}") from None
    finally:
        out.reset("the copy is over")
        complaining.cancel()
    # 1 is "a file changed while it was read", which a copy of something alive may do.
    if code_of(exited) not in (0, 1):
        raise CopyError("not everything could be copied", log=_told(complaint, exited))


async def _tar_in(commander: Commander, folder: str, data: AsyncIterator[bytes]) -> None:
    given, err = commander.open(), commander.open()
    argv = ["tar", "--extract", "--file=-", "--no-same-owner", "--directory", folder]
    _, ended, _ = commander.exec(argv, stdin=given.channel, stderr=err.channel, cwd="/", env={"LC_ALL": "C"})
    complaining = asyncio.create_task(_head(err))
    with contextlib.suppress(StreamReset):  # it ended before it had all: it says why
        async for piece in data:
            await given.write(piece)
        given.close()
    exited = await ended
    complaint = await complaining
    if code_of(exited) != 0:
        raise CopyError("not everything could be copied", log=_told(complaint, exited))


async def _head(stream: object) -> bytes:
    """The beginning of what a command says; the rest is read and dropped."""
    from runner.wire.mux import Stream

    assert isinstance(stream, Stream)
    data = bytearray()
    with contextlib.suppress(StreamReset):
        async for piece in stream:
            data += piece[: max(STDERR_KEPT - len(data), 0)]
    return bytes(data)


def _told(complaint: bytes, exited: m.Exited) -> str:
    return complaint.decode("utf-8", "replace").strip() or exited.error or f"code {code_of(exited)}"
