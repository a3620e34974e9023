"""What a command prints arrives exactly, or what is missing is told."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.engine


def stream(text: str) -> dict:
    return {"data": text, "size": len(text), "truncated": False, "head": len(text)}


def test_bytes_arrive_as_they_are(sandbox):
    result = sandbox.run(r"printf 'a\0b\r\n\033[31m\377\303'; printf 'no newline' >&2")
    assert stream("a\0b\r\n\x1b[31m\xff\xc3").items() <= result["stdout"].items()
    assert stream("no newline").items() <= result["stderr"].items()


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_up_to_the_limit_nothing_is_cut(sandbox, size):
    assert (
        stream("x" * size).items()
        <= sandbox.run(f"head -c {size} /dev/zero | tr '\\0' x", limit=1000)["stdout"].items()
    )


def test_beyond_the_limit_head_and_tail_are_kept_and_the_size_is_true(sandbox):
    out = sandbox.run("echo begin; head -c 3000000 /dev/zero; echo end; echo small >&2", limit=1000)
    assert out["stdout"]["size"] == 3_000_010
    assert out["stdout"]["truncated"]
    assert out["stdout"]["data"].startswith("begin\n\0")
    assert out["stdout"]["data"].endswith("\0end\n")
    assert (len(out["stdout"]["data"]), out["stdout"]["head"]) == (1000, 500)
    assert out["stderr"]["data"] == "small\n"


def test_one_byte_over_the_limit_loses_exactly_that_byte(sandbox):
    out = sandbox.run("printf 0123456789A", limit=10)["stdout"]
    assert (out["data"], out["head"], out["size"], out["truncated"]) == ("012346789A", 5, 11, True)


def test_cuts_show_no_broken_character(sandbox):
    out = sandbox.run("for i in $(seq 1000); do printf 'ä€😀'; done", limit=1001)["stdout"]
    head, tail = out["parts"]
    assert "�" not in head + tail
    assert head == ("ä€😀" * 1000)[: len(head)]
    assert tail == ("ä€😀" * 1000)[-len(tail) :]
    assert len(head.encode()) > 497
    assert len(tail.encode()) > 496


def test_a_character_split_between_writes_is_whole(sandbox):
    assert sandbox.run(r"printf '\342\202'; sleep 0.05; printf '\254'")["stdout"]["parts"] == ["€", ""]


def test_a_line_of_64_mib_is_counted_and_kept_in_a_file_that_the_owner_can_read_and_not_write(sandbox):
    size = 64 * 1024 * 1024
    out = sandbox.run(f"head -c {size} /dev/zero | tr '\\0' y", limit=1000, spill={"name": "line"})["stdout"]
    assert (out["size"], out["kept"], out["path"]) == (size, size, "/tmp/sbx-output/line.stdout")
    seen = sandbox.out("stat -c '%s %u %a' /tmp/sbx-output/line.stdout; tr -d y < /tmp/sbx-output/line.stdout | wc -c")
    assert seen == f"{size} 64000 644\n0\n"


def test_a_file_for_the_whole_ends_at_its_cap_and_the_count_goes_on(sandbox):
    out = sandbox.run("head -c 300000 /dev/zero", limit=10, spill={"name": "capped", "limit": 100_000})["stdout"]
    assert (out["size"], out["kept"]) == (300_000, 100_000)


def test_stdin_is_empty_unless_it_is_given(sandbox):
    assert sandbox.run("cat; echo over", timeout=5)["stdout"]["data"] == "over\n"
    given = "\0line\r\nlast" * 30_000
    assert sandbox.run("cat", input=given)["stdout"]["data"] == given


def test_a_command_that_does_not_read_its_stdin_is_no_error(sandbox):
    assert sandbox.run("exit 0", input="x" * 1_000_000)["code"] == 0


def test_dev_stderr_and_dev_stdout_can_be_opened(any_owner):
    result = any_owner.run("echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin", input="in")
    assert (result["stdout"]["data"], result["stderr"]["data"]) == ("out\nin", "err\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_is_told_as_one(sandbox, number):
    result = sandbox.run(f"kill -{int(number)} $$")
    assert (result["code"], result["signal"], result["oom"], result["killed"]) == (None, number, False, False)


@pytest.mark.parametrize("code", [0, 1, 127, 255])
def test_an_exit_code_is_told_as_one(sandbox, code):
    result = sandbox.run(f"exit {code}")
    assert (result["code"], result["signal"], result["error"]) == (code, None, "")


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"argv": ["no-such-program"]}, "no-such-program: not found"),
        ({"argv": ["/etc/hostname"]}, "/etc/hostname: permission denied"),
        ({"argv": ["/etc"]}, "/etc: permission denied"),
        ({"argv": ["ls"], "cwd": "/root"}, "/root: permission denied"),
        ({"argv": ["ls"], "cwd": "/nowhere"}, "/nowhere: not found"),
        ({"argv": ["echo", "x" * 200_000]}, "echo: argument list too long"),
        ({"argv": ["echo", *["x" * 100_000] * 60]}, "argument list too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_that_cannot_start_says_why(sandbox, order, error):
    result = sandbox.ask("run", **order)
    assert (result["code"], result["signal"], result["error"]) == (None, None, error)


def test_a_folder_that_cannot_be_entered_falls_back_when_that_is_asked_for(sandbox):
    assert sandbox.out("pwd", cwd="/root", fallback_cwd="/") == "/\n"


def test_resource_limits_hold(sandbox):
    assert sandbox.out("ulimit -Hn; ulimit -c", limits={"NOFILE": 33}) == "33\n0\n"


def test_a_terminal_belongs_to_the_owner_and_takes_input_and_sizes(any_owner):
    script = 'stty size; stat -c %u "$(tty)"; echo first; read x; stty size; echo second; read y; echo "got $y"; exit 3'
    steps = [["first", "resize", [40, 100]], ["second", "type", "hello\n"]]
    result = any_owner.ask("terminal", script=script, rows=30, columns=90, steps=steps)
    lines = result["shown"].replace("\r", "").split("\n")
    assert lines[:3] == ["30 90", str(any_owner.uid), "first"]
    assert "40 100" in lines
    assert "got hello" in lines
    assert result["code"] == 3


def test_ctrl_c_on_a_terminal_reaches_the_program_in_front(sandbox):
    steps = [["ready", "type", "\x03"]]
    result = sandbox.ask("terminal", script="echo ready; exec sleep 50", rows=10, columns=10, steps=steps)
    assert result["signal"] == signal.SIGINT
