"""A turn, from the question to its answer. The order of things:

    question
      └─ preGeneration hooks          may stop it (the text is forgotten), replace it, add context
    round, until the model calls no tool, at most `max_turns` times
      ├─ room                         old outputs pruned, or the conversation compacted, when the window is nearly full
      ├─ preModelRequest hooks        may choose the model and the system prompt of this request
      ├─ model                        streamed through the textDelta hooks; retried by the client within its bounds
      ├─ for each call, in order (all together, stage by stage, with `parallelTools`)
      │    ├─ preToolCall hooks       may deny, rewrite, answer in the tool's place
      │    ├─ consent                 the agent's rules; unless yolo: permissionRequest hooks, then a person
      │    ├─ the tool                as the owner of the workspace
      │    └─ postToolCall hooks      may rewrite the output, add context
      ├─ steering                     what a person typed meanwhile, through preGeneration too
      └─ the answer's form              with `structuredOutput`: asked for again, at most twice
    stop hooks                        may push the turn on, with a reason as the next question
    postGeneration hooks              whatever the outcome, also after a cancel

What is kept passes the `message` hooks first. A turn always leaves a history that a server accepts.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from runner.guest import room
from runner.guest.consent import Consent
from runner.guest.history import History, Message
from runner.guest.hooks import HookChain, TextFilter
from runner.guest.hooks.results import PreToolCall, Stop, ToolCall
from runner.guest.model.failure import ModelFailure
from runner.guest.model.items import Answer, Call, Notice, ReasoningDelta, Retrying, TextDelta, Waiting
from runner.guest.structured import TRIES, Form
from runner.guest.tools.base import Tool, ToolResult
from runner.wire.agent import Agent
from runner.wire.markers import NOT_RUN, compact, denied_marker, ending
from runner.wire.messages import TurnDone
from runner.wire.mux import MuxClosed

if TYPE_CHECKING:
    from runner.guest.model.client import Model

SAME_CALL_NOTICE = 3
"""The same call with the same result this often in a row: the model is told."""
SAME_CALL_END = 5
"""And this often: the turn ends."""
LEAK_TRIES = 2
"""New tries that a model gets after a call whose arguments held routing text."""
POST_HOOKS_WITHIN = 120.0
"""Seconds that the postGeneration hooks may take after a cancel."""

Emit = Callable[[str, dict[str, Any]], None]


class ModelSource(Protocol):
    """Finds the model server when it is first needed: a stopped question never reaches it."""

    async def model(self) -> Model: ...


class TurnFailed(Exception):
    """The turn ends as failed.

    Args:
        reason: one word for the record.
        error: in words.
    """

    def __init__(self, reason: str, error: str) -> None:
        super().__init__(error)
        self.reason = reason


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
    pushed: int = 0
    leaks: int = 0
    formless: int = 0
    """Answers that were not as `structuredOutput` wants them."""
    formed: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    last_call: tuple[str, str] = ("", "")
    same: int = 0
    terminate: bool = False

    def fail(self, reason: str, error: str) -> None:
        self.status, self.reason, self.error = "failed", reason, error

    def count(self, usage: dict[str, int]) -> None:
        for key, value in usage.items():
            self.usage[key] = self.usage.get(key, 0) + value


@dataclass(frozen=True)
class _Refused:
    """A call that does not run; `output` is what the model reads."""

    output: str
    context: tuple[str, ...] = ()


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
        consent: the agent's rules, and the way to a person, asked when the agent is not `yolo` or a hook wants it.
        form: what the answer must be like; None for any text.
        recorded: returns when the record has every event so far. A call that changes something begins after that: were
            the host killed before it wrote the call down, a resumed model would not know of it, and make it again.
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
        form: Form | None = None,
        recorded: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.agent = agent
        self.history = history
        self._system = system
        self.hooks = hooks
        self._source = source
        self._tools = {tool.name: tool for tool in tools}
        self._emit = emit
        self._consent = consent
        self._form = form
        self._recorded = recorded
        self._steering: list[str] = []
        self._meter = room.Meter()
        self._measure()

    @property
    def tools(self) -> list[Tool]:
        """What the model may call, in the order in which it is told."""
        return list(self._tools.values())

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Other tools from now on. Only between turns: a prompt's beginning stays the same within one."""
        self._tools = {tool.name: tool for tool in tools}
        self._measure()

    def _measure(self) -> None:
        self._meter = room.Meter(len(self._system) + room.size_of_tools(self.tools))

    def forget(self, history: Sequence[Message] = ()) -> None:
        """Goes on with another conversation, usually none. Only between turns."""
        self.history.replace(history)
        self._meter.forget()

    def steer(self, text: str) -> None:
        """Keeps what a person typed until the running batch of tool calls is over."""
        self._steering.append(text)

    async def turn(self, turn_id: int, prompt: str) -> TurnDone:
        """One question until its answer. Cancelling the task ends the turn as `cancelled`, in good order."""
        turn = _Turn(turn_id)
        started = time.monotonic()
        # What came too late for the turn before: the host asks it as a question, since no event said it was taken.
        self._steering.clear()
        self._emit("turn.start", {"turn": turn_id})
        try:
            await self._answer(turn, prompt)
            await self._check_form(turn)
        except asyncio.CancelledError:
            _go_on()
            turn.status, turn.reason, turn.error = "cancelled", "cancelled", ""
        except TurnFailed as failed:
            turn.fail(failed.reason, str(failed))
        except ModelFailure as failure:
            turn.fail(f"model-{failure.kind}", "\n".join(filter(None, (failure.message, failure.hint))))
            self._cut_short(turn, failure.partial.text if failure.partial else "")
        if turn.status == "cancelled":
            self.history.settle()
        else:
            self.history.settle(NOT_RUN, ending(turn.status, turn.error))
        try:
            async with asyncio.timeout(POST_HOOKS_WITHIN if turn.status == "cancelled" else None):
                post = await self.hooks.post_generation(turn.question, turn.answer, turn.error, turn.usage)
        except asyncio.CancelledError:
            _go_on()
            self._notice("warning", "the postGeneration hooks were ended by a cancel")
        except TimeoutError:
            self._notice("warning", f"the postGeneration hooks took over {POST_HOOKS_WITHIN:g} s and were ended")
        else:
            if post.failed and turn.status in ("completed", "stopped"):
                turn.fail("hook-error", post.failed)
        elapsed = round((time.monotonic() - started) * 1000, 1)
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
        return TurnDone(turn_id, turn.status, turn.answer, turn.reason, turn.error, turn.usage)

    # ---- the question

    async def _answer(self, turn: _Turn, prompt: str) -> None:
        if not await self._question(turn, prompt):
            return
        while True:
            await self._rounds(turn)
            if turn.terminate:
                turn.reason = "terminated"
                return
            pushed = await self.hooks.stop(turn.answer, turn.pushed)
            if pushed.failed:
                raise TurnFailed("hook-error", pushed.failed)
            if not pushed.reason:
                return
            turn.pushed += 1
            self._emit("turn.pushed", {"turn": turn.id, "hook": pushed.by, "prompt": pushed.reason})
            await self._keep(self.history.user(pushed.reason))

    async def _question(self, turn: _Turn, prompt: str) -> bool:
        """Puts the question into the history. False when a hook stopped it."""
        pre = await self.hooks.pre_generation(prompt)
        if pre.stopped:
            self.history.blocked(pre.stopped)
            self._blocked(turn, pre.stopped)
            turn.question = pre.stopped.marker
            return False
        turn.question = pre.prompt
        self._emit("turn.question", {"turn": turn.id, "prompt": pre.prompt, "context": list(pre.context)})
        await self._keep(self.history.user(pre.prompt, pre.context))
        return True

    def _blocked(self, turn: _Turn, stop: Stop) -> None:
        turn.answer = stop.response or stop.marker
        turn.status, turn.reason = "stopped", "hook"
        if stop.failed:
            turn.fail("hook-error", stop.reason)
        self._emit("turn.blocked", {"turn": turn.id, "hook": stop.hook, "reason": stop.reason, "response": turn.answer})

    async def _rounds(self, turn: _Turn) -> None:
        """Until the model calls no tool and nobody has typed anything."""
        while turn.rounds < self.agent.max_turns:
            turn.rounds += 1
            answer = await self._round(turn)
            if answer is None:
                return
            turn.answer = answer.text
            if answer.calls:
                await self._calls(turn, answer.calls)
                if turn.terminate:
                    return
            elif not self._steering and await self._well_formed(turn, answer):
                return
            await self._take_steering(turn)
            if 0 < self.agent.max_tokens <= _total(turn.usage):
                raise TurnFailed(
                    "max-tokens", f"the turn used {_total(turn.usage)} tokens of {self.agent.max_tokens} (maxTokens)"
                )
        raise TurnFailed("max-turns", f"the turn was not over after {self.agent.max_turns} rounds (maxTurns)")

    async def _well_formed(self, turn: _Turn, answer: Answer) -> bool:
        """Whether the answer is as `structuredOutput` wants it; else the model has been told what is wrong."""
        if self._form is None:
            return True
        text, wrong = await self._form.check(answer.text)
        if not wrong:
            turn.answer, turn.formed = text, True
            return True
        turn.formless += 1
        if turn.formless > TRIES:
            raise TurnFailed("structured-output", f"the answer is not as structuredOutput wants it: {wrong}")
        self._notice("warning", f"the answer is not as structuredOutput wants it, and is asked for again: {wrong}")
        again = self._form.again(wrong)
        self._emit("turn.pushed", {"turn": turn.id, "hook": "structuredOutput", "prompt": again})
        await self._keep(self.history.user(again))
        return False

    async def _check_form(self, turn: _Turn) -> None:
        """A turn that hooks ended has an answer that the model did not mean as one."""
        if self._form and not turn.formed:
            turn.answer, wrong = await self._form.check(turn.answer)
            if wrong:
                raise TurnFailed("structured-output", f"the answer is not as structuredOutput wants it: {wrong}")

    async def _take_steering(self, turn: _Turn) -> None:
        texts, self._steering = self._steering, []
        for text in texts:
            pre = await self.hooks.pre_generation(text)
            if pre.stopped:
                stop = pre.stopped
                said = {"hook": stop.hook, "reason": stop.reason, "response": stop.response or stop.marker}
                self._emit("turn.blocked", {"turn": turn.id, **said})
                continue
            self._emit("turn.question", {"turn": turn.id, "prompt": pre.prompt, "context": list(pre.context)})
            await self._keep(self.history.user(pre.prompt, pre.context))

    async def _keep(self, message: Message) -> None:
        """Passes a message that was just added through the `message` hooks."""
        if not self.hooks.has("message"):
            return
        kept = await self.hooks.message(message)
        if kept.failed:
            raise TurnFailed("hook-error", kept.failed)
        if message != kept.message:
            message.clear()
            message.update(kept.message)
            self._emit("message.kept", {"role": message.get("role"), "content": message.get("content")})

    # ---- room

    async def compact(self, turn_id: int) -> TurnDone:
        """Makes room because a person wants it. Cancelling the task leaves everything as it was."""
        turn = _Turn(turn_id)
        try:
            if not await self._compact(turn, await self._source.model(), "asked for", 0):
                turn.reason = "nothing-to-compact"
                self._notice("info", "there is nothing to compact yet")
        except asyncio.CancelledError:
            _go_on()
            turn.status, turn.reason = "cancelled", "cancelled"
        except (ModelFailure, TurnFailed) as failed:
            turn.fail("compact", str(failed))
            self._notice("error", f"the conversation was not compacted: {failed}")
        return TurnDone(turn_id, turn.status, "", turn.reason, turn.error, turn.usage)

    async def _make_room(self, turn: _Turn, model: Model) -> None:
        """Before a request that would leave too little of the window free."""
        window = model.context_window
        if not window or self._meter.used(self.history.messages) + room.reserve(window) <= window:
            return
        self._normalise()
        if pruned := room.prune(self.history, window):
            self._meter.forget()
            self._emit("context.pruned", {"keep": pruned.keep, "outputs": pruned.outputs, "tokens": pruned.tokens})
            if self._meter.used(self.history.messages) + room.reserve(window) <= window:
                return
        try:
            await self._compact(turn, model, "the window is nearly full")
        except ModelFailure as failure:
            self._notice("warning", f"the conversation was not compacted: {failure.message}")

    def _normalise(self) -> None:
        count = len(self.history.messages)
        self.history.normalise()
        if len(self.history.messages) != count:
            self._meter.forget()

    async def _compact(self, turn: _Turn, model: Model, why: str, part: float = room.KEPT_PART) -> bool:
        """Has the model write a summary that stands for all but the newest messages. False: nothing to leave out.

        Args:
            why: for the user.
            part: of the window, what the newest messages may take.

        Raises:
            ModelFailure: it did not write one; nothing has changed.
        """
        window = model.context_window or room.UNKNOWN_WINDOW
        self._normalise()
        messages = self.history.messages
        before = self._meter.used(messages)
        keep = room.kept_messages(messages, int(window * part))
        old = messages[: len(messages) - keep]
        if room.is_short(old):
            # The server counts more tokens than there seem to be: only the question that runs stays.
            keep = min(keep, room.since_question(messages))
            old = messages[: len(messages) - keep]
        if room.is_short(old):
            return False
        self._emit("context.compacting", {"tokens": before, "window": model.context_window, "why": why})
        answer: Answer | None = None
        async with aclosing(model.stream(room.summary_messages(old, window), ())) as items:
            async for item in items:
                if isinstance(item, Answer):
                    answer = item
        if answer is None or not answer.text.strip():
            raise ModelFailure("empty", "the model wrote no summary")
        turn.count(answer.usage)
        message = room.summary(answer.text.strip(), old, messages[len(old) :], asking=turn.rounds > 0)
        await self._keep(message)
        self.history.messages[:] = compact(messages, message["content"], keep, answered=not turn.rounds)
        self._meter.forget()
        after = self._meter.used(self.history.messages)
        said = {"summary": message["content"], "keep": keep, "answered": not turn.rounds}
        self._emit("context.compacted", {**said, "messages": len(old), "before": before, "after": after})
        return True

    # ---- the model

    async def _round(self, turn: _Turn) -> Answer | None:
        """The model's next answer; None when a hook stopped the turn before the request."""
        model = await self._source.model()
        self.hooks.model = model.name
        await self._make_room(turn, model)
        name, system, context = model.name, self._system, list[str]()
        if self.hooks.has("preModelRequest"):
            wanted = await self.hooks.pre_model_request(model.name, self._system, turn.rounds)
            if wanted.stopped:
                self._blocked(turn, wanted.stopped)
                self.history.assistant(Answer(turn.answer))
                return None
            name, system, context = wanted.model, wanted.system, list(wanted.context)
        prompt: Message = {"role": "system", "content": "\n\n".join([system, *context])}
        self._emit("model.request", {"turn": turn.id, "round": turn.rounds})
        started = time.monotonic()
        try:
            answer = await self._stream(turn, model, prompt, name)
        except ModelFailure as failure:
            if failure.kind != "overflow" or not await self._compact(turn, model, failure.message):
                raise
            answer = await self._stream(turn, model, prompt, name)
        turn.count(answer.usage)
        self._emit(
            "model.answer",
            {
                "turn": turn.id,
                "round": turn.rounds,
                "text": answer.text,
                "reasoning": answer.reasoning,
                "calls": [{"id": c.id, "name": c.name, "arguments": c.raw} for c in answer.calls],
                "finish": answer.finish,
                "usage": answer.usage,
                "ms": round((time.monotonic() - started) * 1000, 1),
                "cut_off": answer.cut_off,
            },
        )
        if answer.cut_off:
            self._notice("warning", "the answer was cut off at the model's token limit")
        await self._keep(self.history.assistant(answer))
        self._meter.counted(answer.usage, len(self.history.messages))
        return answer

    async def _stream(self, turn: _Turn, model: Model, prompt: Message, name: str) -> Answer:
        messages = [prompt, *self.history.messages]
        tools: Sequence[Tool] = self.tools
        more: dict[str, Any] = {}
        if self._form and (turn.formless or not tools):
            # A server that is held to a form calls no tools, so it is held to one only when none are wanted any more.
            tools, more = (), self._form.request
        filtered = TextFilter(self.hooks)
        shown: list[str] = []
        answer: Answer | None = None

        def show(text: str) -> None:
            if text:
                shown.append(text)
                self._emit("model.delta", {"text": text})

        try:
            async with aclosing(model.stream(messages, tools, model=name, more=more)) as items:
                async for item in items:
                    if isinstance(item, TextDelta):
                        show(await filtered.feed(item.text) if filtered.active else item.text)
                    elif isinstance(item, ReasoningDelta):
                        self._emit("model.reasoning", {"text": item.text})
                    elif isinstance(item, Waiting):
                        self._emit("model.wait", {"seconds": item.seconds, "why": item.why})
                    elif isinstance(item, Retrying):
                        shown.clear()
                        await filtered.restart()
                        retry = {"attempt": item.attempt, "why": item.why, "seconds": item.seconds}
                        self._emit("model.retry", retry)
                    elif isinstance(item, Notice):
                        self._notice("warning", item.text)
                    else:
                        answer = item
            if filtered.active:
                show(await filtered.flush())
        except asyncio.CancelledError:
            self._cut_short(turn, "".join(shown))
            raise
        if filtered.failed:
            raise TurnFailed("hook-error", filtered.failed)
        if answer is None:
            raise ModelFailure("broken", "the model's answer never came to an end")
        return replace(answer, text="".join(shown)) if filtered.active else answer

    def _cut_short(self, turn: _Turn, text: str) -> None:
        """A cancel or a failure in mid-answer: what was shown stays."""
        if text:
            turn.answer = text
            self.history.assistant(Answer(text))
            part = {"turn": turn.id, "round": turn.rounds, "text": text, "calls": [], "cut_off": True}
            self._emit("model.answer", part)

    # ---- the tools

    async def _calls(self, turn: _Turn, calls: Sequence[Call]) -> None:
        if self.agent.parallel_tools and len(calls) > 1:
            ready = [await self._before(turn, call) for call in calls]
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(self._run(call, pre)) if isinstance(pre, PreToolCall) else None
                    for call, pre in zip(calls, ready, strict=True)
                ]
            for call, pre, task in zip(calls, ready, running, strict=True):
                await self._after(turn, call, pre, task.result() if task else None)
            return
        for call in calls:
            pre = await self._before(turn, call)
            await self._after(turn, call, pre, await self._run(call, pre) if isinstance(pre, PreToolCall) else None)

    async def _before(self, turn: _Turn, call: Call) -> PreToolCall | _Refused:
        """Whether and how the call runs."""
        turn.calls += 1
        if 0 < self.agent.max_tool_calls < turn.calls:
            limit = f"more than {self.agent.max_tool_calls} tool calls (maxToolCalls)"
            self._denied(call, call.arguments or {}, "limit", limit)
            raise TurnFailed("max-tool-calls", f"the turn wanted {limit}")
        if call.error:
            return self._unusable(turn, call)
        asked = ToolCall(call.id, call.name, call.arguments or {})
        pre = await self.hooks.pre_tool_call(asked)
        turn.terminate = turn.terminate or pre.terminate
        if pre.denied is not None:
            return self._denied(call, pre.input, pre.denied_by, pre.denied, pre.context)
        if pre.result is None:
            reason, by = await self._permission(ToolCall(call.id, call.name, pre.input), pre)
            if reason:
                return self._denied(call, pre.input, by, reason, pre.context)
        return pre

    async def _permission(self, call: ToolCall, pre: PreToolCall) -> tuple[str, str]:
        """Why the call may not run and who says so; empty when it may."""
        ruling, rule = self._consent.rule(call)
        if ruling == "deny":
            return rule, "consent"
        if not pre.ask and (self.agent.yolo or ruling == "allow" or not self._tools[call.name].changing):
            return "", ""
        permission = await self.hooks.permission_request(call, forced=pre.ask)
        if permission.allowed is False:
            return permission.reason, permission.by
        if permission.allowed and not pre.ask:
            return "", ""
        why = f"the hook {pre.asked_by} wants a person to decide" if pre.ask else ""
        return await self._consent.person(call, why), "consent"

    def _denied(self, call: Call, arguments: Any, by: str, reason: str, context: Sequence[str] = ()) -> _Refused:
        data = {"id": call.id, "name": call.name, "input": dict(arguments), "by": by, "reason": reason}
        self._emit("tool.denied", {**data, "context": list(context)} if context else data)
        return _Refused(denied_marker(reason, by), tuple(context))

    def _unusable(self, turn: _Turn, call: Call) -> _Refused:
        """A call that cannot be run is an error that the model can read; nothing ran, so no hook is asked."""
        shown = call.arguments if call.arguments is not None else {"raw": call.raw[:2000]}
        self._emit("tool.start", {"id": call.id, "name": call.name, "input": shown})
        text = f"[error: {call.error}]"
        self._emit("tool.end", {"id": call.id, "name": call.name, "output": text, "is_error": True, "ms": 0.0})
        if call.problem == "leak":
            turn.leaks += 1
            if turn.leaks > LEAK_TRIES:
                raise TurnFailed("leak", f"the model put routing text into its arguments {turn.leaks} times")
        return _Refused(text)

    async def _run(self, call: Call, pre: PreToolCall) -> tuple[str, bool, dict[str, Any]]:
        start: dict[str, Any] = {"id": call.id, "name": call.name, "input": dict(pre.input)}
        if pre.input != call.arguments:
            start["asked"] = call.arguments
        self._emit("tool.start", start)
        if pre.result is not None:
            return pre.result, pre.result_is_error, {"ms": 0.0, "by": "hook"}
        if self._recorded and self._tools[call.name].changing:
            await self._recorded()
        started = time.monotonic()
        try:
            result = await self._tools[call.name].run(dict(pre.input), call.id)
        except MuxClosed:
            raise
        except Exception as error:
            traceback.print_exc()
            result = ToolResult(f"the tool {call.name} failed: {type(error).__name__}: {error}", True)
        elapsed = round((time.monotonic() - started) * 1000, 2)
        return result.output, result.is_error, {**result.data, "ms": elapsed}

    async def _after(
        self,
        turn: _Turn,
        call: Call,
        pre: PreToolCall | _Refused,
        done: tuple[str, bool, dict[str, Any]] | None,
    ) -> None:
        """Post hooks, the record, the history."""
        if isinstance(pre, _Refused) or done is None:
            assert isinstance(pre, _Refused)
            await self._result(turn, call, pre.output, pre.context)
            return
        output, is_error, data = done
        post = await self.hooks.post_tool_call(ToolCall(call.id, call.name, pre.input), output, is_error)
        turn.terminate = turn.terminate or post.terminate
        end = {**data, "id": call.id, "name": call.name, "output": post.output, "is_error": post.is_error}
        if post.rewritten or post.failed:
            end["original"] = _fingerprint(output)
        if post.failed:
            end["output"] = "[withheld: a hook that should have seen it failed]"
        context = (*pre.context, *post.context)
        self._emit("tool.end", {**end, "context": list(context)})
        if post.failed:
            self.history.tool(call.id, end["output"])
            raise TurnFailed("hook-error", post.failed)
        await self._result(turn, call, post.output, context)

    async def _result(self, turn: _Turn, call: Call, output: str, context: tuple[str, ...]) -> None:
        """The call's output into the history, and the loop breaker's look at it."""
        note = self._watch(turn, call, output)
        if note:
            self._emit("tool.note", {"id": call.id, "text": note})
        await self._keep(self.history.tool(call.id, output + note, context))
        if turn.same >= SAME_CALL_END:
            raise TurnFailed("loop", f"the model made the same {call.name} call {turn.same} times with the same result")

    def _watch(self, turn: _Turn, call: Call, output: str) -> str:
        """The loop breaker: what the model is told when it makes the same call with the same result again and again."""
        this = (f"{call.name}\0{call.raw}", output)
        turn.same = turn.same + 1 if this == turn.last_call else 1
        turn.last_call = this
        if turn.same < SAME_CALL_NOTICE:
            return ""
        self._notice("warning", f"the same {call.name} call with the same result, {turn.same} times in a row")
        return f"\n\n[notice: the same call with the same result, {turn.same} times in a row; do something else]"

    def _notice(self, level: str, text: str) -> None:
        self._emit("notice", {"level": level, "text": text})


def _go_on() -> None:
    """Takes a cancel as dealt with: else no `asyncio.timeout` of this task's could tell its own end from that one."""
    if task := asyncio.current_task():
        task.uncancel()


def _total(usage: dict[str, int]) -> int:
    return usage.get("total_tokens") or usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)


def _fingerprint(text: str) -> dict[str, Any]:
    """All that is kept of an output that a hook replaced."""
    import hashlib

    raw = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
