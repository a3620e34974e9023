"""`sbx run --pool N` on a terminal: every /new is a fresh sandbox, and none is left at the end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

import pytest

from runner.scripted.server import ScriptedServer
from tests.conformance.batch.conftest import Batches, runs

pytestmark = pytest.mark.engine
WITHIN = 60.0


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.fd, child = pty.openpty()
        self.process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env, close_fds=True)
        os.close(child)
        self.text = ""

    def until(self, pattern: str, count: int = 1) -> None:
        end = time.monotonic() + WITHIN
        while len(re.findall(pattern, self.text)) < count:
            assert time.monotonic() < end, self.text[-3000:]
            if select.select([self.fd], [], [], 0.5)[0]:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")

    def type(self, line: str) -> None:
        os.write(self.fd, line.encode() + b"\r")


def test_each_new_conversation_has_a_fresh_sandbox_and_none_is_left(batches: Batches) -> None:
    command = "test -e ~/mark && echo seen before || echo quite fresh; touch ~/mark"
    with ScriptedServer(runs(command)) as server:
        arguments = ["run", batches.kit, batches.root / "work", "--pool", "1", "--base-url", server.url]
        terminal = Terminal(
            batches.sbx.command(*arguments, "--model", "m", "--yolo"), batches.sbx.env({"TERM": "xterm"})
        )
        terminal.until("/help|❯|>")
        for number in (1, 2):
            terminal.type("look")
            deadline = time.monotonic() + 60
            while len(server.chats) < 2 * number:
                assert time.monotonic() < deadline, "the question never reached the model"
                terminal.until("", 0)
                time.sleep(0.02)
            terminal.until("quite fresh", number)
            terminal.type("/new")
            terminal.until("fresh conversation|new conversation|/new", number)
        os.write(terminal.fd, b"\x04")
        assert terminal.process.wait(WITHIN) == 0, terminal.text[-3000:]
    os.close(terminal.fd)
    assert "seen before" not in terminal.text.replace("echo seen before", "")
    assert len(list(batches.sbx.sessions.iterdir())) == 3
    assert batches.left() == set()
