"""What the Python and shell hooks do beyond their samples."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ask, Run

SECONDS = 20.0
"""Bound of every wait here."""


def call(workspace: Path, arguments: dict[str, Any] | str, tool: str = "write") -> dict[str, Any]:
    if isinstance(arguments, str):
        tool, arguments = "bash", {"command": arguments}
    return {"event": "preToolCall", "cwd": str(workspace), "tool": {"id": "1", "name": tool, "input": arguments}}


# path_gate.py


SPELLINGS = [
    "old-drafts",
    "old-drafts/x",
    "./old-drafts//x",
    "new/../old-drafts/x",
    "link/x",
    "link/../old-drafts/x",
    "dangling",
    "chain/draft1.txt",
    "{workspace}/old-drafts/x",
]
"""Paths under `old-drafts`."""


def test_the_gate_sees_through_every_spelling_of_a_path(ask: Ask, workspace: Path) -> None:
    (workspace / "link").symlink_to("old-drafts")
    (workspace / "dangling").symlink_to("old-drafts/not-there-yet")
    (workspace / "chain").symlink_to(workspace / "link")
    events = [call(workspace, {"path": path.format(workspace=workspace)}) for path in SPELLINGS]
    for path, answer in zip(SPELLINGS, ask("path_gate.py", events, args=["old-drafts"]), strict=True):
        assert answer == {"action": "deny", "reason": "writes under old-drafts are not allowed"}, path


def test_a_link_out_of_a_closed_folder_is_judged_by_where_it_leads(run: Run, workspace: Path) -> None:
    (workspace / "old-drafts" / "out").symlink_to("..")
    assert run("path_gate.py", call(workspace, {"path": "old-drafts/out/notes.md"}), args=["old-drafts"]).answer == {}


def test_links_in_a_circle_are_denied(run: Run, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    answer = run("path_gate.py", call(workspace, {"path": "a/x"}), args=["old-drafts"]).answer
    assert answer["action"] == "deny"


COMMANDS = [
    ("tee old-drafts/x < notes.md", True),
    ("cp notes.md old-drafts", True),
    ("dd if=notes.md of=old-drafts/x", True),
    ("sh -c 'echo x > old-drafts/y'", True),
    ("bash <<'E'\necho x > old-drafts/y\nE", True),
    ("echo $(touch old-drafts/y)", True),
    ("cd old-drafts; echo x > y", True),
    ("mv old-drafts new", True),
    ('echo x > "old-drafts/$name"', True),
    ("cd $somewhere && touch x", True),
    ("for ((;;)); do :; done", True),
    ("ls old-drafts; cat old-drafts/draft1.txt", False),
    ("cp notes.md todo.bak", False),
    ("grep -c x notes.md > count.txt 2>/dev/null", False),
]
"""Shell commands, and whether they are denied with `old-drafts` closed."""


def test_the_gate_reads_shell_commands(ask: Ask, workspace: Path) -> None:
    answers = ask("path_gate.py", [call(workspace, command) for command, _ in COMMANDS], args=["old-drafts"])
    for (command, denied), answer in zip(COMMANDS, answers, strict=True):
        assert (answer.get("action") == "deny") is denied, command


# redact.py


@pytest.mark.parametrize("output", [["token=abc123456"], {"stdout": "token=abc123456", "code": 0}])
def test_redaction_reaches_into_outputs_of_any_shape(output: Any, run: Run, workspace: Path) -> None:
    answer = run("redact.py", {**call(workspace, "env"), "event": "postToolCall", "output": output}).answer
    assert "abc123456" not in json.dumps(answer)
    assert "[redacted: a secret]" in json.dumps(answer)


# budget.py


def test_a_turn_that_spent_its_seconds_is_ended(run: Run, workspace: Path) -> None:
    question = {"event": "preGeneration", "cwd": str(workspace), "prompt": "?", "session": "s1"}
    run("budget.py", question, args=["--seconds", "0.01"])
    answer = run("budget.py", {**call(workspace, "ls"), "session": "s1"}, args=["--seconds", "0.01"]).answer
    assert (answer["action"], answer["terminate"]) == ("deny", True)
    assert answer["reason"].startswith("the turn's budget is spent: ")


def test_a_new_question_starts_a_new_budget(run: Run, workspace: Path) -> None:
    question = {"event": "preGeneration", "cwd": str(workspace), "prompt": "?"}
    large = call(workspace, "echo " + "x" * 8000)
    run("budget.py", question, args=["--tokens", "1500"])
    assert "about" in run("budget.py", large, args=["--tokens", "1500"]).answer["reason"]
    run("budget.py", question, args=["--tokens", "1500"])
    assert run("budget.py", call(workspace, "ls"), args=["--tokens", "1500"]).answer == {}


@pytest.mark.parametrize("args", [[], ["--tokens", "0"], ["--seconds", "soon"], ["--minutes", "1"]])
def test_a_budget_that_is_none_fails(args: list[str], run: Run, workspace: Path) -> None:
    assert run("budget.py", call(workspace, "ls"), args=args).code != 0


# test_gate.py


def test_the_gate_lets_go_after_eight_failures_in_a_row(run: Run, workspace: Path) -> None:
    event = {"event": "stop", "cwd": str(workspace), "session": "s1"}
    answers = [run("test_gate.py", event, args=["--", "false"]).answer for _ in range(9)]
    assert [answer.get("decision") for answer in answers] == ["block"] * 8 + [None]


def test_tests_that_pass_start_the_count_again(run: Run, workspace: Path) -> None:
    event = {"event": "stop", "cwd": str(workspace), "session": "s1"}
    tests = ["--", "test", "-e", "done"]
    run("test_gate.py", event, args=tests)
    (workspace / "done").touch()
    assert run("test_gate.py", event, args=tests).answer == {}
    (workspace / "done").unlink()
    assert "(try 1 of 8)" in run("test_gate.py", event, args=tests).answer["reason"]


def test_tests_that_hang_are_ended(run: Run, workspace: Path) -> None:
    event = {"event": "stop", "cwd": str(workspace)}
    answer = run("test_gate.py", event, args=["--seconds", "0.2", "--", "sh", "-c", "sleep 60 & sleep 60"]).answer
    assert answer["reason"].startswith("The tests did not end within 0 seconds.")


# relay.py


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "s"))
        server.settimeout(SECONDS)
        server.listen(64)
        yield server


def received(server: socket.socket, count: int) -> list[dict[str, Any]]:
    events = []
    for _ in range(count):
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as file:
            events.append(json.loads(file.read()))
    return events


def test_events_reach_a_socket_in_order(run: Run, tmp_path: Path, listener: socket.socket) -> None:
    args = ["--spool", str(tmp_path / "spool"), f"unix:{tmp_path / 's'}"]
    for n in range(6):
        assert run("relay.py", {"event": "postToolCall", "n": n}, args=args).stdout in (b"", b"{}\n")
    assert [event["n"] for event in received(listener, 6)] == list(range(6))


def test_a_receiver_that_does_not_answer_holds_nobody_up(run: Run, tmp_path: Path, listener: socket.socket) -> None:
    # Nobody accepts: the first delivery ends in the listener's queue, and the hooks are done long before.
    args = ["--spool", str(tmp_path / "spool"), "http://127.0.0.1:9/"]
    start = time.monotonic()
    for n in range(3):
        run("relay.py", {"event": "postToolCall", "n": n}, args=args)
    assert time.monotonic() - start < SECONDS / 4


def test_what_waited_for_a_receiver_comes_first(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"
    args = ["--spool", str(tmp_path / "spool"), f"unix:{path}"]
    run("relay.py", {"event": "postToolCall", "n": 1}, args=args)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.settimeout(SECONDS)
        server.listen(8)
        run("relay.py", {"event": "postToolCall", "n": 2}, args=args)
        assert [event["n"] for event in received(server, 2)] == [1, 2]


def test_events_reach_a_url(run: Run, tmp_path: Path) -> None:
    bodies: list[bytes] = []
    done = threading.Event()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        args = ["--spool", str(tmp_path / "spool"), f"http://127.0.0.1:{server.server_port}/events"]
        run("relay.py", {"event": "postGeneration", "answer": "grün"}, args=args)
        assert done.wait(SECONDS)
        server.shutdown()
        thread.join()
    assert json.loads(bodies[0]) == {"event": "postGeneration", "answer": "grün"}


# protect-branch.sh, git-context.sh


@pytest.fixture
def repository(workspace: Path) -> Path:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    for command in (["init", "-q", "-b", "main"], ["add", "notes.md"]):
        subprocess.run(["git", *command], cwd=workspace, check=True, env=environment)
    return workspace


def test_no_commit_goes_to_main_and_any_to_another_branch(run: Run, repository: Path) -> None:
    commit = call(repository, "git add . && git -c user.name=x commit -m 'x'")
    reason = "commits to main are not allowed; make a branch first"
    assert run("protect-branch.sh", commit).answer == {"action": "deny", "reason": reason}
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    assert run("protect-branch.sh", commit).answer == {}


def test_git_context_names_the_branch_and_what_changed(run: Run, repository: Path) -> None:
    event = {"event": "preGeneration", "cwd": str(repository), "prompt": "?"}
    context = run("git-context.sh", event).answer["context"].splitlines()
    assert context[0] == "Git branch: main. Changed files: 3"
    assert context[1:] == ["A  notes.md", "?? old-drafts/", "?? todo.txt"]
