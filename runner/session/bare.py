"""A session without an agent: the guest is up, runs commands, and asks no model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.sandbox.container import Sandbox
from runner.session.record import Record
from runner.session.session import Session, Setup
from runner.session.state import new_session_id
from runner.wire import messages as m
from runner.wire.agent import Agent
from runner.wire.mux import Mux

NO_AGENT = Agent(provider="none", model="none", urls=(), tools=(), agents_md=False)


class Unrecorded(Record):
    """What no agent did is in no record: the user's own command is in the user's own history."""

    def __init__(self) -> None:
        self.folder = Path("/nonexistent") / new_session_id()
        self.failure = None
        self.lost = 0
        self.said = 0

    def write(self, event: m.Event) -> None:
        return

    def close(self) -> None:
        return


class NoModel:
    """The relay of a session that has no model."""

    async def handle(self, request: m.HttpRequest, mux: Mux[Any]) -> None:
        mux.post(m.HttpFail(request.id, "denied", "there is no agent in this session"))

    def abort(self, message: m.HttpAbort) -> None:
        return

    async def close(self) -> None:
        return


def bare_session(sandbox: Sandbox, environment: Mapping[str, str]) -> Session:
    """A session for commands alone. Use it as `async with`.

    Args:
        sandbox: idle, its lock held.
        environment: the plan's variables.
    """
    setup = Setup(agent=NO_AGENT, environment=dict(environment))
    return Session(sandbox, setup, Unrecorded(), NoModel())
