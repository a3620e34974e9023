"""Startup commands that fail, that run as user 0, and that run on; published ports; hooks of kits and policy."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx
from tests.conformance.setup.conftest import HEAD, Kit

pytestmark = pytest.mark.engine

WAIT = 60.0
"""Seconds for a thing to come to be."""


def startup(*entries: str) -> str:
    return "setup:\n  startup:\n" + "".join(f"    - {entry}\n" for entry in entries)


FAILING = {
    "code": ("{command: [sh, -c, 'echo what went wrong; exit 3']}", "failed with code 3", "what went wrong"),
    "missing": ("{command: [no-such-program]}", "failed (not found)", ""),
    "signal": ("{command: [sh, -c, 'kill -9 $$']}", "ended by signal 9", ""),
    "user": ("{command: [id], user: nobody-knows}", "which the image does not have", ""),
    "reserved": ("{command: [id], user: '64000'}", "", "64000"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_command_that_fails_is_code_1_and_nothing_is_asked(sbx: Sbx, at_start: Kit, what: str) -> None:
    entry, reason, text = FAILING[what]
    at_start.spec(startup(entry))
    output, said, code = at_start.ask(sbx, "true")
    assert (code, output) == (1, "")
    assert reason in said
    assert text in said
    assert sbx.events("turn.start") == []
    assert at_start.ask(sbx, "echo ran", "--no-startup")[0].strip() == "ran"


def test_a_failing_background_command_is_a_warning(sbx: Sbx, at_start: Kit) -> None:
    at_start.spec(startup("{command: [sh, -c, 'echo bad luck; exit 4'], background: true}"))
    output, said, code = at_start.ask(sbx, "until [ -e done ]; do sleep 0.1; touch done; done; echo on")
    assert (code, output.strip()) == (0, "on")
    assert "failed with code 4" in said
    assert "bad luck" in said


def test_user_0_needs_the_grant_and_has_no_capability(sbx: Sbx, at_start: Kit) -> None:
    probe = (
        "id -u; grep CapEff /proc/self/status; cat /proc/1/environ; kill -9 1; touch /opt/sbx/x /run/sbx/x;"
        " chown 1000 /tmp/as-root; mv /dev/stdin /dev/x; ls /proc/1/fd; echo 1000 > /proc/1/oom_score_adj; true"
    )
    at_start.spec(startup(f"{{command: [sh, -c, '( {probe} ) > /tmp/as-root 2>&1'], user: '0'}}"))
    output, said, code = at_start.ask(sbx, "cat /tmp/as-root")
    assert (code, output) == (6, "")
    assert "--grant root-startup" in said
    output, said, code = at_start.ask(sbx, "cat /tmp/as-root; stat -c %u /tmp/as-root", "--grant", "root-startup")
    assert code == 0, said
    lines = output.splitlines()
    assert lines[0] == "0"
    assert lines[1].split() == ["CapEff:", "0000000000000000"]
    assert "startup: as user 0, without capabilities" in said
    refusals = "\n".join(lines[2:])
    for what in ("environ", "/opt/sbx/x", "/run/sbx/x", "/dev/x", "/proc/1/fd", "oom_score_adj"):
        assert re.search(rf"{re.escape(what)}.*(denied|not permitted|[Rr]ead-only)", refusals), (what, output)
    assert "not permitted" in refusals


def test_what_cannot_work_as_user_0_is_told_before(sbx: Sbx, at_start: Kit) -> None:
    at_start.spec(startup("{command: [sh, -c, 'apt-get update || true'], user: root}"))
    _, said, code = at_start.ask(sbx, "true", "--grant", "root-startup")
    assert code == 0
    assert "the startup command apt runs as user 0 without capabilities" in said


def test_startup_may_not_be_granted_against_a_policy(sbx: Sbx, at_start: Kit) -> None:
    folder = sbx.root / "config/sbx"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text("grants: {deny: [root-startup]}\n")
    at_start.spec(startup("{command: [id], user: '0'}"))
    assert at_start.ask(sbx, "true", "--grant", "root-startup")[2] == 6


# ---- ports

SERVER = """
ports: [{container: 8080, name: web}, {container: 5353, protocol: udp}]
setup:
  startup:
    - command: [python3, /home/agent/serve.py]
      background: true
  files:
    - path: /home/agent/serve.py
      content: |
        import socket, threading
        web = socket.create_server(("127.0.0.1", 8080))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 5353))
        def datagrams():
            while True:
                data, who = udp.recvfrom(65535)
                udp.sendto(data.upper(), who)
        threading.Thread(target=datagrams, daemon=True).start()
        open("/tmp/serving", "w").close()
        while True:
            client, _ = web.accept()
            data = b""
            while piece := client.recv(65536):
                data += piece
            client.sendall(data[::-1])
            client.close()
"""


@contextlib.contextmanager
def serving(sbx: Sbx, at_start: Kit, *options: str) -> Iterator[dict[int, int]]:
    """A run that goes on until the block ends: the host's ports by the container's."""
    command = "run until [ -e /tmp/serving ]; do sleep 0.05; done; touch ready; until [ -e done ]; do sleep 0.05; done"
    arguments = sbx.command("run", at_start.folder, at_start.work, "--demo", "-p", command, *options)
    process = subprocess.Popen(arguments, env=sbx.env(), cwd=sbx.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stderr
        ports: dict[int, int] = {}
        while line := process.stderr.readline().decode():
            if found := re.search(r"127\.0\.0\.1:(\d+) → (\d+)/", line):
                ports[int(found[2])] = int(found[1])
            if line.startswith("$ "):  # the tool call has begun
                break
        while not (at_start.work / "ready").exists():
            assert process.poll() is None
            os.sched_yield()
        yield ports
        (at_start.work / "done").touch()
        assert process.wait(WAIT) == 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT)


def test_published_ports_reach_the_sandbox_and_are_on_loopback_only(sbx: Sbx, at_start: Kit) -> None:
    at_start.spec(SERVER)
    with serving(sbx, at_start) as ports:
        with socket.create_connection(("127.0.0.1", ports[8080]), WAIT) as client:
            sent = bytes(range(256)) * 4096
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            received = b""
            while piece := client.recv(65536):
                received += piece
            assert received == sent[::-1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(WAIT)
            udp.connect(("127.0.0.1", ports[5353]))
            for datagram in (b"one", b"", b"x" * 60000):
                udp.send(datagram)
                assert udp.recv(65535) == datagram.upper()
        bound = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
        listening = [line.split()[1] for line in bound.splitlines()[1:] if line.split()[3] == "0A"]
        mine = [address for address in listening if int(address.split(":")[1], 16) == ports[8080]]
        assert mine == [f"0100007F:{ports[8080]:04X}"]
        with pytest.raises(OSError):
            socket.create_server(("127.0.0.1", ports[8080])).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[8080]), 5)


def test_a_port_that_is_taken_is_code_3(sbx: Sbx, at_start: Kit) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, said, code = at_start.ask(sbx, "true", "--publish", f"{taken.getsockname()[1]}:8080")
    assert code == 3
    assert "cannot be published" in said


@pytest.mark.parametrize("text", ["x", "0", "65536", "1:2:3", "0.0.0.0:1:2", "8080/icmp", ":"])
def test_a_wrong_port_is_code_2(sbx: Sbx, at_start: Kit, text: str) -> None:
    assert at_start.ask(sbx, "true", "--publish", text)[2] == 2


# ---- hooks

GUARD = 'grep -q "$1" && { echo "$2" >&2; exit 2; }; exit 0\n'


def hooks_yaml(name: str, word: str) -> str:
    return (
        f"preToolCall:\n  - name: {name}\n    onError: fail\n"
        f'    command: sh "$MM_CONFIG_DIR/guard.sh" {word} "{name} says no"\n'
    )


def test_a_mixins_hooks_guard_and_the_policys_come_last(sbx: Sbx, at_start: Kit) -> None:
    at_start.mixin("guarded", hooks_yaml=hooks_yaml("kit-guard", "forbidden"), guard_sh=GUARD)
    at_start.spec("", HEAD + "mixins: [../guarded]\n")
    assert at_start.ask(sbx, "echo forbid''den-not")[0].strip() == "forbidden-not"
    assert "[denied by a hook: kit-guard says no]" in at_start.ask(sbx, "echo forbidden")[0]
    folder = sbx.root / "config/sbx"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(
        "hooks:\n  required:\n    - event: preToolCall\n      name: policy-guard\n      onError: fail\n"
        "      command: grep -q touch && { echo the policy says no >&2; exit 2; }; exit 0\n"
    )
    option = "preToolCall=exit 0"
    output, said, code = at_start.ask(sbx, "touch x", "--hook", option)
    assert code == 0, said
    assert "the policy says no" in output
    assert not (at_start.work / "x").exists()
    order = [hook["name"] for hook in sbx.events("session.start")[0]["agent"]["hooks"]]
    assert (order[0], order[-1], len(order)) == ("kit-guard", "policy-guard", 3)


def test_a_tool_cannot_change_a_kits_hook(sbx: Sbx, at_start: Kit) -> None:
    mixin = at_start.mixin("guarded", hooks_yaml=hooks_yaml("kit-guard", "forbidden"), guard_sh=GUARD)
    at_start.spec("", HEAD + "mixins: [../guarded]\n")
    attack = "cd /run/sbx/kits/guarded; echo exit 0 > guard.sh; mv guard.sh x; rm -rf /run/sbx/kits; cat guard.sh"
    output, _, _ = at_start.ask(sbx, attack)
    assert GUARD in output
    assert Path(mixin / "guard.sh").read_text() == GUARD


def test_a_wrong_required_hook_is_code_2(sbx: Sbx, at_start: Kit) -> None:
    folder = sbx.root / "config/sbx"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text("hooks: {required: [{event: preTolCall, command: 'true'}]}\n")
    _, said, code = at_start.ask(sbx, "true")
    assert code == 2
    assert "preTolCall" in said
