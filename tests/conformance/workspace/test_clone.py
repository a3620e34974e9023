"""A private copy: the host's folder stays as it is, until what was changed is taken over by its user."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx
from tests.conformance.workspace.conftest import ask, git, own

pytestmark = pytest.mark.engine

CHANGE = "echo more >> todo.txt; rm sub/deep.txt; mkdir a; echo new > a/b.txt; chmod 755 a/b.txt"


def tree(folder: Path) -> dict[str, str]:
    """Every file outside `.git`, and what it holds."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def test_the_host_stays_untouched_and_the_patch_of_a_throwaway_run_says_what_changed(
    sbx: Sbx, kit: Path, work: Path
) -> None:
    before = tree(work)
    output, said, code = ask(sbx, kit, f"{CHANGE}; printf '\\0\\1' > bin; pwd", "--mode", "clone", workspace=work)
    assert (code, output.strip()) == (0, str(work)), said
    assert tree(work) == before
    patch = max(sbx.sessions.iterdir()) / "changes.patch"
    assert str(patch) in said
    subprocess.run(["git", "apply", "--unsafe-paths", str(patch)], cwd=work, check=True)
    assert (work / "todo.txt").read_text() == "buy milk\nmore\n"
    assert not (work / "sub/deep.txt").exists()
    assert (work / "bin").read_bytes() == b"\0\1"
    assert os.access(work / "a/b.txt", os.X_OK)


def test_diff_apply_and_a_second_session(sbx: Sbx, kit: Path, work: Path) -> None:
    before = tree(work)
    _, said, code = ask(sbx, kit, CHANGE, "--mode", "clone", "--keep", "--name", "cl1", workspace=work)
    try:
        assert code == 0, said
        assert tree(work) == before
        diff = sbx("diff", "cl1")
        assert "+more" in diff.stdout
        assert "-deep" in diff.stdout
        names = sbx("diff", "cl1", "--name-only").stdout.split("\n")
        assert names[:3] == ["A a/b.txt", "D sub/deep.txt", "M todo.txt"]

        (work / "todo.txt").write_text("my own change\n")
        applied = sbx("apply", "cl1")
        assert applied.code == 1
        assert "you have changed it too: todo.txt" in applied.stderr
        assert (work / "todo.txt").read_text() == "my own change\n"
        assert (work / "a/b.txt").read_text() == "new\n"
        assert (work / "a/b.txt").stat().st_uid == 1001
        assert not (work / "sub/deep.txt").exists()

        forced = sbx("apply", "cl1", "todo.txt", "--force", "--json")
        assert json.loads(forced.stdout)["written"] == ["todo.txt"]
        assert (work / "todo.txt").read_text() == "buy milk\nmore\n"
        assert sbx("diff", "cl1").stdout == ""

        # The copy is made once: a later session goes on with what the first one left.
        output, said, code = ask(sbx, kit, "cat todo.txt", "--mode", "clone", "--keep", "--name", "cl1", workspace=work)
        assert (code, output) == (0, "buy milk\nmore\n"), said
    finally:
        assert sbx("rm", "-f", "cl1").code == 0


def test_a_git_workspace_is_cloned_as_git_without_its_configuration(sbx: Sbx, kit: Path, repo: Path) -> None:
    command = "git log --format=%s; git status --short; cat todo.txt .git/config; ls -A .git/hooks x.log 2>&1"
    output, said, code = ask(sbx, kit, command, "--mode", "clone", workspace=repo)
    assert code == 0, said
    assert output.startswith("first\n M todo.txt\n?? new.txt\nbuy milk\nand bread\n")
    assert "token-in-config" not in output
    assert "x.log': No such file" in output
    assert git(repo, "status", "--short") == " M todo.txt\n?? new.txt\n"


@pytest.mark.parametrize(("untracked", "there"), [("none", []), ("all", ["new.txt", "x.log"])])
def test_untracked_files_come_along_as_asked(sbx: Sbx, kit: Path, repo: Path, untracked: str, there: list[str]) -> None:
    command = "ls new.txt x.log 2>/dev/null; echo ."
    output, said, _ = ask(sbx, kit, command, "--mode", "clone", "--untracked", untracked, workspace=repo)
    assert output.split() == [*there, "."], said


@pytest.mark.slow
def test_a_shallow_clone_a_worktree_and_an_empty_repository_are_copied(sbx: Sbx, kit: Path, repo: Path) -> None:
    place = repo.parent / "more"
    place.mkdir()
    own(place)
    git(place, "-c", "protocol.file.allow=always", "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    git(repo, "worktree", "add", "-q", str(place / "tree"))
    git(place, "init", "-q", "empty")
    for name, expected in (("shallow", "first\n"), ("tree", "first\n"), ("empty", "empty\n")):
        output, said, code = ask(
            sbx,
            kit,
            "git log --format=%s 2>/dev/null || echo empty; git status -s",
            "--mode",
            "clone",
            workspace=place / name,
        )
        assert (code, output) == (0, expected), (name, said)


HOSTILE = """
ln -s /etc/passwd out; ln -s ../../outside/kept.txt climb; mkdir x; ln -s .. x/d; ln -s d/../../outside x/e
ln Makefile hard; mkfifo pipe; cp /bin/true suid; chmod 6755 suid; printf x > "$(printf 'new\\nline')"
printf x > "$(printf 'esc\\033]0;t\\007')"; mkdir -p sub2/.git/hooks; echo evil > sub2/.git/hooks/post-checkout
rm -rf sub; ln -s ../outside sub; echo evil > .git-evil; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit
"""


def test_a_hostile_copy_writes_nothing_outside_and_nothing_that_git_runs(sbx: Sbx, kit: Path, work: Path) -> None:
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("mine")
    _, said, code = ask(sbx, kit, HOSTILE, "--mode", "clone", "--keep", "--name", "cl2", workspace=work)
    try:
        assert code == 0, said
        diff = sbx("diff", "cl2")
        assert "\x1b" not in diff.stderr
        sbx("apply", "cl2", "--force")
        target = work.parent / "exported"
        exported = sbx("export", "cl2", target)
        assert exported.code == 0, exported.said
    finally:
        assert sbx("rm", "-f", "cl2").code == 0
    assert {p.name: p.read_text() for p in outside.iterdir()} == {"kept.txt": "mine"}
    for folder in (work, target):
        for path in folder.rglob("*"):
            assert path.is_symlink() or path.is_file() or path.is_dir(), path
            assert path.resolve().is_relative_to(folder), path
            assert not path.lstat().st_mode & 0o7000 or path.is_symlink(), path
            assert ".git" not in path.relative_to(folder).parts[:-1] or "hooks" not in path.parts, path
        assert (folder / "new\nline").read_text() == "x"
        assert (folder / "hard").stat().st_nlink == 1


def test_export_keeps_the_history_and_leaves_configuration_behind(sbx: Sbx, kit: Path, repo: Path) -> None:
    who = "-c user.name=a -c user.email=a@example.invalid"
    command = f"git add -A; git {who} commit -qm second; git config core.fsmonitor evil; echo x > .git/hooks/pre-commit"
    _, said, code = ask(sbx, kit, command, "--mode", "clone", "--keep", "--name", "cl3", workspace=repo)
    target = repo.parent / "exported"
    try:
        assert code == 0, said
        assert sbx("export", "cl3", target).code == 0
        again = sbx("export", "cl3", target)
        assert (again.code, "not empty" in again.stderr) == (2, True)
    finally:
        assert sbx("rm", "-f", "cl3").code == 0
    assert git(target, "log", "--format=%s").split() == ["second", "first"]
    assert not (target / ".git/hooks").exists()
    assert not (target / ".git/config").exists()


def test_what_has_no_copy_is_told(sbx: Sbx, kit: Path, work: Path) -> None:
    _, said, code = ask(sbx, kit, "true", "--keep", "--name", "cl4", workspace=work)
    try:
        assert code == 0, said
        for command in (("diff", "cl4"), ("apply", "cl4"), ("export", "cl4", work.parent / "e")):
            done = sbx(*command)
            assert done.code == 2, done.said
        assert sbx("diff", "nobody").code == 3
    finally:
        assert sbx("rm", "-f", "cl4").code == 0
