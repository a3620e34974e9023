"""What an agent changed in its private copy of a workspace, and how that gets to the host.

The engine hands the copy out as an archive, with the sandbox running or stopped; nothing in the sandbox is asked. It is
unpacked as anything else that comes out, into a folder of ours, and compared with the fingerprints that were taken
when the copy was made. So a sandbox can lie about nothing, and what a user reads in a diff is what `apply` writes.

A file that the user has changed meanwhile too is a conflict; it is told, and left alone unless the user insists.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.engine import Engine
from runner.errors import UsageError
from runner.sandbox import transfer
from runner.sandbox.acting import Acting, kind_of, why
from runner.sandbox.cloning import Baseline
from runner.sandbox.host_git import HostGit, environment
from runner.sandbox.transfer import Refused, Report

READ_WITHIN = 3600.0
"""Seconds for reading a whole copy."""
GIT_WITHIN = 300.0
MAX_TEXT = 1024 * 1024
"""Bytes of a file that is compared line by line where git is not there to do it."""


@dataclass(frozen=True)
class Change:
    """One file."""

    path: str
    """As it is: a front end must make it safe."""
    kind: str
    """`added`, `modified`, `deleted`."""
    conflict: bool = False
    """The user's own file is not what the copy was made of."""
    acts: str = ""
    """Why it acts on the host; empty when it does not."""

    def to_json(self) -> dict[str, object]:
        return {"path": self.path, "kind": self.kind, "conflict": self.conflict, "acts": self.acts}


@dataclass(frozen=True)
class Changes:
    """All of it, and the new files themselves."""

    changes: tuple[Change, ...]
    folder: Path
    """Holds each added and modified file under its own name; gone when the `collected` block ends."""
    baseline: Baseline
    refused: tuple[Refused, ...] = ()
    """What came out of the sandbox and was left out: links that lead out, devices, …"""
    acting: tuple[Acting, ...] = field(default=())


@contextmanager
def collected(engine: Engine, container: str, baseline: Baseline) -> Iterator[Changes]:
    """Takes the copy out of the sandbox and compares it.

    Raises:
        EngineError: the engine fails, or sends no proper archive.
    """
    with tempfile.TemporaryDirectory(prefix="sbx-copy-") as scratch:
        folder = Path(scratch)
        report = take_out(engine, container, baseline.target, folder, git=False)
        yield _compare(folder, report, baseline)


def take_out(engine: Engine, container: str, target: str, folder: Path, *, git: bool) -> Report:
    """Unpacks a sandbox's private workspace into a folder.

    Args:
        git: the history comes along, without hooks and configuration.
    """

    def name(member: str) -> str | None:
        # The archive's names begin with the name of the folder itself.
        relative = member.removeprefix("./").partition("/")[2]
        if not relative:
            return None
        parts = relative.rstrip("/").split("/")
        if ".git" in parts:
            below = "/".join(parts[parts.index(".git") + 1 :])
            if not git or kind_of(relative.rstrip("/")) or below.startswith("modules"):
                return None
        return relative

    with engine.call("reading the sandbox's workspace", timeout=READ_WITHIN):
        stream, _ = engine.api.get_archive(container, target)
        return transfer.unpack(transfer.Pieces(stream), folder, name=name)


def _compare(folder: Path, report: Report, baseline: Baseline) -> Changes:
    now = transfer.fingerprints(folder)
    source = Path(baseline.source)
    unseen = _ignored(source, [name for name in now if name not in baseline.prints]) if baseline.git else set()
    found = []
    refused = {each.name for each in report.refused}
    for name in sorted({*now, *baseline.prints}):
        before, after = baseline.prints.get(name, ""), now.get(name, "")
        if before == after or name in unseen or (not after and name in refused):
            continue
        kind = "added" if not before else "deleted" if not after else "modified"
        here = transfer.fingerprint(source, name) if source.is_dir() else before
        # Git takes a folder with these in it for a repository when it is started there.
        bare = name.endswith("/config") and name.removesuffix("config") + "HEAD" in now
        acts = "git" if bare else kind_of(name)
        found.append(Change(name, kind, here not in (before, after), why(acts) if acts else ""))
    for name in now.keys() - {change.path for change in found}:
        (folder / name).unlink()
    listed = tuple(found)
    return Changes(
        listed,
        folder,
        baseline,
        tuple(report.refused),
        tuple(Acting(c.path, c.acts) for c in listed if c.acts and c.kind != "deleted"),
    )


def _ignored(source: Path, names: Sequence[str]) -> set[str]:
    """The names that the host's own repository ignores: what a build leaves is no change that anyone wants."""
    if not names or not (source / ".git").exists() or shutil.which("git") is None:
        return set()
    try:
        raw = HostGit(source).run(
            "check-ignore", "-z", "--stdin", "--no-index", input=b"\0".join(map(os.fsencode, names)), codes=(0, 1)
        )
    except UsageError:
        return set()
    return {os.fsdecode(name) for name in raw.split(b"\0") if name}


def patch(found: Changes, only: Collection[str] | None = None) -> bytes:
    """The changes as a patch that `git apply` takes; without git on the host, text files alone, as `patch` takes them.

    Args:
        only: names; None for all.
    """
    chosen = [change for change in found.changes if only is None or change.path in only]
    if not chosen:
        return b""
    source = Path(found.baseline.source)
    with tempfile.TemporaryDirectory(prefix="sbx-patch-") as scratch:
        before, after = Path(scratch, "a"), Path(scratch, "b")
        before.mkdir()
        after.mkdir()
        old = {change.path for change in chosen if change.kind != "added" or change.conflict}
        new = {change.path for change in chosen if change.kind != "deleted"}
        if source.is_dir():
            _copy(source, before, old)
        _copy(found.folder, after, new)
        if shutil.which("git"):
            return _git_patch(Path(scratch))
        return b"".join(_plain_patch(before, after, change.path) for change in chosen)


def _copy(source: Path, target: Path, names: Collection[str]) -> None:
    """Copies files by name, as `transfer` does: a link is a link, and none is walked through."""
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    with tempfile.TemporaryFile() as file:
        transfer.pack(source, file, keep=lambda name: name in names or name in folders)
        file.seek(0)
        transfer.unpack(file, target)


def _git_patch(scratch: Path) -> bytes:
    options = "diff --no-index --no-prefix --binary --no-color --no-ext-diff --no-textconv --no-renames".split()
    done = subprocess.run(
        ["git", *options, "--", "a", "b"],
        cwd=scratch,
        # No repository above the scratch folder is to have a say, nor are attributes of the changed files.
        env={**environment(), "GIT_CEILING_DIRECTORIES": str(scratch.parent), "GIT_ATTR_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_WITHIN,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise UsageError("git could not compare the files", log=done.stderr.decode("utf-8", "replace")[-2000:])
    return done.stdout


def _plain_patch(before: Path, after: Path, name: str) -> bytes:
    old, new = _text(before / name), _text(after / name)
    if old is None or new is None:
        return f"Binary files a/{name} and b/{name} differ\n".encode("utf-8", "surrogateescape")
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{name}" if os.path.lexists(before / name) else "/dev/null",
        f"b/{name}" if os.path.lexists(after / name) else "/dev/null",
    )
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(ended).encode("utf-8", "surrogateescape")


def _text(path: Path) -> str | None:
    if path.is_symlink() or not path.exists():
        return "" if not path.is_symlink() else None
    data = path.read_bytes() if path.stat().st_size <= MAX_TEXT else b"\0"
    return None if b"\0" in data else data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Applied:
    """What `apply` wrote into the user's folder."""

    written: tuple[str, ...]
    deleted: tuple[str, ...]
    conflicts: tuple[str, ...]
    refused: tuple[Refused, ...]
    baseline: Baseline
    """What the copy is to be compared with from now on."""


def apply(found: Changes, only: Collection[str] | None = None, *, force: bool = False) -> Applied:
    """Writes the changes into the user's workspace, by the rules of `transfer`.

    Args:
        only: names; None for all.
        force: conflicts too.

    Raises:
        UsageError: the workspace is gone, or cannot be written.
    """
    source = Path(found.baseline.source)
    if not source.is_dir():
        raise UsageError(f"the workspace {source} is gone", hint="`sbx export` takes the copy out elsewhere")
    chosen = [change for change in found.changes if only is None or change.path in only]
    conflicts = tuple(change.path for change in chosen if change.conflict and not force)
    taken = [change for change in chosen if change.path not in conflicts]
    names = {change.path for change in taken if change.kind != "deleted"}
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    status = source.stat()
    with tempfile.TemporaryFile() as file:
        transfer.pack(found.folder, file, keep=lambda name: name in names or name in folders)
        file.seek(0)
        report = transfer.unpack(file, source, owner=(status.st_uid, status.st_gid))
    removed = transfer.remove(source, [change.path for change in taken if change.kind == "deleted"])
    prints = dict(found.baseline.prints)
    for name in report.written:
        prints[name] = transfer.fingerprint(found.folder, name)
    for name in removed.written:
        prints.pop(name, None)
    return Applied(
        tuple(report.written),
        tuple(removed.written),
        conflicts,
        (*report.refused, *removed.refused),
        replace(found.baseline, prints=prints),
    )
