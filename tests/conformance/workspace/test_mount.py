"""A mounted workspace: what in it a tool may not change, and what is told of it afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx
from tests.conformance.workspace.conftest import ask, git, own

pytestmark = pytest.mark.engine

ATTACKS = {
    "write a hook": "printf '#!/bin/sh\\ntouch /tmp/x\\n' > .git/hooks/pre-commit",
    "replace the folder of hooks": "mv .git/hooks .git/h2 && mkdir .git/hooks && touch .git/hooks/pre-commit",
    "write the configuration": "git config core.fsmonitor /tmp/evil",
    "replace the configuration": "cp .git/config c && echo '[core] fsmonitor=x' >> c && mv c .git/config",
    "move .git away and a changed copy back": "cp -r .git g2 && mv .git g3 && mv g2 .git",
    "remove .git": "rm -rf .git/config .git/hooks; rmdir .git",
    "name another common folder": "echo ../evil > .git/commondir",
    "replace the name of the common folder": "rm -f .git/commondir && echo ../evil > .git/commondir",
    "a link in the place of hooks": "ln -sfn /tmp .git/hooks",
    "unmount": "umount .git/config",
}


def test_no_attack_on_git_changes_what_git_runs(sbx: Sbx, kit: Path, repo: Path) -> None:
    git(repo, "status")
    before = (repo / ".git/config").read_bytes()
    hooks = sorted(path.name for path in (repo / ".git/hooks").iterdir())
    script = "\n".join(f"( {attack} ) 2>/dev/null && echo 'through: {what}'" for what, attack in ATTACKS.items())
    output, said, code = ask(sbx, kit, f"{script}\necho done", workspace=repo)
    assert code == 0, said
    assert output.strip() == "done"
    assert (repo / ".git/config").read_bytes() == before
    assert sorted(path.name for path in (repo / ".git/hooks").iterdir()) == hooks
    assert (repo / ".git/commondir").read_text() == ".\n"
    assert git(repo, "rev-parse", "HEAD").strip()


def test_git_works_in_the_sandbox_and_on_the_host_afterwards(sbx: Sbx, kit: Path, repo: Path) -> None:
    who = "-c user.name=a -c user.email=a@example.invalid"
    command = (
        f"git add -A && git {who} commit -q -m second && git branch side && git stash list && git gc -q && echo ok"
    )
    output, said, _ = ask(sbx, kit, command, workspace=repo)
    assert output.strip() == "ok", said
    assert git(repo, "log", "--format=%s").split() == ["second", "first"]
    assert git(repo, "fsck") == ""
    assert git(repo, "status", "--short") == ""


def test_git_config_rw_opens_the_configuration_and_it_is_told(sbx: Sbx, kit: Path, repo: Path) -> None:
    output, said, _ = ask(sbx, kit, "git config core.x y && echo ok", "--git-config", "rw", workspace=repo)
    assert output.strip() == "ok"
    assert "y" in git(repo, "config", "core.x")
    assert ".git/config (git runs it)" in said


def test_a_protected_path_and_the_folders_above_it_stay(sbx: Sbx, kit: Path, work: Path) -> None:
    attacks = "echo x > sub/deep.txt; rm -f sub/deep.txt; mv sub sub2; echo y > sub/other.txt && cat sub/deep.txt"
    output, _, _ = ask(sbx, kit, attacks, "--protect", "sub/*.txt", workspace=work)
    assert "deep\n" in output
    assert (work / "sub/deep.txt").read_text() == "deep\n"
    assert (work / "sub/other.txt").read_text() == "y\n"
    assert not (work / "sub2").exists()


def test_a_pattern_that_matches_nothing_is_told(sbx: Sbx, kit: Path, work: Path) -> None:
    _, said, code = ask(sbx, kit, "true", "--protect", "nothing*", workspace=work)
    assert code == 0
    assert "--protect nothing* matches nothing" in said


@pytest.mark.parametrize("pattern", ["/etc/*", "../x", "a/../../b", ""])
def test_a_pattern_that_leads_out_is_refused(sbx: Sbx, kit: Path, work: Path, pattern: str) -> None:
    _, said, code = ask(sbx, kit, "true", "--protect", pattern, workspace=work)
    assert code == 2
    assert "--protect" in said


def test_changed_files_that_act_on_the_host_are_listed_and_no_others(sbx: Sbx, kit: Path, work: Path) -> None:
    (work / "package.json").write_text('{"scripts": {"test": "true"}, "version": "1"}')
    (work / "sub/package.json").write_text('{"scripts": {"test": "true"}, "version": "1"}')
    (work / "conftest.py").write_text("")
    own(work)
    command = (
        "echo more >> Makefile; mkdir -p .vscode .github/workflows; echo '{}' > .vscode/tasks.json;"
        " echo x > .github/workflows/ci.yml; echo plain > plain.txt; echo x >> todo.txt; echo x > .envrc;"
        """ echo '{"scripts": {"test": "evil"}}' > package.json; sed -i s/1/2/ sub/package.json;"""
        " git init -q nested; git -C nested config core.fsmonitor evil; git init -q --bare bare;"
        " printf x > \"$(printf 'conf\\033[31m\\ntest.mk')\""
    )
    _, said, code = ask(sbx, kit, command, workspace=work)
    assert code == 0
    listed = {file["path"] for file in sbx.events("workspace.acts")[0]["files"]}
    assert {
        "Makefile", ".vscode/tasks.json", ".github/workflows/ci.yml", ".envrc", "package.json",
        "nested/.git/config", "bare/config", "conf\x1b[31m\ntest.mk",
    } <= listed  # fmt: skip
    assert not {"plain.txt", "todo.txt", "conftest.py", "sub/package.json"} & listed
    assert "Makefile (a build runs it)" in said
    assert "\x1b[31m" not in said


def test_a_run_that_changes_nothing_lists_nothing(sbx: Sbx, kit: Path, repo: Path) -> None:
    _, said, _ = ask(sbx, kit, "cat todo.txt; git status", workspace=repo)
    assert sbx.events("workspace.acts") == []
    assert "act on this machine" not in said


def test_a_git_worktree_is_told_and_its_pointer_stays(sbx: Sbx, kit: Path, repo: Path) -> None:
    place = repo.parent / "tree"
    place.mkdir()
    own(place)
    git(repo, "worktree", "add", "-q", str(place / "w"))
    pointer = (place / "w/.git").read_bytes()
    output, said, _ = ask(sbx, kit, "echo 'gitdir: /tmp' > .git || echo kept", workspace=place / "w")
    assert "kept" in output
    assert (place / "w/.git").read_bytes() == pointer
    assert "worktree or submodule" in said


def test_a_submodules_hooks_and_config_stay(sbx: Sbx, kit: Path, repo: Path) -> None:
    modules = repo / ".git/modules/lib"
    subprocess.run(["git", "init", "-q", "--bare", str(modules)], check=True)
    own(repo)
    attack = (
        "echo x > .git/modules/lib/config || mv .git/modules .git/m2 || touch .git/modules/lib/hooks/x || echo kept"
    )
    output, said, _ = ask(sbx, kit, attack, workspace=repo)
    assert "kept" in output, said


def test_a_read_only_workspace_cannot_be_written(sbx: Sbx, kit: Path, work: Path) -> None:
    output, said, code = ask(
        sbx, kit, "cat todo.txt; touch x || rm todo.txt || echo kept", "--mode", "ro", workspace=work
    )
    assert code == 0, said
    assert output.startswith("buy milk")
    assert "kept" in output
    assert sorted(p.name for p in work.iterdir()) == ["Makefile", "sub", "todo.txt"]


def test_no_workspace_is_an_empty_folder_of_the_agents(sbx: Sbx, kit: Path, work: Path) -> None:
    output, said, code = ask(sbx, kit, "pwd; ls -A; touch x && stat -c %u x", "--mode", "none")
    assert (code, output.split()) == (0, ["/workspace", "1000"]), said
