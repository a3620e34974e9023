"""`sbx batch` as a user runs it: one sandbox a line, one result a line, nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runner.scripted.answers import Answer, Pause, Raw, Reply, Say
from runner.scripted.request import Request
from runner.scripted.server import ScriptedServer
from tests.conformance.batch.conftest import Batches, parsed, runs, says
from tests.conformance.batch.socket_proxy import SocketProxy

pytestmark = pytest.mark.engine


def test_each_line_gets_what_it_asked_for_and_any_failure_is_code_7(batches: Batches) -> None:
    (batches.root / "a").mkdir()
    (batches.root / "a" / "todo.txt").write_text("milk\n")
    file = batches.file(
        {"id": "met", "prompt": "What is in ${what}?", "workspace": "a", "variables": {"what": "todo.txt"},
         "expect": "milk", "check": "test $what = todo.txt", "artifacts": {"todo.txt": "kept.txt"}},
        {"id": "unmet", "prompt": "hello", "workspace": "a", "expect": "jmespath:tool_calls[0]"},
        {"id": "late", "prompt": "hello", "workspace": "a", "timeout": 0.001},
    )  # fmt: skip
    done = batches(file, "-j", "3", "--junit", batches.root / "r.xml")
    results = parsed(done)
    assert done.code == 7, done.said
    assert {name: result["code"] for name, result in results.items()} == {"met": 0, "unmet": 7, "late": 124}
    assert "milk" in results["met"]["run"]["answer"]
    assert results["met"]["run"]["check"]["code"] == 0
    assert (batches.root / "kept.txt").read_text() == "milk\n"
    assert done.stderr.splitlines()[-1] == "1 ok, 2 failed"
    assert "3 lines work in" in done.stderr
    suite = ElementTree.parse(batches.root / "r.xml").getroot()[0]
    assert [len(case.findall("failure")) + len(case.findall("error")) for case in suite] == [0, 1, 1]
    assert batches.left() == set()


def test_every_line_has_a_sandbox_of_its_own_also_from_the_pool(batches: Batches) -> None:
    command = "cat /etc/hostname >> /tmp/seen; wc -l < /tmp/seen; test -e ~/mark && echo again; touch ~/mark"
    with ScriptedServer(runs(command)) as server:
        file = batches.file(*({"prompt": "look"} for _ in range(6)), own=False)
        done = batches(file, "-j", "2", "--pool", "2", "-q", server=server)
    assert done.code == 0, done.said
    assert [result["run"]["answer"].split() for result in parsed(done).values()] == [["1"]] * 6
    sandboxes = set()
    for record in batches.sbx.sessions.glob("*/record.jsonl"):
        first = json.loads(record.read_text().splitlines()[0])
        assert first["data"]["session"] == record.parent.name
        sandboxes.add(first["data"]["sandbox"])
    assert len(sandboxes) == 6
    assert done.stderr == ""
    assert batches.left() == set()


def test_at_most_four_are_being_made_at_once_and_an_engines_error_is_tried_again(
    batches: Batches, proxy: SocketProxy
) -> None:
    proxy.refuse = {"POST .*/containers/create": 1, "POST .*/start": 1}
    with ScriptedServer(says("done")) as server:
        file = batches.file(*({"prompt": "go"} for _ in range(8)))
        done = batches(file, "-j", "8", server=server, env={"DOCKER_HOST": proxy.url})
        assert len(server.chats) == 8  # what was tried again had not been asked
    assert done.code == 0, done.said
    assert proxy.seen["POST create"] == 10  # eight, one that was refused, one whose start was
    assert proxy.most["POST create"] + proxy.most["POST start"] > 1
    assert max(proxy.most["POST create"], proxy.most["POST start"]) <= 4
    assert sorted(result["attempts"] for result in parsed(done).values()) == [1] * 6 + [2] * 2
    assert batches.left() == set()


def test_a_sandbox_that_is_killed_from_outside_is_tried_again(batches: Batches) -> None:
    killed = threading.Event()

    def answer(request: Request) -> Answer:
        if not killed.is_set():
            (name,) = [n for n in batches.left() if len(n) == 64]
            batches.engine.request("POST", f"/containers/{name}/kill", doing="killing")
            killed.set()
            return Raw([Pause(30)])
        return Say("here again")

    with ScriptedServer(answer) as server:
        done = batches(batches.file({"prompt": "go"}), server=server)
    (result,) = parsed(done).values()
    assert (done.code, result["attempts"], result["run"]["answer"]) == (0, 2, "here again"), done.said


def test_a_model_that_fails_is_not_asked_again(batches: Batches) -> None:
    with ScriptedServer(lambda request: Reply(400, '{"error": {"message": "no"}}')) as server:
        done = batches(batches.file({"prompt": "go"}), server=server)
        assert len(server.chats) == 1
    (result,) = parsed(done).values()
    assert (done.code, result["code"], result["attempts"]) == (7, 1, 1)


def test_ctrl_c_ends_all_and_resume_runs_what_is_missing(batches: Batches) -> None:
    output = batches.root / "out.jsonl"
    hang = threading.Event()
    hang.set()

    def answer(request: Request) -> Answer:
        return Raw([Pause(60)]) if hang.is_set() and "hang" in request.question else Say("fine")

    with ScriptedServer(answer) as server:
        file = batches.file(*({"id": name, "prompt": name} for name in ("a", "hang-1", "hang-2", "b")))
        arguments = batches.arguments(file, "-j", "2", "--output", output, "--pool", "1", server=server)
        run = subprocess.Popen(
            batches.sbx.command(*arguments), env=batches.sbx.env(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        while sum("hang" in chat.question for chat in server.chats) < 2 and run.poll() is None:
            os.sched_yield()
        run.send_signal(signal.SIGINT)
        stdout, stderr = run.communicate(timeout=30)
        assert run.returncode == 130, stderr
        assert stdout == b""
        assert b"1 ok, 0 failed, 3 not run" in stderr
        assert b"Traceback" not in stderr
        assert batches.left() == set()
        assert [json.loads(line)["id"] for line in output.read_text().splitlines()] == ["a"]

        hang.clear()
        asked = len(server.chats)
        refused = batches(file, "--output", output, server=server)
        assert (refused.code, "--resume" in refused.stderr) == (2, True)
        with output.open("a") as torn:
            torn.write('{"id": "b", "co')
        done = batches(file, "--resume", output, server=server)
        assert done.code == 0, done.said
        assert len(server.chats) - asked == 3
        assert sorted(json.loads(line)["id"] for line in output.read_text().splitlines()) == [
            "a",
            "b",
            "hang-1",
            "hang-2",
        ]
        again = batches(file, "--resume", output, server=server)
        assert (again.code, len(server.chats) - asked) == (0, 3)


def test_fail_fast_ends_the_others(batches: Batches) -> None:
    running = threading.Event()

    def answer(request: Request) -> Answer:
        if "hang" in request.question:
            running.set()
            return Raw([Pause(60)])
        running.wait(30)
        return Reply(400, '{"error": {"message": "no"}}')

    with ScriptedServer(answer) as server:
        file = batches.file({"prompt": "hang"}, {"id": "bad", "prompt": "fail"}, {"prompt": "never"})
        done = batches(file, "-j", "2", "--fail-fast", server=server)
        assert not any("never" in chat.question for chat in server.chats)
    assert done.code == 7
    assert list(parsed(done)) == ["bad"]
    assert "0 ok, 1 failed, 2 not run" in done.stderr
    assert batches.left() == set()


def test_a_host_that_is_killed_leaves_no_sandbox_and_no_spare(batches: Batches) -> None:
    with ScriptedServer(lambda request: Raw([Pause(60)])) as server:
        file = batches.file(*({"prompt": "go"} for _ in range(4)))
        arguments = batches.arguments(file, "-j", "2", "--pool", "2", "-q", server=server)
        run = subprocess.Popen(batches.sbx.command(*arguments), env=batches.sbx.env(), stdout=subprocess.DEVNULL)
        while len(server.chats) < 2 and run.poll() is None:
            os.sched_yield()
        run.kill()
        run.wait()
    assert batches.left() != set()
    gone = threading.Event()
    for _ in range(150):
        if not batches.left():
            gone.set()
            break
        threading.Event().wait(0.1)
    assert gone.is_set(), batches.left()


def test_a_reader_that_goes_away_ends_the_batch_quietly(batches: Batches) -> None:
    file = batches.file(*({"prompt": "hello"} for _ in range(6)))
    command = " ".join(map(str, batches.sbx.command(*batches.arguments(file, "-j", "1", "-q"))))
    script = f"{command} | head -n 1 | wc -l; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=batches.sbx.env(), capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 7)
    assert len(list(batches.sbx.sessions.iterdir())) < 6
    assert batches.left() == set()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ({"promt": "x"}, 2, "batch.jsonl:2"),
        ({"prompt": "x", "kit": "hook-demo"}, 3, "line 2: "),
        ({"prompt": "x", "workspace": "missing"}, 2, "line 2: "),
        ({"prompt": "x", "expect": "("}, 2, "line 2: "),
        ({"prompt": "x", "kit": ""}, 0, ""),
    ],
    ids=["unknown key", "no such kit", "no such folder", "no regular expression", "empty is none"],
)
def test_a_mistake_in_one_line_starts_none(batches: Batches, line: dict[str, str], code: int, said: str) -> None:
    done = batches(batches.file({"prompt": "hello"}, line, own=False), cwd=batches.root / "work")
    assert done.code == code, done.said
    assert said in done.stderr
    assert batches.sbx.sessions.exists() == (code == 0)


def test_results_that_cannot_be_written_are_told_before_anything_starts(batches: Batches) -> None:
    done = batches(batches.file({"prompt": "x"}), "--output", batches.root / "no" / "out")
    assert (done.code, batches.sbx.sessions.exists()) == (2, False)
    done = batches(batches.file({"prompt": "x"}), "--junit", batches.root / "no" / "out.xml")
    assert (done.code, batches.sbx.sessions.exists()) == (2, False)
    done = batches(batches.file({"prompt": "x"}), "--resume", batches.root / "none.jsonl")
    assert (done.code, batches.sbx.sessions.exists()) == (2, False)


def test_yaml_from_a_file_and_lines_from_stdin(batches: Batches) -> None:
    path = batches.root / "b.yaml"
    path.write_text("- prompt: hello\n  workspace: work\n")
    assert batches(path).code == 0
    done = batches(Path("-"), "-q", stdin='{"prompt": "hello"}\n', cwd=batches.root / "work")
    assert (done.code, list(parsed(done))) == (0, ["1"])
