"""Files in a workspace that act on the host: something there runs them, or what they say, without being asked again.

A tool may change them in a mounted workspace, and nothing of the sandbox holds when the user, an editor or CI runs
them. So they are looked at before and after a run, and those that changed are listed. The list cannot be complete
(any script is run by somebody); it holds what runs by merely opening, building, testing or committing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_ENTRIES = 300_000
MAX_SECONDS = 5.0
"""Bounds of one look at a workspace; beyond, the list says that it is not whole."""
MAX_PACKAGE = 4 * 1024 * 1024
"""Bytes of a `package.json` that is read for its scripts."""

_UNSEEN = frozenset(("node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache"))
"""Folders that are not entered: they are made by package managers, and too large."""

_WHY = {
    "git": "git runs it",
    "editor": "an editor runs it",
    "ci": "CI runs it",
    "build": "a build runs it",
    "shell": "a shell or tool runs it on entering the folder",
    "test": "a test run loads it",
    "agent": "an agent on the host obeys it",
    "python": "Python loads it at start",
}

_NAMES: dict[str, str] = {
    **dict.fromkeys((".gitmodules", ".gitattributes", ".lfsconfig", ".pre-commit-config.yaml"), "git"),
    **dict.fromkeys(("lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".huskyrc", ".overcommit.yml"), "git"),
    **dict.fromkeys((".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".dir-locals.el", "*.code-workspace"), "editor"),
    **dict.fromkeys((".gitlab-ci.yml", ".travis.yml", "Jenkinsfile", ".drone.yml", "appveyor.yml"), "ci"),
    **dict.fromkeys(("azure-pipelines.yml", "bitbucket-pipelines.yml", ".woodpecker.yml", "cloudbuild.yaml"), "ci"),
    **dict.fromkeys(("Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", ".justfile"), "build"),
    **dict.fromkeys(
        ("Taskfile.yml", "Taskfile.yaml", "Rakefile", "CMakeLists.txt", "meson.build", "build.rs"), "build"
    ),
    **dict.fromkeys(("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"), "build"),
    **dict.fromkeys(("gradlew", "mvnw", "pom.xml", "setup.py", "setup.cfg", "pyproject.toml", "binding.gyp"), "build"),
    **dict.fromkeys((".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "Gruntfile.js", "gulpfile.js"), "build"),
    **dict.fromkeys(
        ("Dockerfile", "docker-compose.yml", "docker-compose.yaml", "compose.yaml", "compose.yml"), "build"
    ),
    **dict.fromkeys(("Vagrantfile", ".bazelrc", "flake.nix", "shell.nix", "default.nix"), "build"),
    **dict.fromkeys((".envrc", ".env", ".tool-versions", ".mise.toml", "mise.toml", ".autoenv", ".bashrc"), "shell"),
    **dict.fromkeys((".profile", ".zshrc", ".bash_profile", "*.desktop"), "shell"),
    **dict.fromkeys(("conftest.py", "noxfile.py", "tox.ini", "pytest.ini", "jest.config.*", "vitest.config.*"), "test"),
    **dict.fromkeys((".mcp.json", "AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".windsurfrules"), "agent"),
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py", "*.pth"), "python"),
}
_FOLDERS: dict[str, str] = {
    ".husky": "git",
    ".githooks": "git",
    ".vscode": "editor",
    ".idea": "editor",
    ".zed": "editor",
    ".fleet": "editor",
    ".devcontainer": "editor",
    ".github": "ci",
    ".gitlab": "ci",
    ".circleci": "ci",
    ".buildkite": "ci",
    ".woodpecker": "ci",
    ".ci": "ci",
    ".cargo": "build",
    ".mvn": "build",
    ".direnv": "shell",
    ".claude": "agent",
    ".cursor": "agent",
    ".codex": "agent",
    ".gemini": "agent",
}
_EXACT = {name: kind for name, kind in _NAMES.items() if "*" not in name}
_PATTERNS = {name: kind for name, kind in _NAMES.items() if "*" in name}
_GIT = ("hooks", "config", "config.worktree", "commondir", "gitdir", "rebase-merge", "rebase-apply", "info/attributes")
"""Of a `.git`: what makes git run a program."""


@dataclass(frozen=True)
class Acting:
    """A file that acts on the host, and was changed."""

    path: str
    """Relative; as it is, so a front end must make it safe."""
    why: str


@dataclass
class Look:
    """What one look found: the state of every file that acts."""

    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Path → (kind, state)."""
    whole: bool = True
    """Everything was looked at."""


def kind_of(path: str) -> str:
    """Why a file acts, as a word of `_WHY`; empty when it does not."""
    parts = path.split("/")
    for number, part in enumerate(parts[:-1]):
        if part == ".git":
            below = "/".join(parts[number + 1 :])
            return "git" if any(below == name or below.startswith(f"{name}/") for name in _GIT) else ""
        if part in _FOLDERS:
            return _FOLDERS[part]
    name = parts[-1]
    if name in ("package.json", ".git"):
        return "build" if name == "package.json" else "git"
    if kind := _EXACT.get(name):
        return kind
    return next((kind for pattern, kind in _PATTERNS.items() if fnmatch.fnmatchcase(name, pattern)), "")


def why(kind: str) -> str:
    """A kind in words."""
    return _WHY[kind]


def look(workspace: Path) -> Look:
    """Looks at a workspace. Never raises: what cannot be read is not seen, and the look is not whole."""
    seen = Look()
    end = time.monotonic() + MAX_SECONDS
    for number, (relative, path, found) in enumerate(_walk(workspace, "", seen)):
        if number >= MAX_ENTRIES or (number % 512 == 0 and time.monotonic() > end):
            seen.whole = False
            break
        if stat.S_ISDIR(found.st_mode):
            if _is_bare_repository(path):
                seen.found[f"{relative}/config"] = ("git", _state(path / "config"))
        elif kind := kind_of(relative):
            seen.found[relative] = (kind, _scripts(path) if path.name == "package.json" else _state(path))
    return seen


def changed(before: Look, after: Look) -> tuple[Acting, ...]:
    """What is new or otherwise than before, by path; what was removed acts no more."""
    return tuple(
        Acting(path, _WHY[kind])
        for path, (kind, state) in sorted(after.found.items())
        if state and before.found.get(path) != (kind, state)
    )


def _walk(folder: Path, below: str, seen: Look) -> Iterator[tuple[str, Path, os.stat_result]]:
    inside_git = "/.git/" in f"/{below}/"
    try:
        entries = list(os.scandir(folder))
    except OSError:
        seen.whole = False
        return
    for entry in entries:
        relative = f"{below}/{entry.name}" if below else entry.name
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            yield relative, folder / entry.name, found
        elif entry.name not in _UNSEEN and not (inside_git and entry.name in ("objects", "refs", "logs", "lfs")):
            if not inside_git and entry.name != ".git":
                yield relative, folder / entry.name, found
            yield from _walk(folder / entry.name, relative, seen)


def _state(path: Path) -> str:
    """What differs when the file was changed in whatever way; a change time cannot be set."""
    try:
        found = path.lstat()
    except OSError:
        return ""
    if stat.S_ISLNK(found.st_mode):
        return f"link {path.readlink()}"
    return f"{found.st_mode:o} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _scripts(path: Path) -> str:
    """Of a `package.json`, what npm runs: its other keys change all the time. One that is no JSON counts as a whole."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_PACKAGE:
            return _state(path)
        document = json.loads(path.read_bytes())
        scripts = document.get("scripts") if isinstance(document, dict) else None
    except (OSError, ValueError, RecursionError):
        return _state(path)
    return hashlib.sha256(json.dumps(scripts, sort_keys=True).encode()).hexdigest() if scripts else ""


def _is_bare_repository(path: Path) -> bool:
    """Git takes such a folder for a repository when it is started in it."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
