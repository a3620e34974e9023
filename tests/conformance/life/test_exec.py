"""`sbx exec` is a pipe to a command in the sandbox: nothing is added, lost or changed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.conformance.life.conftest import NAME
from tests.conformance.main.conftest import Sbx

pytestmark = pytest.mark.engine

WITHIN = 60.0


def popen(up: Sbx, *arguments: str, **streams: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(up.command(*arguments), env=up.env(), **streams)  # type: ignore[call-overload,no-any-return]


def test_every_byte_goes_in_and_comes_out_on_its_own_stream(up: Sbx) -> None:
    given = bytes(range(256)) * 3000 + b"no line end"
    process = popen(
        up,
        *("exec", NAME, "sh", "-c", "tee /dev/stderr"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(given, timeout=WITHIN)
    assert (out == given, err == given, process.returncode) == (True, True, 0)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)],
)
def test_the_code_is_the_commands(up: Sbx, script: str, code: int) -> None:
    assert up("exec", NAME, "sh", "-c", script).code == code


def test_a_command_that_cannot_be_started_is_told_as_a_shell_tells_it(up: Sbx) -> None:
    missing, no_program = up("exec", NAME, "no-such-command"), up("exec", NAME, "/etc/passwd")
    assert (missing.code, missing.stdout, no_program.code) == (127, "", 126)
    assert "not found" in missing.stderr


@pytest.mark.parametrize(
    "arguments",
    [("exec", "no-such-sandbox", "true"), ("exec", "-t", NAME, "true"), ("exec", "--no-such-option", NAME, "true")],
    ids=["no sandbox", "no terminal", "no such option"],
)
def test_what_is_not_the_commands_own_is_125(up: Sbx, arguments: tuple[str, ...]) -> None:
    done = up(*arguments)
    assert (done.code, done.stdout) == (125, "")
    assert done.stderr.startswith("error: ")


def test_the_command_has_no_right_beyond_the_workspaces_owner(up: Sbx) -> None:
    done = up("exec", NAME, "sh", "-c", "stat -c %u . ; id -u; grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status")
    owner, uid, *capabilities = done.stdout.split("\n", 2)
    assert owner == uid == str(os.getuid())
    assert [line.split()[1] for line in capabilities[0].splitlines()] == ["0" * 16] * 4


def test_variables_and_folder_are_as_asked_and_nothing_is_parsed(up: Sbx) -> None:
    done = up(
        *("exec", "-e", "A=x y", "-e", "FROM_HERE", "-w", "/tmp", NAME),
        *("sh", "-c", 'echo "$A|$FROM_HERE|$PWD|$1|$2"', "sh", "--json", "-e"),
        env={"FROM_HERE": "here"},
    )
    assert (done.stdout, done.code) == ("x y|here|/tmp|--json|-e\n", 0)


def test_a_reader_that_comes_late_gets_all_of_it(up: Sbx) -> None:
    size = 3_000_000
    process = popen(up, "exec", NAME, "sh", "-c", f"head -c {size} /dev/zero; touch written", stdout=subprocess.PIPE)
    # The pipes hold a fraction of it, so the command waits for its reader; a whole other command takes its time.
    assert up("exec", NAME, "true").code == 0
    out, _ = process.communicate(timeout=WITHIN)
    assert len(out) == size


def test_a_reader_that_goes_away_ends_the_command_without_a_word(up: Sbx) -> None:
    process = popen(up, "exec", NAME, "yes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.wait(WITHIN) == 128 + signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_signal_goes_to_the_command_and_its_code_comes_back(up: Sbx) -> None:
    script = 'trap "echo caught; exit 9" TERM; echo ready; while :; do sleep 0.05; done'
    process = popen(up, "exec", NAME, "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b"caught\n"
    assert process.wait(WITHIN) == 9
    process.stdout.close()


def test_what_a_killed_client_started_is_ended(up: Sbx) -> None:
    process = popen(up, "exec", NAME, "sh", "-c", "echo $$; exec sleep 1234", stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = process.stdout.readline().decode().strip()
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + WITHIN
    while up("exec", NAME, "test", "-e", f"/proc/{pid}").code == 0:
        assert time.monotonic() < deadline, "it still runs"


def test_a_terminal_has_the_windows_size_and_learns_of_a_new_one(up: Sbx) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    before = termios.tcgetattr(theirs)
    script = 'trap "stty size; exit 5" WINCH; stty size; while :; do sleep 0.05; done'
    process = popen(up, "exec", "-t", NAME, "sh", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs)
    seen = b""
    while b"33 101" not in seen:
        seen += os.read(ours, 1000)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 55, 0, 0))
    process.send_signal(signal.SIGWINCH)
    while b"44 55" not in seen:
        seen += os.read(ours, 1000)
    assert process.wait(WITHIN) == 5
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_an_idle_sandbox_is_started_for_the_command_and_stopped_again(sbx: Sbx, kit: Path, work: Path) -> None:
    assert sbx("create", kit, work, "--name", "life-tests-idle").code == 0
    try:
        assert sbx("exec", "life-tests-idle", "sh", "-c", "echo kept > ~/note; sleep 999 &").code == 0
        assert sbx("ls", "--format", "{{.name}} {{.state}}").stdout.splitlines().count("life-tests-idle exited") == 1
        said = sbx("exec", "life-tests-idle", "sh", "-c", "cat ~/note /proc/[0-9]*/comm").stdout.split()
        assert (said[0], "python3" in said, "sleep" in said) == ("kept", True, False)
    finally:
        assert sbx("rm", "life-tests-idle").code == 0


def test_a_shell_without_a_terminal_runs_the_script_on_stdin(up: Sbx) -> None:
    done = up("shell", NAME, stdin="echo $((6 * 7))\nexit 4\n")
    assert (done.stdout, done.code) == ("42\n", 4)
