"""What the loop costs over the model's own time: milliseconds a round, milliseconds a delta, memory of a long session.

    python bench/loop.py

In this process, with the real client against a scripted server that answers at once. A round is compared with the same
requests made by `httpx` alone; a delta with a stream that is only read. What is counted is the processor's time of the
loop's thread, which a busy machine does not change. Needs no engine.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner.guest.consent import Consent
from runner.guest.history import History
from runner.guest.hooks import HookChain
from runner.guest.loop import Loop
from runner.guest.model.client import Model
from runner.guest.model.transport import Direct, client
from runner.guest.spawn.command import Identity
from runner.guest.tools.base import ToolResult
from runner.scripted import Call, Chunks, Request, Say, Script, ScriptedServer
from runner.wire.agent import Agent

ROUNDS = 50
DELTAS = 5000
LONG = 200
OUTPUT = 10 * 1024
"""Characters of each tool output in the long session: 200 of them are 2 MiB of history."""


class Nothing:
    """A tool that takes no time."""

    name = "nothing"
    description = "for the benchmark"
    parameters: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}  # noqa: RUF012
    changing = False

    def __init__(self, output: int = 10) -> None:
        self.output = output

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        return ToolResult(f"{arguments['n']} ".ljust(self.output, "x"))


class Source:
    def __init__(self, model: Model) -> None:
        self._model = model

    async def model(self) -> Model:
        return self._model


def loop_for(server: ScriptedServer, http: Any, tool: Nothing) -> Loop:
    owner = Identity(1000, 1000, "agent")
    hooks = HookChain([], None, workspace="/", config_dir="/", hooks_dir="/", owner=owner, emit=lambda n, d: None)

    async def nobody(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {}

    model = Model(http, server.url, "scripted")
    agent = Agent("llmman", "scripted", (server.url,), max_turns=1000)
    sent: list[bytes] = []

    def emit(name: str, data: dict[str, Any]) -> None:
        sent.append(json.dumps({"name": name, "data": data}).encode())  # as the wire does
        if len(sent) > 100:
            sent.clear()

    return Loop(agent, History(), "system", hooks, Source(model), [tool], emit, Consent(nobody, "/"))


def rounds(count: int) -> Script:
    def answer(request: Request) -> Say:
        number = request.round
        return Say("done") if number > count else Say(calls=[Call("nothing", {"n": number})])

    return Script(answer)


async def a_round() -> tuple[float, float]:
    """Milliseconds of a round in the loop, and of the same request made by the client library alone."""
    with ScriptedServer(rounds(ROUNDS)) as server:
        async with client(Direct()) as http:
            loop = loop_for(server, http, Nothing())
            await loop.turn(1, "warm")
            loop.forget()
            server.requests.clear()
            began = time.thread_time()
            await loop.turn(2, "go on")
            ours = (time.thread_time() - began) / ROUNDS * 1000
            bodies = [chat.body for chat in server.chats]
            began = time.thread_time()
            for body in bodies:
                async with http.stream("POST", f"{server.url}/chat/completions", content=body) as response:
                    await response.aread()
            plain = (time.thread_time() - began) / len(bodies) * 1000
    return ours, plain


async def a_delta() -> tuple[float, float]:
    """Milliseconds a delta through the loop, and of only reading the stream."""
    delta = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    answer = Chunks([*[delta] * DELTAS, end])
    with ScriptedServer(Script(lambda _: answer)) as server:
        async with client(Direct()) as http:
            loop = loop_for(server, http, Nothing())
            began = time.thread_time()
            done = await loop.turn(1, "go on")
            ours = (time.thread_time() - began) / DELTAS * 1000
            assert len(done.answer) == DELTAS * 5
            body = server.chats[0].body
            began = time.thread_time()
            async with http.stream("POST", f"{server.url}/chat/completions", content=body) as response:
                async for _ in response.aiter_bytes():
                    pass
            plain = (time.thread_time() - began) / DELTAS * 1000
    return ours, plain


async def a_long_session() -> tuple[float, float]:
    """MiB of this process, server included, after 200 rounds with 2 MiB of history; and MiB before."""
    with ScriptedServer(rounds(LONG)) as server:
        async with client(Direct()) as http:
            loop = loop_for(server, http, Nothing(OUTPUT))
            before = resident()
            task = asyncio.create_task(loop.turn(1, "go on"))
            while not task.done():
                await asyncio.sleep(0.05)
                server.requests[:-1] = []  # the server's own memory is not what is measured
            return resident(), before


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024**2


async def main() -> None:
    found = [await a_round() for _ in range(3)]
    ours, plain = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"a round: {ours:.2f} ms, of which {plain:.2f} ms are the request alone; the loop adds {ours - plain:.2f} ms")
    found = [await a_delta() for _ in range(3)]
    ours, plain = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"a delta: {ours:.4f} ms, of which {plain:.4f} ms are reading; the loop adds {ours - plain:.4f} ms")
    after, before = await a_long_session()
    size = LONG * OUTPUT / 1024**2
    print(f"{LONG} rounds, {size:.1f} MiB of history: {after:.0f} MiB in this process, {before:.0f} before")


if __name__ == "__main__":
    asyncio.run(main())
