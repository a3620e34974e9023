"""The built-in tools, as the model uses them."""

from __future__ import annotations

import os
import time

import pytest

pytestmark = pytest.mark.engine


def test_bash_tells_output_errors_and_the_exit_code(any_owner):
    told = any_owner.tool("bash", command="echo out; echo err >&2; exit 3")
    assert told["output"] == "out\n[stderr]\nerr\n[exit code 3]"
    assert told["is_error"]
    assert told["data"]["exit"] == 3


def test_bash_that_says_nothing_says_so(sandbox):
    assert sandbox.tool("bash", command="true")["output"] == "[no output]"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("kill -SEGV $$", "[was ended by SIGSEGV]"),
        ("kill -KILL $$", "[was killed by SIGKILL, not by us]"),
        ("sleep 100 &", "[1 background process was ended]"),
        ("sleep 100 & sleep 100 & exit 4", "[exit code 4; 2 background processes were ended]"),
        ("bash -c 'kill -TERM $$'; exit $?", "[exit code 143 (a process of it was ended by SIGTERM)]"),
    ],
)
def test_bash_puts_the_end_in_words(sandbox, command, told):
    assert sandbox.tool("bash", command=command)["output"].endswith(told)


def test_bash_tells_a_timeout(sandbox):
    told = sandbox.tool("bash", command="echo begun; sleep 100", timeout=0.3)
    assert told["output"] == "begun\n[timed out after 0.3 s and was ended with everything it started]"
    assert told["is_error"]
    assert told["data"]["timed_out"]


def test_bash_runs_in_the_workspace_or_in_the_folder_that_is_named(sandbox):
    sandbox.out("mkdir -p inner")
    assert sandbox.tool("bash", command="pwd")["output"] == str(sandbox.workspace)
    assert sandbox.tool("bash", command="pwd", cwd="inner")["output"] == f"{sandbox.workspace}/inner"
    assert sandbox.tool("bash", command="pwd", cwd="/usr")["output"] == "/usr"
    assert sandbox.tool("bash", command="pwd", cwd="none")["output"] == (
        f"[could not be run: {sandbox.workspace}/none: not found]"
    )


def test_what_bash_cuts_is_in_a_file_that_read_file_opens(sandbox):
    told = sandbox.tool("bash", command="seq 100000")
    path = told["data"]["stdout"]["path"]
    assert told["data"]["stdout"]["size"] == 588_895
    assert f"of 588,895 bytes left out here; the whole output is in {path} …]" in told["output"]
    assert told["output"].startswith("1\n2\n")
    assert told["output"].endswith("\n100000")
    assert sandbox.tool("read_file", path=path, offset=50_000, limit=2)["output"].startswith("50000\n50001\n")


def test_nothing_waits_for_a_person(sandbox):
    script = (
        "git commit -e --allow-empty -m x; read line; git log; git clone http://127.0.0.1:1/x; echo $PAGER $CI $TERM"
    )
    told = sandbox.tool("bash", command=f"git init -q r && cd r && {{ {script}; }}", timeout=15)
    assert not told["data"].get("timed_out")
    assert "cat true dumb" in told["output"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'command' is missing"),
        ({"command": ["ls"]}, "'command' must be a string, not list"),
        ({"command": "ls", "timeout": 0}, "'timeout' must be from"),
        ({"command": "ls", "timeout": 4000}, "'timeout' must be from"),
        ({"command": "ls", "timeout": "soon"}, "'timeout' must be a number"),
        ({"command": "ls", "cmd": "ls"}, "unknown argument 'cmd'; there are: command, timeout, cwd, background"),
        ({"command": "a\0b"}, "NUL"),
    ],
)
def test_wrong_arguments_tell_the_model_what_is_right(sandbox, arguments, told):
    answer = sandbox.tool("bash", **arguments)
    assert answer["is_error"]
    assert told in answer["output"]


def test_a_background_job_is_seen_and_stopped_with_all_it_started(fresh):
    assert (
        fresh.tool("bash", command="echo up; setsid sleep 1000 & sleep 1000", background=True)["data"]["job"] == "job1"
    )
    while "up" not in fresh.tool("output", job="job1")["output"]:
        pass
    assert fresh.tool("jobs")["output"].startswith("job1  running  echo up;")
    assert fresh.tool("output", job="job1")["output"] == "up\n[running]"
    assert fresh.tool("stop", job="job1")["output"] == "job1 was ended with everything it started."
    assert fresh.of_tools() == []
    assert fresh.tool("stop", job="job1")["output"] == "job1 was over already: was ended before it finished."
    assert fresh.tool("bash", command="exit 5", background="true")["data"]["job"] == "job2"
    assert fresh.tool("output", job="job2", wait=10)["output"] == "[exit code 5]"
    assert "there are: job1, job2" in fresh.tool("stop", job="job7")["output"]


# ---- files


def write(sandbox, name, data):
    path = sandbox.workspace / name
    path.write_bytes(data)
    os.chown(path, sandbox.uid, sandbox.uid)
    return path


def test_read_file_returns_lines_and_says_how_to_go_on(any_owner):
    write(any_owner, "lines.txt", b"".join(b"line %d\n" % n for n in range(1, 11)))
    assert any_owner.tool("read_file", path="lines.txt", offset=3, limit=2)["output"] == (
        "line 3\nline 4\n[lines 3 to 4 of 10; go on with offset 5]"
    )
    assert any_owner.tool("read_file", path="lines.txt", offset=9)["output"] == "line 9\nline 10\n[lines 9 to 10 of 10]"
    assert "has only 10 lines" in any_owner.tool("read_file", path="lines.txt", offset=11)["output"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", "[the file is empty]"),
        (b"no end", "no end"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"\xef\xbb\xbfmark\n", "mark"),
        ("ä€😀".encode("utf-16"), "ä€😀"),
        (b"latin \xe4\n", "latin �"),
        (b"x" * 3000, "x" * 2000 + " [… line cut]\n[1 long lines were cut at 2000 characters]"),
    ],
)
def test_read_file_shows_any_text(sandbox, data, shown):
    write(sandbox, "any.txt", data)
    assert sandbox.tool("read_file", path="any.txt")["output"] == shown


def test_read_file_refuses_what_is_no_text_and_never_hangs(sandbox):
    write(sandbox, "binary", b"\x7fELF\0\0")
    sandbox.out("rm -f pipe; mkfifo pipe; mkdir -p folder")
    assert "is a binary file of 6 bytes" in sandbox.tool("read_file", path="binary")["output"]
    assert "is not a regular file" in sandbox.tool("read_file", path="pipe")["output"]
    assert "is a folder; use list_files" in sandbox.tool("read_file", path="folder")["output"]
    assert "permission denied" in sandbox.tool("read_file", path="/etc/shadow")["output"]
    assert "Near names in that folder: here.txt" in sandbox.tool("read_file", path="here.tx")["output"]


def test_read_file_takes_a_little_of_a_huge_file_quickly(sandbox):
    sandbox.out("head -c 100000000 /dev/zero | tr '\\0' z > huge.txt")
    told = sandbox.tool("read_file", path="huge.txt")
    assert told["output"].startswith("z" * 2000 + " [… line cut]")
    sandbox.out("rm huge.txt")


def test_write_file_makes_folders_keeps_the_mode_and_goes_through_a_link(any_owner):
    told = any_owner.tool("write_file", path="new/deep/a.txt", content="one\ntwo")
    assert told["output"] == f"Created {any_owner.workspace}/new/deep/a.txt: 2 lines, 7 bytes."
    made = any_owner.workspace / "new/deep/a.txt"
    assert (made.read_bytes(), made.stat().st_uid) == (b"one\ntwo", any_owner.uid)
    any_owner.out("chmod 750 new/deep/a.txt; ln -sfn a.txt new/deep/link; ln -f new/deep/a.txt new/deep/hard")
    assert any_owner.tool("write_file", path="new/deep/link", content="x\n")["output"].startswith("Replaced ")
    assert (made.read_bytes(), made.stat().st_mode & 0o777) == (b"x\n", 0o750)
    assert (made.parent / "hard").read_bytes() == b"x\n"
    assert (made.parent / "link").is_symlink()
    assert sorted(path.name for path in made.parent.iterdir()) == ["a.txt", "hard", "link"]


@pytest.mark.parametrize("path", ["/etc/passwd", "/opt/sbx/lib/runner/x.py", "/run/sbx/x", "/tmp/sbx-output/x"])
def test_write_file_writes_nothing_that_the_owner_may_not(any_owner, path):
    told = any_owner.tool("write_file", path=path, content="x")
    assert told["is_error"]
    assert any(word in told["output"] for word in ("permission denied", "read-only file system"))


def test_edit_file_changes_one_place_and_shows_the_difference(any_owner):
    path = write(any_owner, "e.txt", b"".join(b"line %d\n" % n for n in range(1, 10)))
    path.chmod(0o640)
    told = any_owner.tool("edit_file", path="e.txt", old="line 5\n", new="five\nand more\n")
    assert told["output"] == (
        f"Edited {path} in 1 place.\n@@ -2,7 +2,8 @@\n line 2\n line 3\n line 4\n-line 5\n+five\n+and more\n"
        " line 6\n line 7\n line 8"
    )
    assert path.read_bytes() == b"line 1\nline 2\nline 3\nline 4\nfive\nand more\nline 6\nline 7\nline 8\nline 9\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_edit_file_tells_why_nothing_was_changed(sandbox):
    path = write(sandbox, "e.py", b"def one():\n\treturn 1\n\ndef two():\n\treturn 1\n")
    before = path.read_bytes()
    many = sandbox.tool("edit_file", path="e.py", old="return 1", new="return 2")
    assert "is there 2 times (lines 2, 5)" in many["output"]
    space = sandbox.tool("edit_file", path="e.py", old="def two():\n    return 1", new="x")
    assert "with other white space; copy it exactly:\n4: def two():\n5: \treturn 1" in space["output"]
    near = sandbox.tool("edit_file", path="e.py", old="def twoo():", new="x")
    assert "nearest lines are:\n4: def two():" in near["output"]
    assert "is empty" in sandbox.tool("edit_file", path="e.py", old="", new="x")["output"]
    assert "the same" in sandbox.tool("edit_file", path="e.py", old="def one", new="def one")["output"]
    assert path.read_bytes() == before
    assert sandbox.tool("edit_file", path="e.py", old="return 1", new="return 2", all="true")["data"]["count"] == 2
    assert path.read_bytes() == b"def one():\n\treturn 2\n\ndef two():\n\treturn 2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nX\r\nY\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\nc", b"\xef\xbb\xbfa\nX\nY\nc"),
        (b"\xff\xfe" + "a\nb\nc\n".encode("utf-16-le"), b"\xff\xfe" + "a\nX\nY\nc\n".encode("utf-16-le")),
        (b"\xe4\xff a\nb\nc\xfe", b"\xe4\xff a\nX\nY\nc\xfe"),
    ],
    ids=["crlf", "mark", "utf-16", "no utf-8"],
)
def test_edit_file_keeps_line_ends_encoding_and_all_other_bytes(sandbox, before, after):
    path = write(sandbox, "kept", before)
    told = sandbox.tool("edit_file", path="kept", old="b\n", new="X\nY\n")
    assert not told["is_error"], told
    assert path.read_bytes() == after


def test_edit_file_on_10_mib_takes_less_than_a_tenth_of_a_second_or_so(sandbox):
    write(sandbox, "big.txt", b"some line of text\n" * 600_000 + b"the end\n")
    told = sandbox.tool("edit_file", path="big.txt", old="the end", new="over")
    assert told["output"].startswith(f"Edited {sandbox.workspace}/big.txt in 1 place.\n@@ -599998,4 +599998,4 @@\n")
    assert told["data"]["ms"] < 500  # the bound of 100 ms is the benchmark's; this machine is shared
    sandbox.out("rm big.txt")


def test_list_files_shows_kinds_and_odd_names_on_one_line_each(sandbox):
    sandbox.out(
        r"""rm -rf l; mkdir -p l/d/.git; cd l; printf 12345 > f; ln -s f s; mkfifo p; touch $'new\nline' d/x.py"""
    )
    assert sandbox.tool("list_files", path="l")["output"] == (
        "d/\nf  5 B\nnew\\nline  0 B\np  (not a regular file)\ns -> f"
    )
    assert sandbox.tool("list_files", path="l", pattern="*.py")["output"] == "d/x.py  0 B\n[d/.git/ is not listed]"
    assert "is a file; use read_file" in sandbox.tool("list_files", path="l/f")["output"]


def test_list_files_bounds_a_folder_of_many(sandbox):
    sandbox.out("mkdir -p many && cd many && seq -f %06.0f 2000 | xargs touch")
    told = sandbox.tool("list_files", path="many")
    assert told["output"].startswith("000001  0 B\n")
    assert told["output"].endswith("[… 1,500 more of 2,000; name a folder or a pattern]")


@pytest.mark.parametrize("ripgrep", [True, False], ids=["ripgrep", "without"])
def test_search_finds_lines_with_and_without_ripgrep(sandbox, ripgrep):
    sandbox.out(
        "rm -rf s; mkdir -p s/.git s/b; echo 'Needle one' > s/b/a.py; echo 'a needle' > s/c.txt; cp s/c.txt s/.git/x"
    )
    search = (lambda **a: sandbox.tool("search", **a)) if ripgrep else (lambda **a: sandbox.tool("search_plain", **a))
    assert search(pattern="needle", path="s")["output"].splitlines() == [f"{'s/' if ripgrep else ''}c.txt:1:a needle"]
    both = search(pattern="n[e]+dle", path="s", ignore_case=True)["output"].splitlines()
    assert [line.removeprefix("s/") for line in both] == ["b/a.py:1:Needle one", "c.txt:1:a needle"]
    assert search(pattern="needle", path="s", glob="*.py")["output"] == "[no match]"
    assert search(pattern="needle(", path="s")["is_error"]
    assert search(pattern="x", path="nowhere")["is_error"]


def test_search_bounds_what_it_shows(sandbox):
    sandbox.out("seq -f 'match %.0f' 1000 > matches.txt")
    told = sandbox.tool("search", pattern="^match", path="matches.txt")["output"]
    assert told.endswith("[… 800 more of 1,000 matches; make the pattern narrower]")
    assert told.count("\n") == 200
    sandbox.out("rm matches.txt")


def test_a_hostile_workspace_plants_nothing_in_the_file_tools(any_owner):
    names = ("json", "os", "re", "difflib", "stat", "sitecustomize", "usercustomize", "encodings")
    any_owner.out(f'for n in {" ".join(names)}; do echo \'open("planted", "w")\' > $n.py; done; mkdir -p ~/.local/lib')
    told = any_owner.tool("read_file", path="here.txt")
    assert told["output"] == "hello"
    assert not (any_owner.workspace / "planted").exists()
    any_owner.out(f"rm {' '.join(name + '.py' for name in names)}")


def test_file_tools_are_quick(sandbox):
    sandbox.tool("read_file", path="here.txt")
    began = time.monotonic()
    for _ in range(10):
        sandbox.tool("read_file", path="here.txt")
    assert time.monotonic() - began < 2.0


def test_plan_shows_the_steps_and_takes_plain_strings(sandbox):
    steps = [{"step": "look", "status": "done"}, {"step": "do", "status": "in_progress"}, "tell"]
    assert sandbox.tool("plan", steps=steps)["output"] == "[x] look\n[>] do\n[ ] tell"
    assert sandbox.tool("plan", steps=[{"step": 3}])["is_error"]
    assert sandbox.tool("plan", steps="do it")["is_error"]
