"""Parts of a mounted workspace that a tool may not change: mounted over themselves, to read only.

A read-only mount over `.git/config` alone protects nothing: a tool renames `.git`, and puts a changed copy in its
place. A mount point cannot be renamed, so every folder between the workspace and what is protected is mounted over
itself too, writable as it was.

What in a `.git` makes a program run on the host, and what is done about each:

    hooks/              read only; made when missing, since what is not there cannot be mounted over
    config              read only, unless `--git-config rw`; and `config.worktree`
    commondir           read only; a tool could otherwise make one that names a folder with a config of its own. Where
                        there is none, one is made that says `.`, which changes nothing
    worktrees/          read only: each holds a commondir of another folder of the user's
    modules/            the same four for the repository of each submodule
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.sandbox.profile import Bind

MAX_PROTECTED = 200
"""Most mounts: an engine takes long over more."""
MAX_POINTER = 4096
"""Bytes of a `.git` file that are read."""
_HOOKS_PATH = re.compile(r"^\s*hooksPath\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Protection:
    """Mounts, and what is to be said."""

    binds: tuple[Bind, ...] = ()
    said: tuple[str, ...] = ()


def protect(source: Path, target: str, globs: Sequence[str] = (), *, git_config: bool = True) -> Protection:
    """What is mounted over itself in a workspace.

    Args:
        source: the workspace on the host, links resolved.
        target: the same in the container.
        globs: the user's own, relative to the workspace.
        git_config: `.git/config` is protected.

    Raises:
        UsageError: a glob leads out, or there would be more than `MAX_PROTECTED` mounts.
    """
    said: list[str] = []
    closed: list[Path] = []
    for text in globs:
        closed += _matches(source, text, said)
    closed += _git(source, git_config, said)
    binds: dict[str, Bind] = {}
    for path in sorted(set(closed)):
        relative = path.relative_to(source)
        for depth in range(1, len(relative.parts)):
            above = Path(*relative.parts[:depth])
            binds.setdefault(str(above), Bind(str(source / above), f"{target.rstrip('/')}/{above}"))
        binds[str(relative)] = Bind(str(path), f"{target.rstrip('/')}/{relative}", read_only=True)
    if len(binds) > MAX_PROTECTED:
        raise UsageError(
            f"{len(binds)} paths would be protected, at most {MAX_PROTECTED} can be",
            hint="protect a folder instead of the files in it",
        )
    return Protection(tuple(binds[name] for name in sorted(binds)), tuple(said))


def _matches(source: Path, text: str, said: list[str]) -> list[Path]:
    pattern = text.rstrip("/")
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise UsageError(f"--protect {text}: a pattern below the workspace is wanted", hint="for example 'ci/**'")
    try:
        found = [path for path in source.glob(pattern) if path != source]
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"--protect {text}: {error}") from None
    kept = []
    for path in found:
        if path.is_symlink() or not path.resolve().is_relative_to(source):
            said.append(f"--protect {text}: {path.relative_to(source)} is a link, and is not protected")
        else:
            kept.append(path)
    if not found:
        said.append(f"--protect {text} matches nothing: what is not there yet is not protected")
    # A folder protects what is in it.
    return [path for path in kept if not any(other in path.parents for other in kept)]


def _git(source: Path, config: bool, said: list[str]) -> list[Path]:
    git = source / ".git"
    if git.is_symlink():
        said.append(f".git is a link to {git.readlink()}: it is not protected, and a tool may replace it")
        return []
    if git.is_file():
        said.append(
            f"the workspace is a git worktree or submodule: its repository is at {pointer(git) or 'another place'},"
            " which the sandbox does not see, so git does not work there; --mode clone has a copy"
        )
        return [git]
    if not git.is_dir():
        return []
    closed = _repository(git, config, said)
    for path in _modules(git / "modules"):
        closed += _repository(path, config, said)
    if (git / "worktrees").is_dir():
        closed.append(git / "worktrees")
    if config:
        closed += _named_in_config(source, git / "config", said)
    return [path for path in closed if not path.is_symlink()]


def _repository(git: Path, config: bool, said: list[str]) -> list[Path]:
    closed = []
    try:
        (git / "hooks").mkdir(exist_ok=True)
        _give(git / "hooks", git)
        if not os.path.lexists(git / "commondir"):
            (git / "commondir").write_text(".\n")
            _give(git / "commondir", git)
        (git / "config").touch(exist_ok=True)
        closed = [git / "hooks", git / "commondir"]
    except OSError as error:
        said.append(f"{git} is not protected: {(error.strerror or str(error)).lower()}")
        return []
    if config:
        closed += [path for path in (git / "config", git / "config.worktree") if path.exists()]
    return closed


def _give(path: Path, like: Path) -> None:
    if os.geteuid() == 0:
        found = like.stat()
        os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)


def _modules(folder: Path) -> Iterable[Path]:
    """The repositories of submodules; their names may hold slashes."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if (path / "HEAD").is_file():
                yield path
                yield from _modules(path / "modules")
            else:
                yield from _modules(path)


def _named_in_config(source: Path, config: Path, said: list[str]) -> list[Path]:
    """What the config itself names in the workspace: another folder of hooks, further config files."""
    try:
        text = config.read_text(errors="replace")[: 1024 * 1024]
    except OSError:
        return []
    named = [(value, source) for value in _HOOKS_PATH.findall(text)]
    named += [(value, config.parent) for value in _INCLUDED.findall(text)]
    closed = []
    for value, start in named:
        path = Path(os.path.normpath(start / Path(value.strip('"')).expanduser()))
        if not path.is_relative_to(source) or path == source or path.is_relative_to(config.parent):
            continue
        if path.exists() and path.resolve() == path:
            closed.append(path)
        else:
            said.append(f".git/config names {path.relative_to(source)}, which is not there and so not protected")
    return closed


def pointer(git: Path) -> str:
    """Where a `.git` file leads."""
    try:
        with git.open("rb") as file:
            text = file.read(MAX_POINTER).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
