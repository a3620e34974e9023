"""Kits by pinned reference: `git+URL#ref=COMMIT&dir=FOLDER`, fetched once into the cache folder by the `git` program.

A commit's hash names its content, so what was fetched once is never fetched again, and nobody can move it. A tag or a
branch could be moved, and is refused. `git` never asks for anything here: a reference that needs a password fails.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits import rules

SCHEMES = ("https", "http", "ssh", "git", "file")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
FETCH_SECONDS = 120.0
"""Bound of all git commands of one fetch together."""
LOCAL_SECONDS = 20.0
"""Bound of a git command that asks nobody."""
SHOWN_LINES = 5
PIN_HINT = "say git+https://HOST/REPOSITORY.git#ref=COMMIT, with the commit's 40 digits"

OPTIONS = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "advice.detachedHead=false",
    "-c",
    "gc.auto=0",
    "-c",
    "init.defaultBranch=main",
)


@dataclass(frozen=True)
class Reference:
    """A parsed pinned reference."""

    url: str
    commit: str
    folder: str
    """Inside the repository; empty for its top."""


def parse_reference(text: str) -> Reference:
    """Take a reference apart.

    Raises:
        UsageError: it is not pinned by a full commit, or not of the form.
    """
    address, _, fragment = text.removeprefix("git+").partition("#")
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or not (parts.netloc or parts.scheme == "file") or not parts.path.strip("/"):
        raise UsageError(f"{text!r} is not a reference to a git repository", hint=PIN_HINT)
    if parts.password is not None:
        # the text below would show it, and so would every plan that names the reference
        raise UsageError("a reference must not hold a password", hint="let git's credential helper know it")
    if not address.isprintable() or " " in address:
        raise UsageError(f"{text!r} is not a reference to a git repository", hint=PIN_HINT)
    try:
        pairs = parse_qsl(fragment, keep_blank_values=True, strict_parsing=True) if fragment else []
    except ValueError:
        raise UsageError(f"{text!r}: what follows '#' is not key=value&…", hint=PIN_HINT) from None
    options = dict(pairs)
    if len(options) != len(pairs) or options.keys() - {"ref", "dir"}:
        raise UsageError(f"{text!r}: after '#' stand ref and dir, each once", hint=PIN_HINT)
    commit = options.get("ref", "")
    if not COMMIT.fullmatch(commit):
        raise UsageError(f"{text!r} is not pinned: ref must be a full commit hash, not {commit!r}", hint=PIN_HINT)
    folder = options.get("dir", "").strip("/")
    if fault := rules.inner_path(options.get("dir", "")):
        raise UsageError(f"{text!r}: {fault}")
    return Reference(address, commit, folder)


def fetch(text: str, cache: Path) -> tuple[Path, Path]:
    """The checkout of a pinned reference, and the kit's folder in it; fetched unless the cache has it.

    Raises:
        UsageError: the reference is not of the form; NotFoundError: there is no such repository, commit or folder;
        ConfigError: the folder leads out of the repository.
    """
    reference = parse_reference(text)
    # only the address and the commit name the content; the folder is looked up in it
    key = hashlib.sha256(reference.url.encode()).hexdigest()[:16]
    checkout = cache / f"{key}-{reference.commit}"
    if not checkout.is_dir():
        _fetch(reference, checkout, text)
    folder = checkout / reference.folder if reference.folder else checkout
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(checkout)):
        raise ConfigError("dir leads out of the repository", place=text)
    if not folder.is_dir():
        raise NotFoundError(f"the repository has no folder {reference.folder!r} at this commit", place=text)
    return checkout, folder


def _fetch(reference: Reference, checkout: Path, text: str) -> None:
    if shutil.which("git") is None:
        raise NotFoundError("the program git is not here, and a kit by reference needs it", place=text)
    checkout.parent.mkdir(parents=True, exist_ok=True)
    # fetched aside and renamed when whole, so that a fetch cut off leaves nothing that a later run takes
    aside = Path(tempfile.mkdtemp(prefix=".fetching-", dir=checkout.parent))
    try:
        tree = aside / "tree"
        tree.mkdir()
        _git(tree, ["init", "--quiet"], LOCAL_SECONDS, text)
        try:
            _git(
                tree,
                ["fetch", "--quiet", "--depth=1", "--no-tags", "--", reference.url, reference.commit],
                FETCH_SECONDS,
                text,
            )
        except NotFoundError:
            # not every server hands out a commit by its hash alone
            heads = "+refs/*:refs/remotes/from/*"
            _git(tree, ["fetch", "--quiet", "--no-tags", "--", reference.url, heads], FETCH_SECONDS, text)
        _git(tree, ["checkout", "--quiet", "--detach", reference.commit], FETCH_SECONDS, text)
        head = _git(tree, ["rev-parse", "HEAD"], LOCAL_SECONDS, text).strip()
        if head != reference.commit:
            raise NotFoundError(f"the repository answered with the commit {head}", place=text)
        shutil.rmtree(tree / ".git")
        try:
            tree.rename(checkout)
        except OSError:
            # another run was quicker with the same content
            if not checkout.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _git(folder: Path, command: Sequence[str], seconds: float, text: str) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh") + " -oBatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C",
    }
    process = subprocess.Popen(
        ["git", *OPTIONS, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except BaseException as error:
        # git's own children (git-remote-https, ssh) hold the connection; the whole session ends
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            message = f"git took longer than {seconds:.0f} s and was ended"
            raise NotFoundError(message, place=text, hint="is the host reachable from here?") from None
        raise
    shown = output.decode(errors="replace")
    if process.returncode != 0:
        lines = [line for line in shown.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit code {process.returncode}"
        raise NotFoundError(
            f"git could not fetch the kit: {reason}", place=text, log="\n".join(lines[-SHOWN_LINES:]) or None
        )
    return shown
