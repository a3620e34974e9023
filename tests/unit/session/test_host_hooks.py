"""Hooks that the host runs for a guest: over a real wire, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runner.guest.hooks.host import HostHooks as GuestEnd
from runner.guest.hooks.host import OverTheWire
from runner.session.host_hooks import HostHooks
from runner.wire import messages as m
from runner.wire.agent import Hook
from runner.wire.mux import Mux
from runner.wire.pipes import PipeTransport

pytestmark = pytest.mark.asyncio


class Wire:
    """Both ends in one loop: what the guest asks, the host runs."""

    def __init__(self, hooks: list[Hook], environ: dict[str, str], workspace: str) -> None:
        ours, theirs = socket.socketpair()
        self._sockets = (ours, theirs)
        self.host: Mux[Any] = Mux(PipeTransport(ours.fileno(), ours.fileno()), m.decode_for_host, even=True)
        self.guest: Mux[Any] = Mux(PipeTransport(theirs.fileno(), theirs.fileno()), m.decode_for_guest, even=False)
        self.runner = HostHooks(hooks, b"", "/hooks", workspace, environ)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.over = OverTheWire(self.guest, self._task)
        self.asks = GuestEnd(self.over)

    def _task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Wire:
        self._task(self._serve_host())
        self._task(self._serve_guest())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.runner.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._sockets:
            each.close()

    async def _serve_host(self) -> None:
        async for message in self.host.run():
            if isinstance(message, m.HostHook):
                self.runner.take(message, self.host)

    async def _serve_guest(self) -> None:
        async for message in self.guest.run():
            if isinstance(message, m.HostHookDone):
                self.over.done(message)


def on_host(command: str, name: str = "h", event: str = "preToolCall", **keys: Any) -> Hook:
    return Hook(event, command, name, where="host", **{"timeout": 60.0, **keys})


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as made:
        yield made


async def wire(stack: contextlib.AsyncExitStack, *hooks: Hook, workspace: str = "", **environ: str) -> Wire:
    return await stack.enter_async_context(Wire(list(hooks), {"PATH": os.environ["PATH"], **environ}, workspace))


async def test_a_large_payload_arrives_and_the_answer_comes_back(stack, tmp_path: Path):
    hook = on_host(f'cat > {tmp_path}/in; echo \'{{"action": "deny", "reason": "no"}}\'')
    text = "ä" * 3_000_000
    outcome = await (await wire(stack, hook)).asks.ask(hook, {"prompt": text})
    assert (outcome.answer.refuse, outcome.answer.reason) == (True, "no")
    assert json.loads((tmp_path / "in").read_bytes()) == {"prompt": text}


async def test_what_is_more_than_a_refusal_is_left_aside(stack):
    answer = '{"input": {"a": 1}, "context": "c", "result": "r", "permissionDecision": "allow", "terminate": true}'
    hook = on_host(f"echo '{answer}'")
    said = (await (await wire(stack, hook)).asks.ask(hook, {})).answer
    assert (said.replaced, said.context, said.result, said.allow, said.terminate) == ({}, "", None, False, False)


async def test_one_commands_runs_follow_one_another_in_the_order_asked(stack, tmp_path: Path):
    hook = on_host(f'read line; sleep 0.0$((RANDOM % 5)); echo "$line" >> {tmp_path}/order')
    ends = await wire(stack, hook)
    await asyncio.gather(*(ends.asks.ask(hook, {"n": n}) for n in range(12)))
    order = [json.loads(line)["n"] for line in (tmp_path / "order").read_text().splitlines()]
    assert order == list(range(12))


async def test_a_name_that_the_host_does_not_know_runs_nothing(stack, tmp_path: Path):
    ends = await wire(stack, on_host("true", "known"))
    outcome = await ends.asks.ask(on_host(f"touch {tmp_path}/ran", "unknown"), {})
    assert outcome.failure == "could not be started: the host knows no hook of that name"
    outcome = await ends.asks.ask(on_host(f"touch {tmp_path}/ran", "known"), {})
    assert not outcome.failure and not (tmp_path / "ran").exists(), "the host runs its own command of that name"


async def test_a_timeout_ends_the_whole_group(stack, tmp_path: Path):
    hook = on_host(f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & wait", timeout=0.5)
    outcome = await (await wire(stack, hook)).asks.ask(hook, {})
    assert outcome.failure == "took longer than 0.5 s"
    pid = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else ""
    assert not pid or not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("command", "failure"),
    [
        ("exit 3", "exited with code 3"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("no-such-program-at-all", "exited with code 127 (command not found)"),
        ("echo nonsense", "its answer is not JSON"),
        ("head -c 2000000 /dev/zero", "wrote 2000000 bytes to stdout, more than 1 MiB"),
        ("exec < /dev/null; exit 4", "exited with code 4"),
    ],
)
async def test_each_failure_is_told_as_in_the_sandbox(stack, command, failure):
    hook = on_host(command)
    outcome = await (await wire(stack, hook)).asks.ask(hook, {"x": "y" * 200_000})
    assert outcome.failure.startswith(failure)
    assert outcome.stderr == ""


async def test_no_program_is_taken_from_the_workspace(stack, tmp_path: Path):
    planted = tmp_path / "bin"
    planted.mkdir()
    (planted / "jq").write_text("#!/bin/sh\ntouch owned\n")
    (planted / "jq").chmod(0o755)
    hook = on_host('echo "$PATH" >&2; exit 2')
    path = f"{planted}:bin::{os.environ['PATH']}"
    ends = await stack.enter_async_context(Wire([hook], {"PATH": path, "SECRET": "x"}, str(tmp_path)))
    outcome = await ends.asks.ask(hook, {})
    assert outcome.answer.reason == os.environ["PATH"]
