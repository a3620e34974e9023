"""After a call nothing of it is alive, whatever it did, and the guest goes on."""

from __future__ import annotations

import signal
import time

import pytest

from tests.conformance.spawn.conftest import PIDS, until

pytestmark = pytest.mark.engine

SCATTER = """
sleep 1000 &
setsid sleep 1001 &
(setsid bash -c 'trap "" TERM HUP INT; (sleep 1002 &) ; sleep 1003; true' &)
nohup sleep 1004 >/dev/null 2>&1 &
python3 -c '
import os, threading, time, ctypes
threading.Thread(target=time.sleep, args=(1005,)).start()
ctypes.CDLL(None).pthread_exit(0)' &
"""
LEFT = 7  # five sleeps, the bash around two of them, the python whose first thread is over


def test_everything_a_call_left_behind_is_ended_and_counted(sandbox):
    result = sandbox.run(SCATTER + "while [ $(grep -l sleep /proc/[0-9]*/comm 2>/dev/null | wc -l) -lt 5 ]; do :; done")
    assert (result["code"], result["ended"]) == (0, LEFT)
    assert sandbox.of_tools() == []


def test_a_timeout_ends_everything_within_a_second(sandbox):
    result = sandbox.run(SCATTER + "wait", timeout=1.0)
    assert result["timed_out"]
    assert result["seconds"] < 2.0
    assert (result["code"], result["signal"], result["killed"]) == (None, signal.SIGKILL, True)
    assert sandbox.of_tools() == []


def test_cancelling_ends_everything(sandbox):
    number = sandbox.order("run", script=SCATTER + "wait")
    until(lambda: len(sandbox.of_tools()) == LEFT + 1)
    sandbox.ask("cancel", task=number)
    assert sandbox.answer(number) == {"id": number, "cancelled": True}
    assert sandbox.of_tools() == []


def test_one_call_ending_leaves_another_alone(sandbox):
    other = sandbox.order("run", script="setsid sleep 0.6 & wait; echo whole")
    assert sandbox.run("sleep 50 & true")["ended"] == 1
    assert sandbox.answer(other)["value"]["stdout"]["data"] == "whole\n"


def test_a_background_child_that_holds_stdout_does_not_hold_the_call(sandbox):
    result = sandbox.run("sleep 1000 & echo done")
    assert (result["stdout"]["data"], result["ended"]) == ("done\n", 1)
    assert result["seconds"] < 1.0


def test_a_writer_that_ends_by_itself_is_waited_for_and_loses_nothing(sandbox):
    result = sandbox.run("exec > >(sleep 0.05; cat); seq 3")
    assert (result["stdout"]["data"], result["ended"]) == ("1\n2\n3\n", 0)


def test_a_fork_bomb_is_ended_and_the_next_call_works(sandbox):
    began = time.monotonic()
    result = sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 100", timeout=1.0)
    assert result["timed_out"] or result["code"] is not None
    assert time.monotonic() - began < 4.0
    assert sandbox.of_tools() == []
    assert sandbox.out("echo alive") == "alive\n"


def test_a_fork_bomb_that_resists_is_ended_too(sandbox):
    script = r"""
import os, signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            for pid in range(max(2, os.getpid() - 5), os.getpid()):
                try: os.kill(pid, signal.SIGCONT)
                except OSError: pass
    except OSError: pass
"""
    result = sandbox.ask("run", argv=["python3", "-I", "-c", script], timeout=1.0)
    assert result["timed_out"]
    assert result["seconds"] < 5.0
    assert sandbox.of_tools() == []


def test_at_the_limit_of_processes_a_call_fails_or_works_and_the_full_one_can_be_ended(sandbox):
    hog = sandbox.order("run", script="while :; do sleep 1000 & done", timeout=60)
    until(lambda: len(sandbox.processes()) >= PIDS - 1)
    results = [sandbox.run("echo in") for _ in range(6)]
    for result in results:
        assert result["stdout"]["data"] == "in\n" or "limit is reached" in result["error"] or result["code"] != 0
    sandbox.ask("cancel", task=hog)
    assert sandbox.answer(hog)["cancelled"]
    assert sandbox.of_tools() == []
    assert sandbox.out("echo alive") == "alive\n"


def test_forty_timeouts_in_a_row_leave_the_number_of_processes_as_it_was(sandbox):
    sandbox.out("true")
    orders = [sandbox.order("run", script="sleep 100 & sleep 100", timeout=0.2) for _ in range(40)]
    assert all(sandbox.answer(number)["value"]["timed_out"] for number in orders)
    assert sandbox.of_tools() == []
    until(lambda: len(sandbox.processes()) < 32)


def test_out_of_memory_is_named_and_the_guest_lives(sandbox):
    eat = "x = []\nwhile True: x.append(bytearray(1 << 24))"
    result = sandbox.ask("run", argv=["python3", "-c", eat])
    assert (result["oom"], result["signal"], result["killed"]) == (True, signal.SIGKILL, False)
    below = sandbox.run(f"python3 -c '{eat}'; exit $?")
    assert (below["oom"], below["code"]) == (True, 137)
    assert sandbox.run("exit 137")["oom"] is False
    told = sandbox.tool("bash", command=f"python3 -c '{eat}'; exit $?")
    assert "out of memory" in told["output"]


def test_a_full_tmp_fails_the_call_only(sandbox):
    result = sandbox.run("head -c 1G /dev/zero > /tmp/full")
    assert result["code"] == 1
    assert "No space left" in result["stderr"]["data"]
    full = sandbox.run("head -c 200000 /dev/zero", limit=1000, spill={"name": "while-full"})
    assert (full["code"], full["stdout"]["size"]) == (0, 200000)
    assert full["stdout"]["kept"] < 200000
    sandbox.out("rm /tmp/full")


def test_no_zombie_stays(sandbox):
    sandbox.run("for i in $(seq 20); do (sleep 0.01 &) ; done; true")
    assert [process for process in sandbox.processes() if process["state"] == "Z"] == []


def supervisor_of_three(sandbox):
    """The supervisor above a shell and its two sleeps, as soon as they are there."""
    until(lambda: [p["name"] for p in sandbox.of_tools()].count("sleep") == 2)
    tools = sandbox.of_tools()
    (supervisor,) = {p["ppid"] for p in tools} - {p["pid"] for p in tools}
    return supervisor


def test_a_dead_supervisor_fails_its_call_and_what_it_ran_is_ended(fresh):
    number = fresh.order("run", script="setsid sleep 1000 & sleep 1000; true")
    supervisor = supervisor_of_three(fresh)
    fresh.ask("shoot", pid=supervisor, signal=signal.SIGKILL)
    result = fresh.answer(number)["value"]
    assert (result["code"], result["error"], result["ended"]) == (None, "its supervisor was killed", 3)
    assert fresh.of_tools() == []
    assert fresh.out("echo alive") == "alive\n"


def test_a_dead_server_is_replaced_and_running_calls_go_on(fresh):
    number = fresh.order("run", script="echo up > up; sleep 0.8; echo whole")
    until((fresh.workspace / "up").exists)
    before = fresh.ask("own")["server"]
    fresh.ask("shoot", pid=before, signal=signal.SIGKILL)
    assert fresh.answer(number)["value"]["stdout"]["data"] == "whole\n"
    assert [fresh.out("echo alive") for _ in range(12)] == ["alive\n"] * 12
    assert fresh.ask("own")["server"] != before


def test_a_dead_supervisor_of_a_dead_server_leaves_nothing_either(fresh):
    number = fresh.order("run", script="setsid sleep 1000 & sleep 1000; true")
    supervisor = supervisor_of_three(fresh)
    fresh.ask("shoot", pid=fresh.ask("own")["server"], signal=signal.SIGKILL)
    until(lambda: fresh.run("true")["code"] == 0)
    fresh.ask("shoot", pid=supervisor, signal=signal.SIGKILL)
    assert fresh.answer(number)["value"]["error"] == "its supervisor was killed"
    assert fresh.of_tools() == []
