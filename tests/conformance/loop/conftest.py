"""The loop itself, in this process: a real model client against the scripted server, real tools under real identities.

What is left out is the wire and the container; `test_command.py` has those. Needs root, and no engine.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - this and more, since U may not be able to read this machine's Python
import html.parser  # noqa: F401
import json
import os
import shutil
import ssl  # noqa: F401
import tempfile
import urllib.request  # noqa: F401
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runner.guest.consent import Consent
from runner.guest.context import Reader
from runner.guest.history import History
from runner.guest.hooks import HookChain
from runner.guest.loop import Loop
from runner.guest.model.client import Model, Retry
from runner.guest.model.history import to_messages
from runner.guest.model.transport import Direct, client
from runner.guest.prompt import system_prompt
from runner.guest.spawn import server
from runner.guest.spawn.command import HOOK, Identity
from runner.guest.spawn.spawner import Spawner
from runner.guest.structured import Form
from runner.guest.tools import fetch, markdown  # noqa: F401
from runner.guest.tools.base import Place, Tool, environment_for
from runner.guest.tools.bash import Jobs
from runner.guest.tools.registry import tools_for
from runner.kits.answer_schema import Schema
from runner.kits.hooks import default_user
from runner.scripted import Answer, Call, Request, Say, Script, ScriptedServer
from runner.session.record import Line
from runner.session.resume import replay
from runner.wire.agent import Agent, Hook
from runner.wire.messages import TurnDone

OWNER = Identity(1000, 1000, "agent")
QUICK = Retry(attempts=3, first=0.01, longest=0.05, total=2.0)


def say(text: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> Say:
    """An answer of the model's, with calls as (name, input)."""
    return Say(text, calls=[Call(name, given) for name, given in calls], **more)


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, **more}


@dataclass
class Person:
    """Answers what is asked, and remembers it. Without answers there is nobody."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    before: Callable[[], Any] | None = None

    async def __call__(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        self.asked.append({"kind": kind, **data})
        if self.before:
            await self.before()
        return self.answers.pop(0) if self.answers else {}


@dataclass
class Bench:
    """A loop over a scripted model, and everything that came of it."""

    root: Path
    spawner: Spawner
    server: ScriptedServer
    script: list[Answer]
    loop: Loop
    person: Person
    model_: Model
    events: list[tuple[str, dict[str, Any]]]
    number: int = 0

    async def model(self) -> Model:
        return self.model_

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    async def turn(self, prompt: str = "go on", *answers: Answer) -> TurnDone:
        """Asks; the model gives these answers, the last one for ever."""
        self.script[:] = answers or self.script
        self.number += 1
        return await self.loop.turn(self.number, prompt)

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == name]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def notices(self) -> list[str]:
        return [data["text"] for data in self.of("notice")]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return to_messages(self.loop.history.messages)

    @property
    def chats(self) -> list[Request]:
        return self.server.chats

    def outputs(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "tool"]

    def resumed(self) -> list[dict[str, Any]]:
        """What a resume would make of the record of these events."""
        kept = [(n, d) for n, d in self.events if n not in ("model.delta", "model.reasoning", "model.wait")]
        return replay([Line("", i, name, json.loads(json.dumps(data))) for i, (name, data) in enumerate(kept, 1)])

    def valid(self) -> None:
        """Every server's template takes the history: calls beside their results, no two questions in a row."""
        check(self.messages)
        assert self.messages[-1]["role"] == "assistant"


def check(messages: Sequence[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    before = ""
    for message in messages:
        if message["role"] == "tool":
            assert open_calls and message["tool_call_id"] == open_calls.pop(0), messages
        else:
            assert not open_calls, messages
            assert not (message["role"] == before == "user"), messages
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
        before = message["role"]
    assert not open_calls, messages


@pytest.fixture
def root() -> Iterator[Path]:
    """Not pytest's own folder: that one is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="sbx-loop-"))
    folder.chmod(0o755)
    for name, mode, uid in (
        ("workspace", 0o755, OWNER.uid),
        ("config", 0o755, 0),
        ("hooks", 0o755, 0),
        ("empty", 0o555, 0),
        ("guard-tmp", 0o700, HOOK.uid),
        ("home", 0o755, OWNER.uid),
    ):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
        os.chown(folder / name, uid, uid)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(*server.launch())
    yield made
    await made.close()


Make = Callable[..., Any]


@pytest_asyncio.fixture(loop_scope="module")
async def make(root: Path, spawner: Spawner) -> AsyncIterator[Make]:
    """Makes a bench: keys of the agent, hooks as (event, command), rules, a person's answers."""
    async with contextlib.AsyncExitStack() as stack:

        async def build(
            *hooks: tuple[str, str],
            tools: Sequence[Tool] | None = None,
            person: Sequence[dict[str, Any]] = (),
            consent: dict[str, Any] | None = None,
            window: int = 0,
            schema: dict[str, Any] | None = None,
            system: str = "",
            history: Sequence[dict[str, Any]] = (),
            first_token_timeout: float = 10.0,
            **keys: Any,
        ) -> Bench:
            script: list[Answer] = []
            given = stack.enter_context(
                ScriptedServer(Script(lambda _: script.pop(0) if len(script) > 1 else script[0]))
            )
            http = await stack.enter_async_context(client(Direct()))
            model = Model(
                http,
                given.url,
                "scripted",
                retry=QUICK,
                context_window=window,
                first_token_timeout=first_token_timeout,
            )
            events: list[tuple[str, dict[str, Any]]] = []

            def emit(name: str, data: dict[str, Any]) -> None:
                events.append((name, data))

            workspace = str(root / "workspace")
            chain = HookChain(
                [
                    Hook(event, command, f"h{i}", user=default_user(event, persistent=False), on_error="fail")
                    for i, (event, command) in enumerate(hooks)
                ],
                spawner,
                workspace=workspace,
                config_dir=str(root / "config"),
                hooks_dir=str(root / "hooks"),
                owner=OWNER,
                emit=emit,
                home=str(root / "empty"),
                guard_tmp=str(root / "guard-tmp"),
            )
            stack.push_async_callback(chain.close)
            place = Place(workspace, OWNER, environment_for(OWNER, workspace, {}))
            jobs = Jobs()
            stack.push_async_callback(jobs.close)
            agent = replace(Agent("llmman", "scripted", (given.url,)), **keys)
            offered = (
                tools_for(("bash", "read_file", "write_file", "plan"), spawner, place, jobs) if tools is None else tools
            )
            asks = Person(list(person))
            rules = consent or {}
            decide = Consent(asks, workspace, rules.get("allow", ()), rules.get("deny", ()))
            form = None
            if schema is not None:
                checker = Schema(schema)

                async def held(kind: str, data: dict[str, Any]) -> dict[str, Any]:
                    assert kind == "schema"
                    text, error = checker.check(data["text"])
                    return {"text": text, "error": error}

                form = Form(schema, held)
            prompt = system or system_prompt("", workspace=workspace, tools=["bash"], network="none")
            bench = Bench(root, spawner, given, script, None, asks, model, events)  # type: ignore[arg-type]
            bench.loop = Loop(agent, History(history), prompt, chain, bench, offered, emit, decide, form)
            return bench

        yield build


@pytest_asyncio.fixture(loop_scope="module")
async def reader(root: Path, spawner: Spawner) -> tuple[Reader, list[tuple[str, dict[str, Any]]]]:
    """Reads instructions from the workspace and the kit; and the events of it."""
    events: list[tuple[str, dict[str, Any]]] = []
    workspace = str(root / "workspace")
    place = Place(workspace, OWNER, environment_for(OWNER, workspace, {}))
    return Reader(spawner, place, str(root / "config"), lambda name, data: events.append((name, data))), events
