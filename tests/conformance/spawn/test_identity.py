"""Nobody below the guest can reach it, whoever owns the workspace: root, the image's user, a uid without a name."""

from __future__ import annotations

import os
import re

import pytest

from tests.conformance.spawn.conftest import until

pytestmark = pytest.mark.engine

NOTHING = "0000000000000000"
ATTACK = r"""
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
def attempt(what, action):
    try:
        action()
    except OSError:
        return
    print("BREACH", what)
def failing(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def opened(path, flags):
    os.read(os.open(path, flags), 1)
# A child that waits for an order is the guest's until it gets one; one of them has become this process.
targets = [int(pid) for pid in sys.argv[1:] if int(pid) != os.getpid()]
assert targets
for pid in targets:
    for number in (0, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        attempt(f"signal {number} to {pid}", lambda: os.kill(pid, number))
    if pid != 1:  # which would mean "everybody"
        attempt(f"group {pid}", lambda: os.killpg(pid, signal.SIGTERM))
    for name in ("environ", "mem", "maps", "auxv", "stack", "syscall", "pagemap", "personality"):
        attempt(f"read {name} of {pid}", lambda: opened(f"/proc/{pid}/{name}", os.O_RDONLY))
    for name in ("mem", "oom_score_adj", "clear_refs", "coredump_filter", "comm"):
        attempt(f"write {name} of {pid}", lambda: os.write(os.open(f"/proc/{pid}/{name}", os.O_WRONLY), b"0"))
    for name in ("fd", "map_files", "fdinfo"):
        attempt(f"list {name} of {pid}", lambda: os.listdir(f"/proc/{pid}/{name}"))
    for fd in range(8):
        attempt(f"fd {fd} of {pid}", lambda: os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
    for name in ("exe", "cwd", "root"):
        attempt(f"link {name} of {pid}", lambda: os.readlink(f"/proc/{pid}/{name}"))
    attempt(f"seize {pid}", lambda: failing(libc.ptrace(0x4206, pid, 0, 0)))
    attempt(f"attach {pid}", lambda: failing(libc.ptrace(16, pid, 0, 0)))
    pidfd = os.pidfd_open(pid)
    attempt(f"pidfd_getfd {pid}", lambda: failing(libc.syscall(438, pidfd, 0, 0)))
    attempt(f"pidfd signal {pid}", lambda: signal.pidfd_send_signal(pidfd, signal.SIGTERM))
    attempt(f"limits of {pid}", lambda: failing(libc.prlimit(pid, 7, (ctypes.c_ulong * 2)(4, 4), None)))
    attempt(f"priority of {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
for number in {0, 64000, 64001} - {os.getuid()}:
    attempt(f"uid {number}", lambda: os.setuid(number))
    attempt(f"gid {number}", lambda: os.setgid(number))
attempt("groups", lambda: os.setgroups([0]))
print("done")
"""


def guests(sandbox):
    return [str(process["pid"]) for process in sandbox.processes() if process["uid"] == 64000]


def test_the_guest_is_pid_1_with_four_capabilities_and_no_others(any_owner):
    (guest,) = [process for process in any_owner.processes() if process["pid"] == 1]
    four = f"{1 << 5 | 1 << 6 | 1 << 7 | 1 << 8:016x}"  # KILL, SETGID, SETUID, SETPCAP
    assert guest["uid"] == 64000
    assert (guest["CapPrm"], guest["CapEff"], guest["CapBnd"]) == (four, four, four)
    assert (guest["CapInh"], guest["CapAmb"], guest["NoNewPrivs"]) == (NOTHING, NOTHING, "1")


@pytest.mark.parametrize("identity", ["owner", "hook"])
def test_a_started_process_has_its_identity_and_not_one_capability(any_owner, identity):
    uid = any_owner.uid if identity == "owner" else 64001
    status = any_owner.out("cat /proc/self/status", identity=identity, fallback_cwd="/")
    fields = dict(re.findall(r"^(\w+):\t(.*)$", status, re.M))
    assert fields["Uid"].split() == [str(uid)] * 4
    assert fields["Gid"].split() == [str(uid)] * 4
    assert fields["Groups"].strip() == ""
    assert {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {NOTHING}
    assert fields["NoNewPrivs"] == "1"
    assert fields["SigIgn"] == NOTHING
    assert fields["SigBlk"] == NOTHING


@pytest.mark.parametrize("identity", ["owner", "hook"])
def test_no_attack_reaches_the_guest_its_server_or_a_supervisor(any_owner, identity):
    attack = {"argv": ["python3", "-I", "-c", ATTACK, *guests(any_owner)], "identity": identity, "fallback_cwd": "/"}
    result = any_owner.ask("run", **attack)
    assert result["stdout"]["data"] == "done\n", result
    assert any_owner.out("echo alive") == "alive\n"


def test_a_tool_cannot_reach_a_waiting_guard(any_owner):
    guard = any_owner.order(
        "run", script="echo up > /tmp/sbx-hook/up; exec sleep 60", identity="hook", fallback_cwd="/"
    )
    until(lambda: any(p["name"] == "sleep" for p in any_owner.of_tools()))
    seen = [p["pid"] for p in any_owner.of_tools()]
    result = any_owner.ask("run", argv=["python3", "-I", "-c", ATTACK, *map(str, seen)])
    assert result["stdout"]["data"] == "done\n", result
    any_owner.ask("cancel", task=guard)
    assert any_owner.answer(guard) == {"id": guard, "cancelled": True}


def test_the_program_and_the_root_cannot_be_written(any_owner):
    script = """
    for target in /opt/sbx/lib/runner/guest/entry.py /opt/sbx/lib/new /run/sbx/new /run/sbx/empty/new /etc/new \
                  /tmp/sbx-output/new /tmp/sbx-hook/new /var/lib/extrausers/passwd; do
        (echo x >> $target) 2>/dev/null && echo "written: $target"
    done
    mv /tmp/sbx-output /tmp/other 2>/dev/null && echo moved
    rmdir /tmp/sbx-hook 2>/dev/null && echo removed
    chmod 777 /run/sbx /tmp/sbx-output 2>/dev/null && echo opened
    true"""
    assert any_owner.out(script) == ""


def test_a_signal_to_everybody_ends_only_what_belongs_to_the_same_uid(any_owner):
    guard = any_owner.order("run", script="sleep 0.5; echo decided", identity="hook", fallback_cwd="/")
    any_owner.run("kill -KILL -1")
    assert any_owner.answer(guard)["value"]["stdout"]["data"] == "decided\n"


def test_devices_cannot_be_replaced_or_closed(any_owner):
    """A guard that reads /dev/stdin must read what the guest wrote, whoever owns the workspace."""
    script = """
    for name in null stdin stdout stderr fd urandom zero; do
        mv /dev/$name /dev/moved 2>/dev/null && echo "moved $name"
        ln -sfn /tmp/planted /dev/$name 2>/dev/null && echo "planted $name"
        chmod 0 /dev/$name 2>/dev/null && echo "closed $name"
    done
    touch /dev/new /etc/hosts /etc/resolv.conf /etc/hostname 2>/dev/null && echo touched
    true"""
    assert any_owner.out(script) == ""


def test_a_guard_writes_nothing_but_its_own_folder(any_owner):
    script = """
    for target in $0/new /home/agent/new /run/sbx/new /tmp/sbx-output/new; do
        (echo x > $target) 2>/dev/null && echo "written: $target"
    done
    echo x > /tmp/sbx-hook/mine && cat /tmp/sbx-hook/mine"""
    argv = ["bash", "-c", script, str(any_owner.workspace)]
    result = any_owner.ask("run", argv=argv, identity="hook", fallback_cwd="/")
    assert result["stdout"]["data"] == "x\n"


def test_the_environment_is_what_was_given_and_nothing_else(any_owner):
    assert any_owner.ask("run", argv=["/usr/bin/env"], env={"ONE": "1", "TWO": "zwei ü"})["stdout"]["parts"][0] == (
        "ONE=1\nTWO=zwei ü\n"
    )


def test_a_started_process_holds_its_three_descriptors_only(any_owner):
    assert any_owner.out("exec ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_files_that_a_tool_makes_belong_to_the_owner_of_the_workspace(any_owner):
    any_owner.out("echo x > made.txt; mkdir -p d")
    made = os.stat(any_owner.workspace / "made.txt")
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (any_owner.uid, any_owner.uid, 0o644)


def test_the_home_belongs_to_the_owner(any_owner):
    found = any_owner.out("stat -c %u:%g ~ ~/.bashrc; echo x > ~/new && echo written")
    assert found == f"{any_owner.uid}:{any_owner.uid}\n" * 2 + "written\n"


def test_every_identity_has_a_name(any_owner):
    name = {0: "root", 1000: "agent", 1001: "owner"}[any_owner.uid]
    assert any_owner.out("id -un; echo $USER") == f"{name}\n{name}\n"
    assert any_owner.out("id -un", identity="hook", fallback_cwd="/") == "sbx-hook\n"
    assert any_owner.ask("own")["owner"] == [any_owner.uid, any_owner.uid, name]


def test_git_takes_exactly_the_workspace_as_safe(any_owner):
    assert any_owner.out("git config --get-all safe.directory") == f"{any_owner.workspace}\n"


def test_no_set_uid_program_gives_anything(any_owner):
    script = "cp /bin/bash ./b && chmod 4755 ./b && ./b -p -c 'id -u'; rm -f ./b; grep CapEff /proc/self/status"
    assert any_owner.out(script).split() == [str(any_owner.uid), "CapEff:", NOTHING]
