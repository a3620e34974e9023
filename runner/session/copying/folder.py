"""The host's end of a copy: a folder that is written and read without ever following a link.

The folder may lie in a workspace, where a tool of the very sandbox can change it meanwhile. So every path is walked
from the folder's descriptor, each step with O_NOFOLLOW; a link that a tool puts in the way is an error, never a way
out. What comes out of a sandbox is made with this user's own rights: no owner, no setuid bit, no device.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runner.session.copying import archive
from runner.session.copying.archive import Member, Reader

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_DEPTH = 400
"""Folders in each other."""
MAX_TOLD = 50
"""Members left out that are named one by one."""


@dataclass
class Written:
    """What came of unpacking."""

    files: int = 0
    folders: int = 0
    links: int = 0
    size: int = 0
    """Bytes of the files."""
    left_out: list[str] = field(default_factory=list)
    """`NAME: why`, the first `MAX_TOLD`."""
    left_out_count: int = 0

    def leave_out(self, name: bytes, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < MAX_TOLD:
            self.left_out.append(f"{name.decode('utf-8', 'backslashreplace')}: {why}")


class Unpacker:
    """Lays an archive's members below one folder.

    Args:
        folder: on the host; it must be there.
        rename: the first part of each member's name, and what it is to be called; `b"."` for both lays the content
            of a folder into `folder` itself.
    """

    def __init__(self, folder: Path, rename: tuple[bytes, bytes]) -> None:
        self.written = Written()
        self._first, self._called = rename
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._here: tuple[bytes, ...] = ()
        self._fd = os.dup(self._root)
        self._modes: list[tuple[tuple[bytes, ...], int, int]] = []

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._root)

    async def unpack(self, reader: Reader) -> Written:
        """All of it. Raises ArchiveError for what is no archive, OSError where this user may not write."""
        async for member in archive.members(reader):
            await self._lay(member, reader)
        # Last, from the inside out: a folder without the right to write in it, or its time, would be in the way before.
        for parts, mode, time in reversed(self._modes):
            with contextlib.suppress(OSError):
                fd = self._open(parts)
                os.fchmod(fd, mode)
                os.utime(fd, (time, time))
        return self.written

    async def _lay(self, member: Member, reader: Reader) -> None:
        parts, why = self._place(member)
        if why or parts is None:
            self.written.leave_out(member.name, why)
        elif member.kind == archive.FOLDER:
            self._folder(parts, member)
        elif not parts:
            self.written.leave_out(member.name, "it has no name")
        elif member.kind == archive.FILE:
            await self._file(parts, member, reader)
            return
        elif member.kind == archive.LINK:
            self._link(parts, member)
        else:
            self._hard_link(parts, member)
        async for _ in archive.content(reader, member):
            pass

    def _place(self, member: Member) -> tuple[tuple[bytes, ...] | None, str]:
        """Where it goes, as names below the root; or why it does not."""
        if member.unwanted:
            return None, f"it is {member.unwanted}"
        return self._inside(member.name)

    def _inside(self, name: bytes) -> tuple[tuple[bytes, ...] | None, str]:
        parts = [part for part in name.split(b"/") if part not in (b"", b".")]
        if name.startswith(b"/") or b".." in parts or b"\0" in name:
            return None, "its name leads out"
        if len(parts) > MAX_DEPTH or any(len(part) > 255 for part in parts):
            return None, "its name is too long"
        if self._first != b".":
            if not parts or parts[0] != self._first:
                return None, "it was not asked for"
            parts[:1] = [] if self._called == b"." else [self._called]
        return tuple(parts), ""

    def _folder(self, parts: tuple[bytes, ...], member: Member) -> None:
        if parts:
            self._open(parts, make=True)
            self.written.folders += 1
            self._modes.append((parts, member.mode & 0o777, member.time))

    async def _file(self, parts: tuple[bytes, ...], member: Member, reader: Reader) -> None:
        folder = self._open(parts[:-1], make=True)
        fd = self._new_file(folder, parts[-1])
        try:
            async for piece in archive.content(reader, member):
                _write(fd, piece)
            os.fchmod(fd, member.mode & 0o777)
            os.utime(fd, (member.time, member.time))
        finally:
            os.close(fd)
        self.written.files += 1
        self.written.size += member.size

    def _new_file(self, folder: int, name: bytes) -> int:
        """A fresh file, never one that is there: that may be a link, or linked from elsewhere."""
        self._clear(folder, name)
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)

    def _link(self, parts: tuple[bytes, ...], member: Member) -> None:
        if not _stays(len(parts) - 1, 0 if self._called == b"." else 1, member.target):
            self.written.leave_out(member.name, f"a link that leads out, to {member.target.decode('utf-8', 'replace')}")
            return
        folder = self._open(parts[:-1], make=True)
        self._clear(folder, parts[-1])
        os.symlink(member.target, parts[-1], dir_fd=folder)
        self.written.links += 1

    def _hard_link(self, parts: tuple[bytes, ...], member: Member) -> None:
        """A second name of a file of this archive: copied, so that no name of the host's is ever linked."""
        source, why = self._inside(member.target)
        if source is None or not source or why:
            self.written.leave_out(member.name, "a hard link to something else")
            return
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(source[-1], flags, dir_fd=self._open(source[:-1]))
        except OSError:
            self.written.leave_out(member.name, "a hard link to something that is not there")
            return
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self.written.leave_out(member.name, "a hard link to what is no file")
                return
            out = self._new_file(self._open(parts[:-1], make=True), parts[-1])
            try:
                while piece := os.read(fd, 1 << 20):
                    _write(out, piece)
                os.fchmod(out, found.st_mode & 0o777)
                os.utime(out, (found.st_mtime, found.st_mtime))
            finally:
                os.close(out)
        finally:
            os.close(fd)
        self.written.files += 1

    def _clear(self, folder: int, name: bytes) -> None:
        """Takes away a file or link of that name; a folder there is an error of the file system's."""
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return

    def _open(self, parts: tuple[bytes, ...], *, make: bool = False) -> int:
        """A descriptor of the folder, which stays this object's. The last one is kept: an archive goes folder by
        folder."""
        if parts == self._here:
            return self._fd
        common = 0
        if parts[: len(self._here)] == self._here:
            common = len(self._here)
        fd = os.dup(self._fd if common else self._root)
        try:
            for part in parts[common:]:
                try:
                    below = os.open(part, _FOLDER_FLAGS, dir_fd=fd)
                except FileNotFoundError:
                    if not make:
                        raise
                    os.mkdir(part, 0o700, dir_fd=fd)
                    below = os.open(part, _FOLDER_FLAGS, dir_fd=fd)
                    os.fchmod(below, 0o777 & ~_umask())
                os.close(fd)
                fd = below
        except BaseException:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._here = fd, parts
        return fd


def _stays(depth: int, base: int, target: bytes) -> bool:
    """A link's target stays in the copied tree.

    Only leading `..` pass: they start from the link's own folder, which is a real one. One that follows a name could
    be taken from wherever that name, a link itself, leads.

    Args:
        depth: of the folder that the link lies in, below the destination.
        base: of the copied tree's own folder: 0 when its content is laid into the destination, else 1.
    """
    if not target or target.startswith(b"/") or b"\0" in target or depth < base:
        return False
    named = False
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
            if named or depth < base:
                return False
        elif part not in (b"", b"."):
            named = True
    return True


def pack(path: Path, name: bytes, left_out: Written) -> Iterator[tuple[Member, int]]:
    """The members of a file or folder on the host, each with a descriptor of its content (-1: none), parents first.

    Links are members themselves and never followed, the top one too.

    Args:
        name: what the top is to be called; `b"."` for the content of a folder.
        left_out: takes the names of devices, pipes and sockets.
    """
    if path.is_symlink():
        found = path.lstat()
        yield _member(name, archive.LINK, found, os.readlink(os.fsencode(path))), -1
        return
    if not path.is_dir():
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        yield from _one_file(fd, name, left_out)
        return
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _member(name, archive.FOLDER, os.fstat(root)), -1
        yield from _below(root, name, left_out)
    finally:
        os.close(root)


def _below(folder: int, name: bytes, left_out: Written) -> Iterator[tuple[Member, int]]:
    for entry in sorted(os.listdir(folder), key=os.fsencode):
        raw = os.fsencode(entry)
        inside = name + b"/" + raw
        try:
            found = os.stat(raw, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                yield _member(inside, archive.LINK, found, os.readlink(raw, dir_fd=folder)), -1
            elif stat.S_ISDIR(found.st_mode):
                below = os.open(raw, _FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield _member(inside, archive.FOLDER, found), -1
                    yield from _below(below, inside, left_out)
                finally:
                    os.close(below)
            elif stat.S_ISREG(found.st_mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                yield from _one_file(os.open(raw, flags, dir_fd=folder), inside, left_out)
            else:
                left_out.leave_out(inside, "neither a file, a folder nor a link")
        except OSError as error:
            left_out.leave_out(inside, (error.strerror or "it cannot be read").lower())


def _one_file(fd: int, name: bytes, left_out: Written) -> Iterator[tuple[Member, int]]:
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            yield _member(name, archive.FILE, found), fd
        else:
            left_out.leave_out(name, "neither a file, a folder nor a link")
    finally:
        os.close(fd)


def _member(name: bytes, kind: bytes, found: os.stat_result, target: bytes = b"") -> Member:
    size = found.st_size if kind == archive.FILE else 0
    return Member(name, kind, found.st_mode & 0o777, size, max(int(found.st_mtime), 0), target)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
