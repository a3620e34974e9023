"""A private copy of a workspace: what goes into it, and what it was like, so that changes can be told later.

A git workspace is copied as git: its history by a clone, which leaves hooks, configuration and the credentials that
people keep in it behind, and the files of the working tree as they are now, staged or not. Anything else is copied
file by file.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.sandbox.host_git import HostGit
from runner.sandbox.transfer import Sink, Tree, pack_trees

UNTRACKED = ("none", "normal", "all")
"""Which untracked files of a git workspace come along: none, those that are not ignored, all."""
MAX_BASELINE = 512 * 1024 * 1024
_CONFIG = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
"""


@dataclass(frozen=True)
class Baseline:
    """What a private copy was made of."""

    source: str
    """The workspace on the host."""
    target: str
    """The copy in the sandbox."""
    prints: Mapping[str, str] = field(default_factory=dict)
    """Relative name → fingerprint, of each file and link."""
    git: bool = False
    said: tuple[str, ...] = ()


def is_git(source: Path) -> bool:
    """Whether the workspace is copied as git: it is one, and git is there."""
    return os.path.lexists(source / ".git") and shutil.which("git") is not None


def clone(source: Path, target: str, sink: Sink, *, untracked: str = "normal") -> Baseline:
    """Writes the tar of a private copy.

    Args:
        source: the workspace on the host.
        target: the copy in the sandbox.
        sink: takes the tar.
        untracked: one of `UNTRACKED`; for a git workspace only.

    Raises:
        UsageError: it cannot be read, or git fails.
    """
    prints: dict[str, str] = {}
    if not is_git(source):
        said = (".git was left out: git is not installed here",) if os.path.lexists(source / ".git") else ()
        report = pack_trees([Tree(source, "", _without_git, prints)], sink)
        return Baseline(str(source), target, prints, False, (*said, *_left_out(report.refused)))
    git = HostGit(source)
    with tempfile.TemporaryDirectory(prefix="sbx-clone-") as scratch:
        repository = _history(git, source, Path(scratch))
        trees = [Tree(repository, ".git"), Tree(source, "", _chosen(git, untracked), prints)]
        report = pack_trees(trees, sink)
    return Baseline(str(source), target, prints, True, _left_out(report.refused))


def _left_out(refused: Sequence[Any]) -> tuple[str, ...]:
    return tuple(f"left out of the copy: {each.name}: {each.reason}" for each in refused[:20])


def _without_git(name: str) -> bool:
    return name.rpartition("/")[2] != ".git"


def _history(git: HostGit, source: Path, scratch: Path) -> Path:
    """The history alone: no hooks, no configuration, no remote."""
    if git.owner:
        os.chown(scratch, *git.owner)
    place = scratch / "repository"
    upload = shlex.join(git.command("upload-pack"))
    options = ("--quiet", "--bare", "--no-hardlinks", "--template=", f"--upload-pack={upload}")
    git.run("clone", *options, f"file://{source}", str(place))
    extension = git.run("rev-parse", "--show-object-format").decode().strip()
    config = _CONFIG.format(version=0 if extension in ("", "sha1") else 1)
    if extension not in ("", "sha1"):
        config += f"[extensions]\n\tobjectformat = {extension}\n"
    (place / "config").write_text(config)
    for name in ("hooks", "branches", "FETCH_HEAD", "description"):
        path = place / name
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return place


def _chosen(git: HostGit, untracked: str) -> Callable[[str], bool]:
    """Which names of the working tree come along."""
    names = _list(git, "--cached")
    if untracked == "normal":
        names |= _list(git, "--others", "--exclude-standard")
    elif untracked == "all":
        names |= _list(git, "--others")
    folders = {above for name in names for above in _above(name)}

    def keep(name: str) -> bool:
        if name in names or name in folders:
            return _without_git(name)
        # A submodule is listed by its folder alone.
        return _without_git(name) and any(above in names for above in _above(name))

    return keep


def _list(git: HostGit, *options: str) -> set[str]:
    raw = git.run("ls-files", "-z", *options)
    return {os.fsdecode(name).rstrip("/") for name in raw.split(b"\0") if name}


def _above(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def save(folder: Path, sandbox: str, baseline: Baseline) -> None:
    """Keeps what a sandbox's copy was made of."""
    path = folder / f"{sandbox}.json"
    hidden = folder / f".{sandbox}.{os.getpid()}.tmp"
    hidden.write_text(json.dumps({"version": 1, **asdict(baseline)}))
    hidden.chmod(0o600)
    hidden.replace(path)


def load(folder: Path, sandbox: str) -> Baseline | None:
    """What a sandbox's copy was made of; None when that is not known."""
    if "/" in sandbox or sandbox in ("", ".", ".."):
        return None
    path = folder / f"{sandbox}.json"
    try:
        if path.stat().st_size > MAX_BASELINE:
            return None
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.pop("version", None) != 1:
        return None
    return Baseline(**{**document, "said": tuple(document["said"])})
