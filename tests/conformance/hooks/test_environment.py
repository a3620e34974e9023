"""Where a hook runs: identity, environment, working directory. And attacks that other tools were open to."""

from __future__ import annotations

import asyncio
import os

import pytest

from runner.guest.spawn.command import HOOK
from tests.conformance.hooks.conftest import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = 120.0
"""Seconds, where time is not what is tested: the machine may be busy."""

GUARDS = {
    "preGeneration": lambda chain, call: chain.pre_generation("q"),
    "preToolCall": lambda chain, call: chain.pre_tool_call(call),
    "permissionRequest": lambda chain, call: chain.permission_request(call),
}


@pytest.mark.parametrize("event", GUARDS)
async def test_a_guard_runs_as_an_identity_that_no_tool_has(bench, call, event):
    await GUARDS[event](bench.one(event, 'id -u > "$TMPDIR/uid"'), call())
    assert int((bench.root / "guard-tmp" / "uid").read_text()) == HOOK.uid


async def test_an_observer_runs_as_the_workspaces_owner_and_may_write_there(bench, call):
    await bench.one("postToolCall", "id -u > uid").post_tool_call(call(), "o", False)
    file = bench.workspace / "uid"
    assert int(file.read_text()) == OWNER.uid == file.stat().st_uid


async def test_user_overrides_the_default(bench, call):
    await bench.one("preToolCall", "id -u > uid", user="owner").pre_tool_call(call())
    assert int((bench.workspace / "uid").read_text()) == OWNER.uid


async def test_a_guard_cannot_write_the_workspace(bench, call):
    await bench.one("preToolCall", "touch written").pre_tool_call(call())
    assert list(bench.workspace.iterdir()) == []
    assert bench.verdicts == ["error"]


async def test_a_guard_that_cannot_enter_the_workspace_starts_in_the_root_folder_and_is_told_the_real_one(bench, call):
    bench.workspace.chmod(0o700)
    command = 'here=$(pwd); jq -c --arg here "$here" \'{context: ($here + " " + .cwd)}\''
    done = await bench.one("preToolCall", command, on_error="fail").pre_tool_call(call())
    assert done.context == (f"/ {bench.workspace}",)


async def test_the_environment_is_exactly_what_the_reference_lists(bench, call, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_GUEST", "hunter2")
    await bench.one("preToolCall", 'env > "$TMPDIR/env"').pre_tool_call(call())
    lines = (bench.root / "guard-tmp" / "env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    found.pop("_", None)
    assert found == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(bench.root / "empty"),
        "LANG": "C.UTF-8",
        "TMPDIR": str(bench.root / "guard-tmp"),
        "PYTHONNOUSERSITE": "1",
        "MM_HOOK_EVENT": "preToolCall",
        "MM_CONFIG_DIR": str(bench.config),
        "SBX_HOOKS_DIR": str(bench.root / "hooks"),
        "CLAUDE_PROJECT_DIR": str(bench.workspace),
        "PWD": str(bench.workspace),  # the shell's own
    }


@pytest.mark.parametrize("environment", [{}, {"PATH": "", "HOME": ""}], ids=["unset", "empty"])
async def test_the_guests_own_environment_does_not_matter(bench, call, monkeypatch, environment):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = await bench.one("preToolCall", "jq -r .tool.name >&2; exit 2").pre_tool_call(call())
    assert done.denied == "bash"


async def test_a_kits_hook_is_given_the_kits_own_folder(bench, call):
    await bench.one("preToolCall", 'echo "$MM_CONFIG_DIR" >&2; exit 2', config_dir="/opt/kit").pre_tool_call(call())
    assert bench.hook_events[0]["reason"] == "/opt/kit"


class TestPlanted:
    """A tool can write the workspace and its home. None of that may turn a guard's "deny" into nothing."""

    DENY = 'python3 -c \'import json, sys; print(json.dumps({"action": "deny"}))\''

    async def test_a_module_in_the_workspace(self, bench, call):
        (bench.workspace / "json.py").write_text("import os; os._exit(0)")
        assert (await bench.one("preToolCall", self.DENY).pre_tool_call(call())).denied is not None

    async def test_an_interpreter_in_the_workspace(self, bench, call):
        for name in ("python3", "node", "sh"):
            planted = bench.workspace / name
            planted.write_text("#!/bin/true\n")
            planted.chmod(0o755)
        assert (await bench.one("preToolCall", self.DENY).pre_tool_call(call())).denied is not None

    async def test_a_pth_file_and_node_modules_in_the_owners_home(self, bench, call, tmp_path):
        home = bench.root / "home"
        site = home / ".local/lib/python3.11/site-packages"
        site.mkdir(parents=True)
        (site / "planted.pth").write_text("import os; os._exit(0)\n")
        (home / ".node_modules").mkdir()
        (home / ".node_modules" / "guard.js").write_text("process.exit(0)")
        found = await bench.one("preToolCall", 'echo "$HOME" >&2; exit 2').pre_tool_call(call())
        assert found.denied == str(bench.root / "empty")
        assert (await bench.one("preToolCall", self.DENY, user="owner").pre_tool_call(call())).denied is not None

    async def test_nothing_can_be_put_into_the_hooks_home(self, bench, call):
        for user in ("hook", "owner"):
            await bench.one("preToolCall", 'touch "$HOME/x"', user=user).pre_tool_call(call())
        assert list((bench.root / "empty").iterdir()) == []

    async def test_a_fifo_in_the_hooks_place_is_a_timeout_and_fail_denies(self, bench, call):
        os.mkfifo(bench.config / "guard.sh")
        chain = bench.one("preToolCall", 'sh "$MM_CONFIG_DIR/guard.sh"', timeout=0.3, on_error="fail")
        done = await chain.pre_tool_call(call())
        assert done.denied is not None and "took longer than 0.3 s" in done.denied

    async def test_a_dangling_link_in_the_hooks_place_fails(self, bench, call):
        (bench.config / "guard.sh").symlink_to("/nowhere")
        done = await bench.one("preToolCall", '"$MM_CONFIG_DIR/guard.sh"', on_error="fail").pre_tool_call(call())
        assert done.denied is not None and "not found" in done.denied

    async def test_the_owner_cannot_read_a_waiting_guards_memory_or_descriptors(self, bench, call):
        attack = "for p in $(find /proc -maxdepth 1 -uid 64001); do ls $p/fd; cat $p/mem; done"
        waits = 'touch "$TMPDIR/up"; while [ ! -e spied ]; do sleep 0.02; done; exit 2'
        guard = asyncio.create_task(bench.one("preToolCall", waits, timeout=LONG).pre_tool_call(call()))
        while not (bench.root / "guard-tmp" / "up").exists():
            await asyncio.sleep(0)
        spy = bench.one(
            "postToolCall", f"n=$( ({attack}) 2>&1 | grep -c 'Permission denied'); echo $n > spied", timeout=LONG
        )
        await spy.post_tool_call(call(), "o", False)
        assert (await guard).denied is not None
        assert int((bench.workspace / "spied").read_text()) >= 1

    async def test_the_owner_cannot_stop_or_end_a_waiting_guard(self, bench, call):
        up = bench.root / "guard-tmp" / "up"
        waits = 'echo $$ > "$TMPDIR/up"; while [ ! -e shot ]; do sleep 0.02; done; exit 2'
        guard = asyncio.create_task(bench.one("preToolCall", waits, timeout=LONG).pre_tool_call(call()))
        while not (up.exists() and up.read_text().endswith("\n")):
            await asyncio.sleep(0)
        pid = int(up.read_text())
        shoot = f"for signal in STOP KILL TERM; do kill -$signal {pid}; done 2> kills; touch shot"
        await bench.one("postToolCall", shoot, timeout=LONG).post_tool_call(call(), "o", False)
        assert (await guard).denied is not None
        assert (bench.workspace / "kills").read_text().count("not permitted") == 3

    async def test_a_stopped_job_with_a_timer_that_wakes_it_does_not_outlive_its_call(self, bench, call):
        """It sleeps through the end of its call, to act while a guard looks at something else."""
        mark = f"sbx-test-{os.getpid()}-later"
        later = f"kill -STOP $$; echo {mark}; touch later"
        leaves = f"setsid sh -c '{later}' & p=$!; setsid sh -c \"sleep 3; kill -CONT $p; : {mark}\" & sleep 0.2"
        await bench.one("postToolCall", leaves, timeout=LONG).post_tool_call(call(), "o", False)
        alive = [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in _command_line(pid)]
        assert alive == []
        assert not (bench.workspace / "later").exists()

    async def test_nobody_attaches_to_a_guard_in_its_first_milliseconds(self, bench, call):
        """A process of the owner's tries every number that the next processes can have, while guards start."""
        bench.script("attack.py", ATTACK)
        attack = f"python3 {bench.config}/attack.py {bench.workspace}"
        attacker = asyncio.create_task(
            bench.one("postToolCall", attack, timeout=LONG).post_tool_call(call(), "o", False)
        )
        while not (bench.workspace / "ready").exists():
            await asyncio.sleep(0)
        guards = bench.one("preToolCall", 'echo $$ >> "$TMPDIR/pids"; exit 2', timeout=LONG)
        tried: set[str] = set()
        pids: set[str] = set()
        for _ in range(400):
            assert (await guards.pre_tool_call(call())).denied is not None
            pids = set((bench.root / "guard-tmp" / "pids").read_text().split())
            tried = set((bench.workspace / "refused").read_text().split())
            if len(pids) >= 40 and pids & tried:
                break
        (bench.workspace / "stop").touch()
        await attacker
        assert pids & tried, "no guard was ever tried"
        assert not pids & set((bench.workspace / "opened").read_text().split())


ATTACK = """
import os, sys
os.chdir(sys.argv[1])
refused = open("refused", "a", 1)
opened = open("opened", "a", 1)
me = os.getpid()
seen = set()
open("ready", "w").close()
while not os.path.exists("stop"):
    last = int(open("/proc/loadavg").read().split()[-1])
    for pid in range(last - 6, last + 4):
        if pid == me:
            continue
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        except PermissionError:
            if pid not in seen:
                seen.add(pid)
                refused.write(f"{pid}\\n")
        except OSError:
            continue
        else:
            opened.write(f"{pid}\\n")
"""


def _command_line(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
