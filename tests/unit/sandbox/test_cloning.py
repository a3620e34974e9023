"""What goes into a private copy, and how what was changed is told apart."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.sandbox import cloning
from runner.sandbox.transfer import fingerprint, fingerprints, unpack


def git(folder: Path, *arguments: str) -> None:
    settings = ("user.name=n", "user.email=n@example.invalid")
    command = ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "a.txt").write_text("one\n")
    (folder / "gone.txt").write_text("")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "config", "http.extraheader", "Authorization: secret")
    (folder / ".git/hooks/pre-commit").write_text("evil")
    (folder / "a.txt").write_text("two\n")
    (folder / "gone.txt").unlink()
    (folder / "new.txt").write_text("")
    (folder / "x.log").write_text("")
    return folder


def copy(source: Path, target: Path, untracked: str = "normal") -> cloning.Baseline:
    raw = io.BytesIO()
    made = cloning.clone(source, "/w", raw, untracked=untracked)
    raw.seek(0)
    target.mkdir()
    unpack(raw, target)
    return made


@pytest.mark.parametrize(
    ("untracked", "names"),
    [
        ("none", {".gitignore", "a.txt"}),
        ("normal", {".gitignore", "a.txt", "new.txt"}),
        ("all", {".gitignore", "a.txt", "new.txt", "x.log"}),
    ],
)
def test_a_git_workspace_is_its_working_tree_and_its_history(
    repo: Path, tmp_path: Path, untracked: str, names: set[str]
) -> None:
    made = copy(repo, tmp_path / "copy", untracked)
    assert set(made.prints) == {path.name for path in (tmp_path / "copy").iterdir()} - {".git"} == names
    assert (tmp_path / "copy/a.txt").read_text() == "two\n"
    done = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path / "copy", capture_output=True, text=True, check=True
    )
    assert done.stdout == "first\n"


def test_neither_hooks_nor_configuration_come_along(repo: Path, tmp_path: Path) -> None:
    copy(repo, tmp_path / "copy")
    for path in (tmp_path / "copy/.git").rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes(), path
            assert b"evil" not in path.read_bytes(), path
    assert not (tmp_path / "copy/.git/hooks").exists()
    assert str(tmp_path) not in (tmp_path / "copy/.git/config").read_text()


def test_a_plain_folder_is_copied_whole_and_links_as_links(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    (source / "d").mkdir(parents=True)
    (source / "d/x.sh").write_text("x")
    (source / "d/x.sh").chmod(0o755)
    (source / "l").symlink_to("d/x.sh")
    made = copy(source, tmp_path / "copy")
    assert made.prints == fingerprints(tmp_path / "copy")
    assert made.prints["l"] == "l:d/x.sh"
    assert made.prints["d/x.sh"] == fingerprint(source, "d/x.sh")
    assert made.prints["d/x.sh"].startswith("x:")


def test_a_fingerprint_tells_a_changed_file_and_one_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = fingerprint(tmp_path, "a")
    (tmp_path / "a").chmod(0o755)
    assert fingerprint(tmp_path, "a") not in ("", first)
    assert fingerprint(tmp_path, "b") == ""
    assert fingerprint(tmp_path, "a/b") == "?"


def test_a_baseline_is_kept_and_a_strange_name_finds_none(tmp_path: Path) -> None:
    made = cloning.Baseline("/s", "/w", {"a": "-:x"}, True, ("said",))
    cloning.save(tmp_path, "box", made)
    assert cloning.load(tmp_path, "box") == made
    assert cloning.load(tmp_path, "../box") is None
    assert cloning.load(tmp_path, "other") is None


def test_a_broken_repository_is_an_error_that_says_what_git_said(tmp_path: Path) -> None:
    (tmp_path / "r/.git").mkdir(parents=True)
    with pytest.raises(UsageError) as caught:
        cloning.clone(tmp_path / "r", "/w", io.BytesIO())
    assert caught.value.log
