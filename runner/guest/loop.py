"""A turn, from the question to its answer. The order of things:

    question
      └─ preGeneration hooks          may stop it (the text is forgotten), replace it, add context
    round, until the model calls no tool, at most `max_turns` times
      ├─ model                        streamed; retried by the client within its bounds
      └─ for each call, in order
           ├─ preToolCall hooks       may deny, rewrite, answer in the tool's place
           ├─ consent                 unless yolo
           ├─ the tool                as the owner of the workspace
           └─ postToolCall hooks      may rewrite the output, add context
      └─ steering                     what a person typed meanwhile, through preGeneration too
    postGeneration hooks              whatever the outcome, also after a cancel

A turn always leaves a history that a server accepts: `History.settle` answers every open call.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.guest.history import History, with_context
from runner.guest.hooks import HookChain
from runner.guest.hooks.verdicts import PreToolCall
from runner.guest.model import Answer, Call, Model, ModelFailure, ReasoningDelta, Retrying, TextDelta, Waiting
from runner.guest.tools import Tool
from runner.wire.agent import Agent
from runner.wire.messages import TurnDone

SAME_CALL_NOTICE = 3
"""The same call with the same result this often in a row: the model is told."""
SAME_CALL_END = 5
"""And this often: the turn ends."""

Emit = Callable[[str, dict[str, Any]], None]
Consent = Callable[[str, dict[str, Any], str, str], Awaitable[str]]
"""Asks about (tool, input, call id, why it asks); answers an empty string for yes, else the reason for no."""


class ModelSource(Protocol):
    """Finds the model server when it is first needed: a stopped question never reaches it."""

    async def model(self) -> Model: ...


@dataclass
class _Turn:
    """What a running turn has come to."""

    id: int
    question: str = ""
    answer: str = ""
    status: str = "completed"
    reason: str = "answer"
    error: str = ""
    rounds: int = 0
    calls: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    last_call: tuple[str, str] = ("", "")
    same: int = 0
    terminate: bool = False

    def fail(self, reason: str, error: str) -> None:
        self.status, self.reason, self.error = "failed", reason, error

    def count(self, usage: dict[str, int]) -> None:
        for key, value in usage.items():
            self.usage[key] = self.usage.get(key, 0) + value


class Loop:
    """Runs turns, one at a time.

    Args:
        agent: the agent.
        history: the conversation, changed in place.
        system: the system prompt.
        hooks: the chain of every event.
        source: finds the model.
        tools: what the model may call.
        emit: takes each event.
        consent: asks a person; used when the agent is not `yolo` or a hook wants it.
    """

    def __init__(
        self,
        agent: Agent,
        history: History,
        system: str,
        hooks: HookChain,
        source: ModelSource,
        tools: Sequence[Tool],
        emit: Emit,
        consent: Consent,
    ) -> None:
        self.agent = agent
        self.history = history
        self._system = system
        self._hooks = hooks
        self._source = source
        self._tools = {tool.name: tool for tool in tools}
        self._schemas = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in tools
        ]
        self._emit = emit
        self._consent = consent
        self._steering: list[str] = []

    def steer(self, text: str) -> None:
        """Keeps what a person typed until the running batch of tool calls is over."""
        self._steering.append(text)

    async def turn(self, turn_id: int, prompt: str) -> TurnDone:
        """One question until its answer. Cancelling the task ends the turn as `cancelled`, in good order."""
        turn = _Turn(turn_id)
        started = time.monotonic()
        self._emit("turn.start", {"turn": turn_id})
        try:
            await self._answer(turn, prompt)
        except asyncio.CancelledError:
            turn.status, turn.reason, turn.error = "cancelled", "cancelled", ""
        except ModelFailure as failure:
            turn.fail("model-error" if failure.kind != "unreachable" else "model-unreachable", str(failure))
            if failure.partial:
                turn.answer = failure.partial
                self.history.assistant(failure.partial)
        self.history.settle()
        self._steering.clear()
        if turn.status != "stopped" or turn.question:
            await self._hooks.post_generation(turn.question, turn.answer, turn.error, turn.usage)
        elapsed = round((time.monotonic() - started) * 1000, 1)
        done = TurnDone(turn_id, turn.status, turn.answer, turn.reason, turn.error, turn.usage)
        self._emit(
            "turn.end",
            {
                "turn": turn_id,
                "status": turn.status,
                "reason": turn.reason,
                "answer": turn.answer,
                "error": turn.error,
                "usage": turn.usage,
                "rounds": turn.rounds,
                "ms": elapsed,
            },
        )
        return done

    # ---- the question

    async def _answer(self, turn: _Turn, prompt: str) -> None:
        pre = await self._hooks.pre_generation(prompt)
        if pre.stopped:
            stop = pre.stopped
            self.history.blocked(stop.reason, stop.response)
            turn.question = f"[prompt blocked by a hook: {stop.reason}]"
            turn.answer = stop.response or turn.question
            if stop.failed:
                turn.fail("hook-error", stop.reason)
            else:
                turn.status, turn.reason = "stopped", "hook"
            self._emit(
                "turn.blocked",
                {"turn": turn.id, "hook": stop.hook, "reason": stop.reason, "response": stop.response},
            )
            return
        turn.question = pre.prompt
        self._emit("turn.question", {"turn": turn.id, "prompt": pre.prompt, "context": list(pre.context)})
        self.history.user(with_context(pre.prompt, list(pre.context)))
        while turn.rounds < self.agent.max_turns:
            turn.rounds += 1
            answer = await self._round(turn)
            turn.answer = answer.text
            if not answer.calls:
                if not self._steering:
                    return
            else:
                await self._calls(turn, answer.calls)
                if turn.status == "failed" or turn.terminate:
                    return
            await self._take_steering(turn)
            if 0 < self.agent.max_tokens <= turn.usage.get("total_tokens", 0):
                turn.fail("max-tokens", f"the turn used {turn.usage['total_tokens']} tokens of {self.agent.max_tokens}")
                return
        turn.fail("max-turns", f"the turn was not over after {self.agent.max_turns} rounds (maxTurns)")

    async def _take_steering(self, turn: _Turn) -> None:
        texts, self._steering = self._steering, []
        for text in texts:
            pre = await self._hooks.pre_generation(text)
            if pre.stopped:
                self._emit(
                    "turn.blocked",
                    {
                        "turn": turn.id,
                        "hook": pre.stopped.hook,
                        "reason": pre.stopped.reason,
                        "response": pre.stopped.response,
                    },
                )
                continue
            self._emit("turn.question", {"turn": turn.id, "prompt": pre.prompt, "context": list(pre.context)})
            self.history.user(with_context(pre.prompt, list(pre.context)))

    # ---- the model

    async def _round(self, turn: _Turn) -> Answer:
        model = await self._source.model()
        self._emit("model.request", {"turn": turn.id, "round": turn.rounds})
        started = time.monotonic()
        messages = [{"role": "system", "content": self._system}, *self.history.messages]
        answer: Answer | None = None
        partial: list[str] = []
        try:
            async for item in model.stream(messages, self._schemas):
                if isinstance(item, TextDelta):
                    partial.append(item.text)
                    self._emit("model.delta", {"text": item.text})
                elif isinstance(item, ReasoningDelta):
                    self._emit("model.reasoning", {"text": item.text})
                elif isinstance(item, Waiting):
                    self._emit("model.wait", {"seconds": item.seconds, "why": item.why})
                elif isinstance(item, Retrying):
                    partial.clear()
                    self._emit("model.retry", {"attempt": item.attempt, "why": item.why, "seconds": item.seconds})
                else:
                    answer = item
        except asyncio.CancelledError:
            if partial:
                turn.answer = "".join(partial)
                self.history.assistant(turn.answer)
                self._emit(
                    "model.answer", {"turn": turn.id, "round": turn.rounds, "text": turn.answer, "cut_off": True}
                )
            raise
        if answer is None:
            raise ModelFailure("empty", "the model's answer never came to an end")
        turn.count(answer.usage)
        calls = [{"id": c.id, "name": c.name, "arguments": c.raw} for c in answer.calls]
        self._emit(
            "model.answer",
            {
                "turn": turn.id,
                "round": turn.rounds,
                "text": answer.text,
                "reasoning": answer.reasoning,
                "calls": calls,
                "finish": answer.finish or "",
                "usage": answer.usage,
                "ms": round((time.monotonic() - started) * 1000, 1),
                "cut_off": answer.cut_off,
            },
        )
        if answer.cut_off:
            self._emit("notice", {"level": "warning", "text": "the answer was cut off at the model's token limit"})
        self.history.assistant(answer.text, calls)
        return answer

    # ---- the tools

    async def _calls(self, turn: _Turn, calls: Sequence[Call]) -> None:
        if not self.agent.parallel_tools:
            for call in calls:
                if turn.status == "failed":
                    return
                output = await self._call(turn, call)
                self.history.tool(call.id, output)
            return
        for call, output in zip(calls, await self._batch(turn, calls), strict=True):
            self.history.tool(call.id, output)

    async def _batch(self, turn: _Turn, calls: Sequence[Call]) -> list[str]:
        """All pre hooks, then the calls together, then all post hooks."""
        ready = [await self._before(turn, call) for call in calls]
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._run(call, pre)) if isinstance(pre, PreToolCall) else None
                for call, pre in zip(calls, ready, strict=True)
            ]
        outputs = []
        for call, pre, task in zip(calls, ready, running, strict=True):
            if isinstance(pre, str):
                outputs.append(pre)
            else:
                assert task is not None
                outputs.append(await self._after(turn, call, pre, *task.result()))
        return outputs

    async def _call(self, turn: _Turn, call: Call) -> str:
        pre = await self._before(turn, call)
        if isinstance(pre, str):
            return pre
        return await self._after(turn, call, pre, *await self._run(call, pre))

    async def _before(self, turn: _Turn, call: Call) -> PreToolCall | str:
        """What to run, or the text that stands in the place of an output."""
        turn.calls += 1
        if 0 < self.agent.max_tool_calls < turn.calls:
            turn.fail("max-tool-calls", f"the turn wanted more than {self.agent.max_tool_calls} tool calls")
            return self._refused(call, call.arguments, "limit", "the limit of tool calls is reached")
        if call.error:
            return self._unusable(turn, call, call.error)
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return self._unusable(turn, call, f"there is no tool {call.name!r}; the tools are: {names}")
        arguments = call.arguments or {}
        if problem := schema_problem(arguments, tool.parameters):
            return self._unusable(turn, call, f"the arguments of {call.name} are wrong: {problem}")
        pre = await self._hooks.pre_tool_call(call.id, call.name, arguments)
        turn.terminate = turn.terminate or pre.terminate
        if pre.denied is not None:
            self._refused(call, pre.input, pre.hook, pre.denied)
            return with_context(f"[denied by a hook: {pre.denied}]", list(pre.context))
        if pre.result is None and (pre.ask or (tool.changing and not self.agent.yolo)):
            why = f"the hook {pre.hook} wants a person to decide" if pre.ask else ""
            reason = await self._consent(call.name, pre.input, call.id, why)
            if reason:
                self._refused(call, pre.input, "consent", reason)
                return f"[denied by the user: {reason}]"
        return pre

    def _refused(self, call: Call, arguments: Any, by: str, reason: str) -> str:
        self._emit(
            "tool.denied",
            {"id": call.id, "name": call.name, "input": arguments or {}, "by": by, "reason": reason},
        )
        return f"[not run: {reason}]"

    def _unusable(self, turn: _Turn, call: Call, problem: str) -> str:
        """A call that cannot be run is an error the model can read; nothing ran, so no hook is asked."""
        self._emit("tool.start", {"id": call.id, "name": call.name, "input": {"raw": call.raw[:2000]}})
        text = f"[error: {problem}]"
        self._emit("tool.end", {"id": call.id, "name": call.name, "output": text, "is_error": True, "ms": 0.0})
        return self._watch(turn, call, text)

    async def _run(self, call: Call, pre: PreToolCall) -> tuple[str, bool, dict[str, Any]]:
        start: dict[str, Any] = {"id": call.id, "name": call.name, "input": pre.input}
        if pre.input != call.arguments:
            start["asked"] = call.arguments
        self._emit("tool.start", start)
        if pre.result is not None:
            return pre.result, False, {"ms": 0.0, "by": pre.hook}
        tool = self._tools[call.name]
        if problem := schema_problem(pre.input, tool.parameters):
            return f"[error: a hook replaced the input of {call.name}, and it is wrong: {problem}]", True, {"ms": 0.0}
        started = time.monotonic()
        result = await tool.run(pre.input, call.id)
        elapsed = round((time.monotonic() - started) * 1000, 2)
        return result.output, result.is_error, {**result.data, "ms": elapsed}

    async def _after(
        self, turn: _Turn, call: Call, pre: PreToolCall, output: str, is_error: bool, data: dict[str, Any]
    ) -> str:
        post = await self._hooks.post_tool_call(call.id, call.name, pre.input, output, is_error)
        turn.terminate = turn.terminate or post.terminate
        self._emit(
            "tool.end",
            {**data, "id": call.id, "name": call.name, "output": post.output, "is_error": post.is_error},
        )
        text = self._watch(turn, call, post.output)
        return with_context(text, [*pre.context, *post.context])

    def _watch(self, turn: _Turn, call: Call, output: str) -> str:
        """The loop breaker: the same call with the same result, again and again."""
        this = (f"{call.name}\0{call.raw}", output)
        turn.same = turn.same + 1 if this == turn.last_call else 1
        turn.last_call = this
        if turn.same >= SAME_CALL_END:
            turn.fail("loop", f"the model made the same {call.name} call {turn.same} times with the same result")
        elif turn.same >= SAME_CALL_NOTICE:
            note = (
                f"[notice: this is the same call with the same result, {turn.same} times in a row. Do something else.]"
            )
            self._emit("notice", {"level": "warning", "text": f"the same {call.name} call, {turn.same} times in a row"})
            return f"{output}\n\n{note}"
        return output


def schema_problem(value: Any, schema: dict[str, Any], where: str = "") -> str:
    """What is wrong with `value` by the part of JSON schema that tools use; empty when nothing is."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    kind = schema.get("type")
    if isinstance(kind, str) and kind in kinds:
        right = isinstance(value, kinds[kind])  # type: ignore[arg-type]
        if isinstance(value, bool) and kind in ("integer", "number"):
            right = False
        if not right:
            return f"{where or 'they'} must be {kind}, not {json.dumps(value)[:60]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                return f"{name!r} is missing"
        for name, part in value.items():
            if name in properties:
                if problem := schema_problem(part, properties[name], name):
                    return problem
            elif schema.get("additionalProperties") is False:
                return f"there is no {name!r}; there are: {', '.join(properties)}"
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, part in enumerate(value):
            if problem := schema_problem(part, schema["items"], f"{where}[{index}]"):
                return problem
    return ""
