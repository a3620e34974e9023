"""Runs the REPL on a scripted session, on the terminal it is started on: `python -m … STATE-FOLDER`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from runner.errors import ModelError, WireError
from runner.frontends.repl import Command, Repl
from runner.frontends.terminal import Styled
from runner.wire.messages import Ask, Event
from tests.unit.frontends.scripted import ScriptedSession, Step, hang, until_steered


async def die(session: ScriptedSession) -> None:
    raise WireError("the guest went away")


async def fail(session: ScriptedSession) -> None:
    raise ModelError("no model server")


def script(prompt: str) -> list[Step]:
    question = Event("turn.question", {"turn": 1, "prompt": prompt, "context": []})
    if "hunter2" in prompt:
        return [
            Event("turn.blocked", {"turn": 1, "hook": "no-secrets", "reason": "a password", "response": "🔐 stopped"}),
            Event("turn.end", {"status": "stopped", "answer": "🔐 stopped"}),
        ]
    if prompt.startswith("mask "):
        masked = Event("turn.question", {"turn": 1, "prompt": "mask ***", "context": []})
        return [masked, Event("turn.end", {"status": "completed", "answer": "masked"})]
    if prompt == "hang":
        return [question, Event("model.request", {"round": 1}), Event("model.delta", {"text": "half an ans"}), hang]
    if prompt == "flood":
        text = "word " * 40_000 + "last"
        return [question, Event("model.delta", {"text": text}), Event("turn.end", {"answer": text})]
    if prompt == "late":
        answer = Event("model.delta", {"text": "the answer\n"})
        return [question, answer, until_steered, Event("turn.end", {"status": "completed", "answer": "the answer"})]
    if prompt == "steer":
        return [
            question,
            Event("model.request", {"round": 1}),
            until_steered,
            Event("turn.question", {"turn": 1, "prompt": "(the line)", "context": []}),
            Event("turn.end", {"status": "completed", "answer": "steered"}),
        ]
    if prompt == "consent":
        ask = Ask(1, "consent", {"name": "bash", "input": {"command": "rm -r \u202e x\x1b[2J"}})
        taken = Event("turn.question", {"turn": 1, "prompt": "(the line)", "context": []})
        return [question, until_steered, taken, ask, Event("turn.end", {"status": "completed", "answer": "asked"})]
    if prompt == "die":
        return [question, die]
    if prompt == "fail":
        return [question, fail]
    deltas = [Event("model.delta", {"text": each}) for each in ("Hel", "lo ", "\x1b]0;evil\x07", "world\nand ", "more")]
    return [
        question,
        Event("model.request", {"round": 1}),
        *deltas,
        Event("turn.end", {"status": "completed", "answer": "Hello \x1b]0;evil\x07world\nand more"}),
    ]


async def main(state: Path) -> int:
    session = ScriptedSession(script)

    async def shout(rest: str) -> list[Styled]:
        return [Styled(rest.upper())]

    repl = Repl(
        session,
        state / "history",
        log=lambda: [Styled("the record")],
        commands={"shout": Command("in capitals", shout)},
    )
    try:
        return await repl.run()
    finally:
        told = {
            "prompts": session.prompts,
            "steered": session.steered,
            "answers": session.answers,
            "new": session.fresh,
        }
        (state / "told.json").write_text(json.dumps(told))


sys.exit(asyncio.run(main(Path(sys.argv[1]))))
