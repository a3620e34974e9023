"""Which parts of a workspace are mounted over themselves, and which files act on the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from runner.errors import ConfigError, UsageError
from runner.kits.plan import Volume as Asked
from runner.sandbox import acting
from runner.sandbox.protect import protect
from runner.sandbox.volumes import of_plan


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def closed(source: Path, *globs: str, git_config: bool = True) -> set[str]:
    found = protect(source, "/w", globs, git_config=git_config)
    return {bind.target for bind in found.binds if bind.read_only}


def opened(source: Path, *globs: str) -> set[str]:
    return {bind.target for bind in protect(source, "/w", globs).binds if not bind.read_only}


def test_a_repository_is_closed_where_git_runs_what_it_says(repo: Path) -> None:
    assert closed(repo) == {"/w/.git/hooks", "/w/.git/config", "/w/.git/commondir"}
    assert opened(repo) == {"/w/.git"}
    assert closed(repo, git_config=False) == {"/w/.git/hooks", "/w/.git/commondir"}


def test_what_is_made_for_it_changes_nothing_for_git(repo: Path) -> None:
    protect(repo, "/w")
    before = subprocess.run(["git", "status", "--porcelain=v2", "--branch"], cwd=repo, capture_output=True, check=True)
    assert b"# branch.head" in before.stdout
    assert (repo / ".git/commondir").read_text() == ".\n"


def test_a_commondir_that_is_there_stays(repo: Path) -> None:
    (repo / ".git/commondir").write_text("./\n")
    protect(repo, "/w")
    assert (repo / ".git/commondir").read_text() == "./\n"


def test_what_the_configuration_names_in_the_workspace_is_closed_too(repo: Path) -> None:
    (repo / ".husky").mkdir()
    (repo / "extra.cfg").write_text("")
    with (repo / ".git/config").open("a") as config:
        config.write("[core]\n\thooksPath = .husky\n[include]\n\tpath = ../extra.cfg\n\tpath = /etc/gitconfig\n")
    assert {"/w/.husky", "/w/extra.cfg"} <= closed(repo)
    assert not any("etc" in target for target in closed(repo))


def test_each_submodules_repository_is_closed(repo: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(repo / ".git/modules/a/b")], check=True)
    assert {f"/w/.git/modules/a/b/{name}" for name in ("hooks", "config", "commondir")} <= closed(repo)
    assert {"/w/.git/modules", "/w/.git/modules/a", "/w/.git/modules/a/b"} <= opened(repo)


def test_a_link_is_never_mounted(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repo / "link").symlink_to(tmp_path / "outside")
    found = protect(repo, "/w", ["link", "link/*"])
    assert not any("link" in bind.target for bind in found.binds)
    assert any("is a link" in line for line in found.said)


def test_too_many_paths_are_an_error_and_a_folder_is_one(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(300):
        (tmp_path / "many" / str(number)).touch()
    with pytest.raises(UsageError, match="at most 200"):
        protect(tmp_path, "/w", ["many/*"])
    assert closed(tmp_path, "many") == {"/w/many"}


ACTS = {
    ".git/hooks/pre-commit": "git",
    "sub/.git/config": "git",
    ".git/commondir": "git",
    ".git/rebase-merge/git-rebase-todo": "git",
    ".vscode/tasks.json": "editor",
    ".github/workflows/ci.yml": "ci",
    "deep/down/Makefile": "build",
    "package.json": "build",
    ".envrc": "shell",
    "tests/conftest.py": "test",
    "lib/site.pth": "python",
    "AGENTS.md": "agent",
}
QUIET = [
    ".git/objects/ab/cd",
    ".git/index",
    ".git/HEAD",
    "README.md",
    "src/main.py",
    "Makefile.txt",
    "github/x",
    "a.pt",
]


@pytest.mark.parametrize(("path", "kind"), ACTS.items())
def test_a_file_that_acts_is_known(path: str, kind: str) -> None:
    assert acting.kind_of(path) == kind
    assert acting.why(kind)


@pytest.mark.parametrize("path", QUIET)
def test_a_file_that_does_not_act_is_not_listed(path: str) -> None:
    assert acting.kind_of(path) == ""


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "Makefile"
    path.write_text("a:\n")
    before, status = acting.look(tmp_path), path.stat()
    path.write_text("b:\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [a.path for a in acting.changed(before, acting.look(tmp_path))] == ["Makefile"]


def test_hostile_names_and_files_do_not_stop_the_look(tmp_path: Path) -> None:
    before = acting.look(tmp_path)
    (tmp_path / "package.json").write_text("[" * 100_000)
    (tmp_path / "conf\udcff.mk").touch()
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / ".envrc").symlink_to("/dev/zero")
    found = {each.path for each in acting.changed(before, acting.look(tmp_path))}
    assert found == {"package.json", "conf\udcff.mk", "Makefile", ".envrc"}


@pytest.mark.parametrize("path", ["/", "/usr/x", "/opt", "/run/x", "/home", "/w", "/w/x", "/a/../etc", "/proc"])
def test_a_volume_over_what_is_not_its_own_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        of_plan([Asked(path, source="k")], workspace="/w")


def test_a_volumes_size_is_kept_in_memory_and_told_on_disk() -> None:
    found, said = of_plan(
        [Asked("/a/", size="8m", source="k"), Asked("/b", "tmpfs", "8m", "0700", "k")], workspace="/w"
    )
    assert [(v.path, v.tmpfs, v.size, v.mode) for v in found] == [("/a", False, 0, 0o755), ("/b", True, 8 << 20, 0o700)]
    assert len(said) == 1
    assert "/a" in said[0]
