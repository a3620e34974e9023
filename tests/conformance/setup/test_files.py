"""Files, variables, instructions and volumes of a kit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Sbx
from tests.conformance.setup.conftest import Kit
from tests.conformance.workspace.conftest import own

pytestmark = pytest.mark.engine

SPEC = """
environment: {variables: {GREETING: hello}}
agentInstructions: {filename: HOWTO.md, content: "Answer in verse."}
setup:
  startup:
    - command: [sh, -c, 'id -u > /tmp/who; echo "$GREETING" > /tmp/greeting; pwd > /tmp/where']
    - command: [sh, -c, 'sleep 600 > /dev/null & echo $! > /tmp/left']
    - command: [sh, -c, 'echo $$ > /tmp/background; exec sleep 600']
      background: true
  files:
    - {path: /home/agent/.config/tool.json, content: '{"dir": "${WORKDIR}"}', mode: "0600"}
    - {path: /home/agent/once.txt, content: first, onlyIfMissing: true}
volumes:
  - {path: /data, mode: "0700"}
  - {path: /scratch, type: tmpfs, size: 8m}
"""


@pytest.mark.parametrize("owner", [0, 1000, 1001])
def test_all_of_it_happens_as_the_workspaces_owner(sbx: Sbx, at_start: Kit, owner: int) -> None:
    at_start.spec(SPEC)
    (at_start.folder / "files/workspace").mkdir(parents=True)
    (at_start.folder / "files/workspace/made.txt").write_text("by the kit")
    (at_start.folder / "files/workspace/mine.txt").write_text("by the kit")
    (at_start.folder / "files/home").mkdir()
    (at_start.folder / "files/home/.tool").write_text("at home")
    (at_start.work / "mine.txt").write_text("my own")
    own(at_start.work, owner)
    command = (
        "cat /tmp/who /tmp/greeting /tmp/where ~/.config/tool.json; echo; cat ~/once.txt ~/.tool; echo;"
        " stat -c '%u %a' ~/.config/tool.json made.txt /data;"
        " kill -0 $(cat /tmp/left) $(cat /tmp/background)"
        " && echo up;"
        " touch /data/x /scratch/x && echo writable; df -k --output=size /scratch | tail -1;"
        " touch /run/sbx/instructions/x /run/sbx/instructions/at-start/HOWTO.md 2>/dev/null || echo closed;"
        " cat /run/sbx/instructions/at-start/HOWTO.md"
    )
    output, said, code = at_start.ask(sbx, command)
    assert code == 0, said
    assert [line.strip() for line in output.splitlines()] == [
        str(owner), "hello", str(at_start.work), json.dumps({"dir": str(at_start.work)}), "firstat home",
        f"{owner} 600", f"{owner} 644", f"{owner} 700", "up", "writable", "8192", "closed", "Answer in verse.",
    ]  # fmt: skip
    assert (at_start.work / "made.txt").read_text() == "by the kit"
    assert (at_start.work / "made.txt").stat().st_uid == owner
    assert (at_start.work / "mine.txt").read_text() == "my own"
    assert "your own mine.txt in the workspace stays" in said
    assert [event["end"] for event in sbx.events("startup")] == ["0", "0"]


def test_a_kept_sandbox_keeps_its_volume_and_its_file_and_loses_what_is_in_memory(
    sbx: Sbx, engine: Engine, at_start: Kit
) -> None:
    at_start.spec(SPEC)
    options = ("--keep", "--name", "vol1")
    _, said, code = at_start.ask(sbx, "echo kept > /data/x; echo x > /scratch/x; echo second > ~/once.txt", *options)
    try:
        assert code == 0, said
        output, said, code = at_start.ask(sbx, "cat /data/x ~/once.txt; ls /scratch | wc -l; cat /tmp/who", *options)
        assert (code, output.split()) == (0, ["kept", "second", "0", "1001"]), said
    finally:
        assert sbx("rm", "-f", "vol1").code == 0
    query = "filters=%7B%22label%22%3A%5B%22dev.sbx.sandbox%3Dvol1%22%5D%7D"
    assert not engine.get(f"/volumes?{query}", doing="listing")["Volumes"]


@pytest.mark.parametrize("path", ["/", "/usr/local/bin", "/opt/sbx/lib", "/run/sbx", "/etc", "/home", "/home/agent"])
def test_a_volume_over_the_sandboxs_own_parts_is_refused(sbx: Sbx, at_start: Kit, path: str) -> None:
    at_start.spec(f"volumes: [{{path: {path}}}]\n")
    _, said, code = at_start.ask(sbx, "true")
    assert code == 2
    assert "cannot be a volume" in said


def test_the_system_prompt_names_the_instructions(sbx: Sbx, at_start: Kit) -> None:
    at_start.spec(SPEC)
    (at_start.folder / "demo.yaml").write_text(
        'answers:\n  - system: "(?P<file>/run/sbx/instructions/at-start/HOWTO.md)"\n    text: "named {file}"\n'
        "  - text: not named\n"
    )
    output, said, _ = at_start.ask(sbx, "anything")
    assert output.startswith("named /run/sbx/instructions/at-start/HOWTO.md"), said


def test_a_file_that_cannot_be_written_ends_the_start(sbx: Sbx, at_start: Kit) -> None:
    at_start.spec("setup: {files: [{path: /etc/tool.conf, content: x}]}\n")
    output, said, code = at_start.ask(sbx, "true")
    assert (code, output) == (1, "")
    assert "/etc/tool.conf: read-only file system (kit at-start)" in said


def test_a_read_only_workspace_gets_no_files_and_that_is_said(sbx: Sbx, at_start: Kit) -> None:
    (at_start.folder / "files/workspace").mkdir(parents=True)
    (at_start.folder / "files/workspace/made.txt").write_text("by the kit")
    output, said, code = at_start.ask(sbx, "ls -A | wc -l", "--mode", "ro")
    assert (code, output.strip()) == (0, "0"), said
    assert "the workspace is read-only: the kit's files for it are left out" in said


def test_a_hostile_link_in_the_workspace_does_not_make_the_kits_file_leave_it(
    sbx: Sbx, at_start: Kit, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (at_start.folder / "files/workspace/docs").mkdir(parents=True)
    (at_start.folder / "files/workspace/docs/made.txt").write_text("by the kit")
    (at_start.work / "docs").symlink_to(outside)
    own(at_start.work)
    at_start.ask(sbx, "true")
    assert list(outside.iterdir()) == []
