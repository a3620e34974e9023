"""The entry refuses what it must, in one line, with a code of its own."""

from __future__ import annotations

import os
import subprocess
import uuid

import pytest

from tests.conformance.spawn.conftest import CAPABILITIES, Sandbox, command_line, make_workspace

pytestmark = pytest.mark.engine


def entry(workspace, *arguments, **options):
    name = f"sbx-test-entry-{uuid.uuid4().hex[:8]}"
    line = command_line(name, workspace, *arguments, **options)
    line.insert(2, "--rm")
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("uid", [64000, 64001, 65534])
def test_a_workspace_of_a_reserved_owner_is_refused(tmp_path, uid):
    done = entry(make_workspace(tmp_path / "w", uid))
    assert done.returncode == 78
    assert done.stderr.startswith(f"sbx: the workspace {tmp_path}/w belongs to {uid}:{uid}, which is reserved")
    assert done.stderr.count("\n") == 1


def test_a_workspace_that_is_missing_or_a_file_is_refused(tmp_path):
    workspace = make_workspace(tmp_path / "w", 1000)
    missing = entry(workspace, "/nowhere")
    assert (missing.returncode, missing.stderr) == (
        78,
        "sbx: the workspace /nowhere cannot be read: No such file or directory\n",
    )
    file = entry(workspace, f"{workspace}/here.txt")
    assert (file.returncode, file.stderr) == (78, f"sbx: the workspace {workspace}/here.txt is not a folder\n")


@pytest.mark.parametrize("without", CAPABILITIES)
def test_a_container_that_lacks_a_capability_is_refused(tmp_path, without):
    given = [name for name in CAPABILITIES if name != without]
    done = entry(make_workspace(tmp_path / "w", 1000), capabilities=given)
    assert done.returncode == 77
    assert done.stderr.startswith("sbx: ")
    assert "Traceback" not in done.stderr


def test_a_home_with_links_in_it_is_given_without_following_them(tmp_path):
    volume = f"sbx-test-{uuid.uuid4().hex[:8]}"
    subprocess.run(
        ["docker", "volume", "create", "--label", "dev.sbx.test=spawn", volume], check=True, capture_output=True
    )
    try:
        first = Sandbox(make_workspace(tmp_path / "first", 1000), 1000, home=f"{volume}:/home/agent")
        first.out("ln -s /etc/shadow ~/shadow; ln -s / ~/root; mkdir -p ~/a/b; echo x > ~/a/b/c; ln -s ../.. ~/a/b/up")
        assert first.close() == 0
        second = Sandbox(make_workspace(tmp_path / "second", 1001), 1001, home=f"{volume}:/home/agent")
        assert second.out("find ~ ! -uid 1001; stat -c %u /etc/shadow /; stat -c %u ~/shadow ~/a/b/c") == (
            "0\n0\n1001\n1001\n"
        )
        assert second.close() == 0
    finally:
        subprocess.run(["docker", "volume", "rm", "-f", volume], check=True, capture_output=True)


def test_the_end_of_stdin_ends_everything(tmp_path):
    workspace = make_workspace(tmp_path / "w", 1000)
    box = Sandbox(workspace, 1000)
    box.order("run", script="setsid sleep 1000 & touch up; sleep 1000")
    box.ask("processes")
    while not os.path.exists(workspace / "up"):
        pass
    assert box.close() == 0
