"""Kits by pinned reference, from real git repositories on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits import pinned
from runner.kits.compose import compose
from runner.kits.find import Finder
from runner.kits.pinned import Reference, fetch, parse_reference

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder, *command: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2026-11-30T20:00:00Z"}
    identity |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in identity.items()}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return subprocess.run(
        ["git", *command], cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path, write_kit):
    """A repository with two kits; returns its URL and its two commits."""
    folder = tmp_path / "repository"
    write_kit("repository/kits/tool", "kind: mixin\nsetup: {install: [{command: first}]}\n")
    write_kit("repository/kits/box", "kind: sandbox\nsandbox: {image: debian}\nmixins: [../tool]\n")
    (folder / "kits/out").symlink_to("../..")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "one")
    first = git(folder, "rev-parse", "HEAD")
    write_kit("repository/kits/tool", "kind: mixin\nsetup: {install: [{command: second}]}\n")
    git(folder, "commit", "--quiet", "-am", "two")
    return f"git+file://{folder}", first, git(folder, "rev-parse", "HEAD")


def test_a_reference_is_taken_apart():
    text = f"git+https://git.example.org/team/kits.git#ref={COMMIT}&dir=kits/tool"
    assert parse_reference(text) == Reference("https://git.example.org/team/kits.git", COMMIT, "kits/tool")
    assert parse_reference(f"git+ssh://git@git.example.org/kits.git#ref={COMMIT}").folder == ""


REFUSED = {
    "a branch": ("git+https://h.example/r.git#ref=main", "is not pinned: ref must be a full commit hash, not 'main'"),
    "a short hash": ("git+https://h.example/r.git#ref=0123456", "is not pinned"),
    "no ref": ("git+https://h.example/r.git", "is not pinned"),
    "another key": (f"git+https://h.example/r.git#ref={COMMIT}&depth=1", "stand ref and dir, each once"),
    "ref twice": (f"git+https://h.example/r.git#ref={COMMIT}&ref={COMMIT}", "stand ref and dir, each once"),
    "no pairs": ("git+https://h.example/r.git#main", "is not key=value"),
    "a folder that walks": (f"git+https://h.example/r.git#ref={COMMIT}&dir=../x", "leads out"),
    "an absolute folder": (f"git+https://h.example/r.git#ref={COMMIT}&dir=/etc", "leads out"),
    "a program for a transport": (f"git+ext::sh -c id#ref={COMMIT}", "is not a reference to a git repository"),
    "an option for a URL": (f"git+--upload-pack=x#ref={COMMIT}", "is not a reference to a git repository"),
    "a password": (f"git+https://me:secret@h.example/r.git#ref={COMMIT}", "must not hold a password"),
    "no repository": (f"git+https://h.example#ref={COMMIT}", "is not a reference to a git repository"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_reference_that_is_not_pinned_or_none_is_refused(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse_reference(text)
    assert "secret" not in str(caught.value)


def test_a_commit_is_fetched_once_and_found_without_the_repository_afterwards(tmp_path, repository):
    url, first, _ = repository
    text = f"{url}#ref={first}&dir=kits/tool"
    checkout, folder = fetch(text, tmp_path / "cache")
    assert "first" in (folder / "spec.yaml").read_text()
    assert not (checkout / ".git").exists()
    (tmp_path / "repository").rename(tmp_path / "gone")
    assert fetch(text, tmp_path / "cache") == (checkout, folder)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [checkout.name], "nothing half-made stays"


def test_a_kit_by_reference_composes_with_its_neighbours(tmp_path, repository):
    url, _, second = repository
    finder = Finder({"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)})
    reference = f"{url}#ref={second}&dir=kits/box"
    plan = compose(reference, finder=finder)
    assert [layer.kit for layer in plan.layers] == ["box", "tool"]
    assert plan.layers[1].install[0].command == "second"
    assert plan.kits[0].path == reference


def test_a_commit_or_folder_that_is_not_there_is_said(tmp_path, repository):
    url, first, _ = repository
    with pytest.raises(NotFoundError, match="git could not fetch the kit"):
        fetch(f"{url}#ref={COMMIT}", tmp_path / "cache")
    with pytest.raises(NotFoundError, match="git could not fetch the kit"):
        fetch(f"git+file://{tmp_path}/nowhere#ref={COMMIT}", tmp_path / "cache")
    with pytest.raises(NotFoundError, match="the repository has no folder 'kits/none' at this commit"):
        fetch(f"{url}#ref={first}&dir=kits/none", tmp_path / "cache")
    with pytest.raises(ConfigError, match="dir leads out of the repository"):
        fetch(f"{url}#ref={first}&dir=kits/out", tmp_path / "cache")


def test_hooks_of_the_users_git_configuration_do_not_run(tmp_path, repository, monkeypatch):
    url, first, _ = repository
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    fetch(f"{url}#ref={first}", tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


def test_a_server_that_never_answers_is_given_up_and_its_children_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pinned, "FETCH_SECONDS", 0.3)
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    started = time.perf_counter()
    with pytest.raises(NotFoundError, match="git took longer than"):
        fetch(f"git+ssh://h.example/r.git#ref={COMMIT}", tmp_path / "cache")
    assert time.perf_counter() - started < 10
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    while status.exists() and "\nState:\tZ" not in status.read_text():  # killed is not yet gone: a moment may pass
        assert time.perf_counter() - started < 20
    assert list((tmp_path / "cache").iterdir()) == []
