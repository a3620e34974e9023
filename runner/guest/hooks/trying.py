"""One hook run outside of any turn, for `sbx hook test`: process, identity, environment and reading are a turn's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from runner.guest.hooks import answer
from runner.guest.hooks.chain import HookChain
from runner.guest.hooks.process import Outcome
from runner.wire.agent import GUARD_EVENTS, TOOL_EVENTS, Hook
from runner.wire.messages import TryHook


async def try_hook(chain: HookChain, wanted: TryHook) -> dict[str, Any]:
    """Runs the hook once.

    Args:
        chain: the session's, whose places and spawner are used.
        wanted: the hook, and what it is told.

    Returns:
        `verdict` as the `hook` event names it, `reason`, `failure`, `answer` (what was understood), `stdout`, `stderr`,
        `exit`, `ms`.
    """
    hook, data = wanted.hook, wanted.data
    alone = chain.with_hooks([hook])
    try:
        matches = True
        if hook.event in TOOL_EVENTS and "tool" in data:
            matches = hook in await alone.matching(hook.event, str(data["tool"]["name"]))
        outcome = await alone.ask_one(hook, data, exact=wanted.exact) if matches else Outcome()
    finally:
        await alone.close()
    said = outcome.answer
    understood = {key: value for key, value in asdict(said).items() if value != getattr(answer.NOTHING, key)}
    return {
        "verdict": verdict(hook, outcome) if matches else "not asked",
        "reason": said.reason or ("" if matches else f"its matcher {hook.matcher!r} does not find this tool"),
        "failure": outcome.failure,
        "understood": outcome.understood,
        "answer": understood,
        "stdout": outcome.stdout.decode("utf-8", "replace"),
        "stderr": outcome.stderr,
        "exit": outcome.exit,
        "ms": round(outcome.seconds * 1000, 3),
    }


def verdict(hook: Hook, outcome: Outcome) -> str:
    """What the outcome means for the chain, in one word."""
    said = outcome.answer
    refused = "deny" if hook.event in TOOL_EVENTS or hook.event == "stop" else "stop"
    if outcome.failure:
        strict = hook.on_error == "fail" or not outcome.understood
        return refused if strict and hook.event in GUARD_EVENTS else "error"
    if said.refuse:
        return "context" if hook.event == "postToolCall" else refused
    if said.ask:
        return "ask" if hook.event in TOOL_EVENTS else refused
    if said.result is not None:
        return "result"
    if said.replaced:
        return "rewrite"
    return "context" if said.context else "continue"
