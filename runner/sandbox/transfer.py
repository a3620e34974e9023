"""Copying files between the host and a sandbox, where nothing that the sandbox says is trusted.

Out: an archive from a sandbox is hostile until shown otherwise. The rules, each with the attack that it answers:

    names      relative, without `..`, no NUL: `../x` and `/etc/x` would be written elsewhere
    folders    every component is opened with O_NOFOLLOW from the destination down, so that neither a link in the
               archive nor one that a racing process puts there is ever walked through
    links      kept only when the target climbs first and then descends (`../a/b`, never `a/../b`) and climbs no further
               than the destination. Every folder that the rule counts is a real one, so a chain of links cannot get
               out either, whatever the order; a rule that looked at each path's text alone would let `x/d -> ..` and
               `x/e -> d/..` through
    hard links become copies of what this archive has written already, and nothing else
    the rest   devices, pipes, sockets, sparse files: refused
    modes      no setuid, setgid, sticky, nothing writable for others; the owner can always read and write
    sizes      names, headers, files and their number are bounded before memory is taken

A file is written under another name and renamed, so that one that exists is replaced and never written through (it may
be a hard link to something else). What is refused is left out and told; the rest is copied.

In: links are packed as links and never followed; what is neither file, folder nor link is left out and told.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from runner.errors import EngineError, UsageError

PIECE = 64 * 1024
MAX_HEADER = 1024 * 1024
"""Most bytes of one header record (a long name, extended attributes); a hostile one could ask for gigabytes."""
MAX_DEPTH = 200
"""Most components of a name."""
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
"""What O_DIRECTORY and O_NOFOLLOW say of a link or a file."""
_LATEST = 2**33
"""Seconds: later times are not kept."""
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Source(Protocol):
    """Where an archive is read from: a file, a pipe, or `Pieces`."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """Where an archive is written to."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True)
class Limits:
    """Bounds of one copy."""

    files: int = 1_000_000
    """Most members."""
    size: int = 64 * 1024**3
    """Most bytes of all files together, and of the archive."""


@dataclass(frozen=True)
class Refused:
    """A member that was left out."""

    name: str
    reason: str


@dataclass
class Report:
    """What came of a copy. Names are as they are: a front end must make them safe before it shows them."""

    written: list[str] = field(default_factory=list)
    """Files and links, relative to the destination."""
    folders: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    size: int = 0
    """Bytes of the files."""


class Pieces:
    """An archive that comes in pieces, as something to read from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty at the end."""
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return b""
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


# ---- out of the sandbox


def unpack(
    source: Source,
    destination: Path,
    *,
    limits: Limits | None = None,
    name: Callable[[str], str | None] | None = None,
    owner: tuple[int, int] | None = None,
) -> Report:
    """Unpacks a hostile tar under `destination`, which must exist.

    Args:
        source: the archive.
        destination: a folder of the user's; its own path may hold links, nothing below it is walked through one.
        limits: bounds.
        name: the name to take for a member's, or None to leave it out without a word; checked after that.
        owner: uid and gid that the files get; only root may give them away, others leave it out.

    Raises:
        EngineError: the archive is cut, is no archive, or is over the limits; what was written so far stays.
        UsageError: the destination cannot be written.
    """
    limits = limits or Limits()
    reader = _Forward(source, limits.size + limits.files * 2048)
    report = Report()
    try:
        root = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{destination} cannot be written to: {error.strerror}", place=str(destination)) from None
    with _Tree(root, owner if owner and os.geteuid() == 0 else None) as tree, _proper():
        archive: Any = tarfile.TarFile(fileobj=reader, mode="r", errors="surrogateescape")  # type: ignore[arg-type]
        count = 0
        while (member := archive.next()) is not None:
            archive.members.clear()  # it would keep every member that it has seen
            count += 1
            if member.size < 0:
                raise EngineError("the sandbox sent no proper archive: a size below 0")
            if count > limits.files:
                raise EngineError(f"the copy holds more than {limits.files} files", place=str(destination))
            wanted = name(member.name) if name else member.name
            if wanted is None:
                continue
            if member.isreg() and report.size + member.size > limits.size:
                raise EngineError(f"the copy is over {limits.size} bytes", place=str(destination))
            try:
                _write(tree, archive, member, _parts(wanted), name, report)
            except _Refuse as refuse:
                report.refused.append(Refused(wanted, str(refuse)))
            except OSError as error:
                if error.errno in _FATAL:
                    raise UsageError(
                        f"{destination} cannot be written to: {error.strerror}", place=str(destination)
                    ) from None
                report.refused.append(Refused(wanted, (error.strerror or str(error)).lower()))
        # `tarfile` takes a cut or garbled header that is not the first for the end.
        if not reader.at_end_mark:
            raise EngineError("the archive from the sandbox is cut")
    return report


class _Refuse(Exception):
    """A member is left out; the text says why."""


_FATAL = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO}
"""Going on makes no sense."""


@contextlib.contextmanager
def _proper() -> Iterator[None]:
    """Every way in which an archive can be broken, as one error."""
    try:
        yield
    except (tarfile.TarError, ValueError, OverflowError, EOFError, ArithmeticError, LookupError) as error:
        raise EngineError(f"the sandbox sent no proper archive: {error}") from None


class _Forward:
    """A file that is read once from its beginning, as `tarfile` reads it, with a bound on each read and on all."""

    def __init__(self, source: Source, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._at = 0
        self._last = b""
        self._back = 0
        self._dry = False

    @property
    def at_end_mark(self) -> bool:
        """The last record read was the one of zeros that ends an archive."""
        return not self._dry and self._last == bytes(tarfile.BLOCKSIZE)

    def tell(self) -> int:
        return self._at - self._back

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0:
            raise ValueError("an archive is read forward only")
        distance = offset - self.tell()
        if distance < 0:
            if self._back - distance > len(self._last):
                raise ValueError("an archive is read forward only")
            self._back -= distance
        while distance > 0:
            data = self.read(min(distance, PIECE))
            if not data:
                break
            distance -= len(data)
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_HEADER:
            raise ValueError(f"a header of {size} bytes")
        again = self._last[len(self._last) - self._back :][:size] if self._back else b""
        self._back -= len(again)
        pieces, missing = [again], size - len(again)
        while missing:
            data = self._source.read(missing)
            if not data:
                self._dry = True
                break
            self._at += len(data)
            if self._at > self._limit:
                raise EngineError(f"the archive is over {self._limit} bytes")
            pieces.append(data)
            missing -= len(data)
        data = b"".join(pieces)
        if data:
            self._last = data[-tarfile.BLOCKSIZE :]
        return data


def _parts(name: str) -> list[str]:
    """The components of a name that stays inside."""
    if name.startswith("/"):
        raise _Refuse("an absolute name")
    if "\0" in name:
        raise _Refuse("a name with a NUL character")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _Refuse("a name that climbs with ..")
    if len(parts) > MAX_DEPTH:
        raise _Refuse(f"a name of more than {MAX_DEPTH} folders")
    return parts


def _write(
    tree: _Tree,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    parts: list[str],
    name: Callable[[str], str | None] | None,
    report: Report,
) -> None:
    shown = "/".join(parts)
    if member.isdir():
        if parts:
            tree.folder(parts, member.mode & 0o755 | 0o700)
            report.folders.append(shown)
        return
    if not parts:
        raise _Refuse("a file without a name")
    if member.issym():
        check_link(parts, member.linkname)
        tree.link(parts, member.linkname)
    elif member.islnk():
        target = name(member.linkname) if name else member.linkname
        known = _parts(target) if target is not None else []
        if "/".join(known) not in tree.files:
            raise _Refuse("a hard link to what this copy does not hold")
        report.size += tree.copy(known, parts)
    elif member.isreg() and not member.issparse():
        content = archive.extractfile(member)
        if content is None:
            raise _Refuse("a file without content")
        tree.file(parts, content, member.size, member.mode & 0o755 | 0o600, member.mtime)
        report.size += member.size
    else:
        raise _Refuse(_KINDS.get(member.type, "neither a file, a folder nor a link"))
    report.written.append(shown)


_KINDS = {
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


def check_link(parts: list[str], target: str) -> None:
    """Raises unless a link at `parts` with this target stays inside; see the top of this module for why so strict."""
    if not target or "\0" in target or len(target) > 4096:
        raise _Refuse("a link without a proper target")
    if target.startswith("/"):
        raise _Refuse("a link to an absolute path")
    climbs, descends = 0, False
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            descends = True
        elif descends:
            raise _Refuse("a link that climbs after it descends")
        else:
            climbs += 1
    if climbs > len(parts) - 1:
        raise _Refuse("a link that leads out")


class _Tree:
    """The destination, written by descriptors only."""

    def __init__(self, root: int, owner: tuple[int, int] | None) -> None:
        self._root = root
        self._owner = owner
        self.files: set[str] = set()
        """Files written by this copy."""
        self._last: tuple[list[str], int] | None = None

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, *exc: object) -> None:
        self._forget()
        os.close(self._root)

    def _forget(self) -> None:
        if self._last:
            os.close(self._last[1])
            self._last = None

    def folder(self, parts: list[str], mode: int = 0o755) -> int:
        """The folder's descriptor, made with those above it where they are missing. It stays ours to close."""
        if self._last and self._last[0] == parts:
            return self._last[1]
        at = os.dup(self._root)
        try:
            for number, part in enumerate(parts):
                try:
                    below = os.open(part, _OPEN_FOLDER, dir_fd=at)
                except FileNotFoundError:
                    os.mkdir(part, mode if number == len(parts) - 1 else 0o755, dir_fd=at)
                    below = os.open(part, _OPEN_FOLDER, dir_fd=at)
                    self._give(below)
                except OSError as error:
                    if error.errno in _NO_FOLDER:
                        raise _Refuse(f"{'/'.join(parts[: number + 1])} is there and is no folder") from None
                    raise
                os.close(at)
                at = below
        except BaseException:
            os.close(at)
            raise
        self._forget()
        self._last = (parts, at)
        return at

    def _give(self, descriptor: int) -> None:
        if self._owner:
            os.fchown(descriptor, *self._owner)

    def file(self, parts: list[str], content: Source, size: int, mode: int, mtime: float | None) -> None:
        folder = self.folder(parts[:-1])
        self._no_folder(folder, parts[-1])
        hidden = f".sbx-copy-{secrets.token_hex(8)}"
        descriptor = os.open(
            hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        try:
            try:
                left = size
                while left:
                    data = content.read(min(left, PIECE))
                    if not data:
                        raise EngineError("the archive from the sandbox is cut")
                    left -= len(data)
                    while data:
                        data = data[os.write(descriptor, data) :]
                self._give(descriptor)
                os.fchmod(descriptor, mode)
                if mtime is not None and 0 <= mtime < _LATEST:
                    os.utime(descriptor, (mtime, mtime))
            finally:
                os.close(descriptor)
            os.rename(hidden, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(hidden, dir_fd=folder)
            raise
        self.files.add("/".join(parts))

    def copy(self, known: list[str], parts: list[str]) -> int:
        """A second name for a file of this copy, as a file of its own. Returns its size."""
        folder = self.folder(known[:-1])
        descriptor = os.open(known[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as content:
            found = os.fstat(content.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise _Refuse("a hard link to what this copy does not hold")
            self.file(parts, content, found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime)
        return found.st_size

    def link(self, parts: list[str], target: str) -> None:
        folder = self.folder(parts[:-1])
        self._no_folder(folder, parts[-1])
        hidden = f".sbx-copy-{secrets.token_hex(8)}"
        os.symlink(target, hidden, dir_fd=folder)
        try:
            if self._owner:
                os.chown(hidden, *self._owner, dir_fd=folder, follow_symlinks=False)
            os.rename(hidden, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(hidden, dir_fd=folder)
            raise
        self.files.discard("/".join(parts))

    def _no_folder(self, folder: int, name: str) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            raise _Refuse("a folder is in its place")

    def remove(self, parts: list[str]) -> bool:
        """Removes a file or link; a folder only when it is empty. False when there was nothing to remove."""
        at = os.dup(self._root)
        try:
            for part in parts[:-1]:
                try:
                    below = os.open(part, _OPEN_FOLDER, dir_fd=at)
                except FileNotFoundError:
                    return False
                os.close(at)
                at = below
            try:
                if stat.S_ISDIR(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode):
                    os.rmdir(parts[-1], dir_fd=at)
                else:
                    os.unlink(parts[-1], dir_fd=at)
            except FileNotFoundError:
                return False
            return True
        finally:
            os.close(at)


def remove(destination: Path, names: Iterable[str]) -> Report:
    """Removes files under `destination` by names that a sandbox said. `written` of the report are those removed.

    Folders that this leaves empty stay. No link is walked through.
    """
    report = Report()
    root = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _Tree(root, None) as tree:
        for name in names:
            try:
                parts = _parts(name)
                if parts and tree.remove(parts):
                    report.written.append("/".join(parts))
            except _Refuse as refuse:
                report.refused.append(Refused(name, str(refuse)))
            except OSError as error:
                reason = "a link or a file is in the way" if error.errno in _NO_FOLDER else error.strerror or str(error)
                report.refused.append(Refused(name, reason.lower()))
    return report


# ---- into the sandbox


@dataclass(frozen=True)
class Tree:
    """A file, or what is in a folder, to be packed."""

    path: Path
    """A link here is followed, none below it is."""
    root: str = ""
    """The name in the archive: of the file, or before each name of the folder's."""
    keep: Callable[[str], bool] | None = None
    """Whether a relative name is taken along; a folder that is not leaves out all below it."""
    prints: dict[str, str] | None = None
    """Takes a fingerprint (`fingerprint_of`) for each relative name of a file or link."""


def pack(
    path: Path,
    sink: Sink,
    *,
    root: str = "",
    limits: Limits | None = None,
    keep: Callable[[str], bool] | None = None,
    owner: tuple[int, int] | None = None,
) -> Report:
    """Writes a tar of a file, or of what is in a folder; `pack_trees` with one tree."""
    return pack_trees([Tree(path, root, keep)], sink, limits=limits, owner=owner)


def pack_trees(
    trees: Iterable[Tree], sink: Sink, *, limits: Limits | None = None, owner: tuple[int, int] | None = None
) -> Report:
    """Writes one tar of several files and folders.

    Args:
        sink: takes the archive.
        limits: bounds.
        owner: uid and gid in the archive; without it, the files' own.

    Raises:
        UsageError: one cannot be read, or all are over the limits.
    """
    limits, report = limits or Limits(), Report()
    # Mode "w|" writes forward only, so that a pipe will do.
    out: Any = sink
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for tree in trees:
            try:
                top = os.open(tree.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise UsageError(f"{tree.path} cannot be read: {error.strerror}", place=str(tree.path)) from None
            try:
                _Packing(archive, limits, owner, report, tree).all(top)
            finally:
                os.close(top)
    return report


def fingerprint_of(mode: int, digest: str) -> str:
    """What tells a file from its changed self: whether it is executable, and its SHA-256."""
    return f"{'x' if mode & 0o100 else '-'}:{digest}"


def fingerprints(folder: Path, keep: Callable[[str], bool] | None = None) -> dict[str, str]:
    """The fingerprint of every file and link below a folder: `l:TARGET`, or `fingerprint_of`."""
    found: dict[str, str] = {}
    pack_trees([Tree(folder, "", keep, found)], _Nowhere())
    return found


def fingerprint(folder: Path, name: str) -> str:
    """That of one relative name; empty when it is not there, `?` for what is neither file nor link."""
    parts = _parts(name)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, _OPEN_FOLDER, dir_fd=at)
            os.close(at)
            at = below
        found = os.stat(parts[-1], dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return f"l:{os.readlink(parts[-1], dir_fd=at)}"
        if not stat.S_ISREG(found.st_mode):
            return "?"
        descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        with os.fdopen(descriptor, "rb") as content:
            return fingerprint_of(found.st_mode, hashlib.file_digest(content, "sha256").hexdigest())
    except FileNotFoundError:
        return ""
    except OSError:
        return "?"
    finally:
        os.close(at)


class _Nowhere:
    def write(self, data: bytes, /) -> None:
        return


class _Hashing:
    """A file that is hashed while it is read."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._content.read(size)
        self._sum.update(data)
        return data

    def hexdigest(self) -> str:
        return self._sum.hexdigest()


class _Packing:
    def __init__(
        self,
        archive: tarfile.TarFile,
        limits: Limits,
        owner: tuple[int, int] | None,
        report: Report,
        tree: Tree,
    ) -> None:
        self._archive = archive
        self._limits = limits
        self._keep = tree.keep
        self._owner = owner
        self._report = report
        self._path = tree.path
        self._root = tree.root
        self._prints = tree.prints

    def all(self, top: int) -> None:
        """Everything of the tree; `top` is its descriptor."""
        found = os.fstat(top)
        if not stat.S_ISDIR(found.st_mode):
            name = self._root or self._path.name
            self.add(top, found, name, name)
            return
        if self._root:
            self.add(top, found, self._root, "")
        self.folder(top, "")

    def folder(self, descriptor: int, below: str, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise UsageError(f"folders lie more than {MAX_DEPTH} deep", place=str(self._path))
        for entry in sorted(os.listdir(descriptor)):
            relative = f"{below}/{entry}" if below else entry
            if self._keep and not self._keep(relative):
                continue
            name = f"{self._root}/{relative}" if self._root else relative
            try:
                found = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    self.add(-1, found, name, relative, os.readlink(entry, dir_fd=descriptor))
                    continue
                if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                    self._report.refused.append(Refused(relative, "neither a file, a folder nor a link"))
                    continue
                opened = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
            except OSError as error:
                self._report.refused.append(Refused(relative, (error.strerror or str(error)).lower()))
                continue
            try:
                found = os.fstat(opened)
                self.add(opened, found, name, relative)
                if stat.S_ISDIR(found.st_mode):
                    self.folder(opened, relative, depth + 1)
            finally:
                os.close(opened)

    def add(self, descriptor: int, found: os.stat_result, name: str, relative: str, link: str = "") -> None:
        if len(self._report.written) + len(self._report.folders) >= self._limits.files:
            raise UsageError(f"more than {self._limits.files} files", place=str(self._path))
        member = tarfile.TarInfo(name)
        member.mode = stat.S_IMODE(found.st_mode) & 0o777
        member.uid, member.gid = self._owner or (found.st_uid, found.st_gid)
        member.mtime = int(found.st_mtime)
        if link:
            member.type, member.linkname = tarfile.SYMTYPE, link
            self._archive.addfile(member)
            if self._prints is not None:
                self._prints[relative] = f"l:{link}"
        elif stat.S_ISDIR(found.st_mode):
            member.type = tarfile.DIRTYPE
            self._archive.addfile(member)
            self._report.folders.append(name)
            return
        elif stat.S_ISREG(found.st_mode):
            member.size = found.st_size
            self._report.size += found.st_size
            if self._report.size > self._limits.size:
                raise UsageError(f"it is over {self._limits.size} bytes", place=str(self._path))
            with os.fdopen(os.dup(descriptor), "rb") as content:
                hashed: Any = _Hashing(content)
                try:
                    self._archive.addfile(member, hashed)
                except OSError as error:
                    if error.errno is not None:
                        raise
                    raise UsageError("a file became shorter while it was read", place=name) from None
            if self._prints is not None:
                self._prints[relative] = fingerprint_of(found.st_mode, hashed.hexdigest())
        else:
            raise UsageError("it is neither a file, a folder nor a link", place=str(self._path))
        self._report.written.append(name)
