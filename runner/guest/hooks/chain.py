"""The chain: which hooks run at a moment, in which order, and what they come to together.

Every front end's turn passes here, so none can forget the hooks. Each hook sees what the one before made of it; the
first refusal ends the chain. A hook that fails is dealt with by its `onError`; a guard that tried to decide and cannot
be understood refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.guest.hooks import process
from runner.guest.hooks.answer import NOTHING
from runner.guest.hooks.dialect import DIALECTS, payload
from runner.guest.hooks.host import MAY_REFUSE, HostHooks, HostRunner
from runner.guest.hooks.match import Matchers
from runner.guest.hooks.persistent import PersistentHook
from runner.guest.hooks.process import Outcome, Places
from runner.guest.hooks.report import Emit, Report
from runner.guest.hooks.results import (
    MAX_PUSHES,
    Kept,
    ModelRequest,
    Permission,
    PostGeneration,
    PostToolCall,
    PreGeneration,
    PreToolCall,
    Pushed,
    SessionStart,
    Stop,
    ToolCall,
)
from runner.guest.hooks.scrub import scrub
from runner.guest.spawn.command import EMPTY_HOME, HOOK, HOOK_TMP, Identity
from runner.wire.agent import GUARD_EVENTS, TOOL_EVENTS, Hook

ASKED_A_PERSON = "a hook asks for a person, and this event has nobody to ask"


class HookChain:
    """The hooks of a session.

    Args:
        hooks: in the order they run: kit, agent, command line, policy.
        spawner: starts processes under other identities (`runner.guest.spawn`).
        workspace: where hooks start, and the `cwd` they are told.
        config_dir: `MM_CONFIG_DIR`, the copy of the kit's folder.
        hooks_dir: `SBX_HOOKS_DIR`, the ready-made hooks.
        owner: the workspace's owner, for hooks with `user: owner`.
        emit: takes an event's name and data.
        session: the session's id.
        model: the model's name, once it is known; may be set later.
        guard: the identity of hooks with `user: hook`.
        home, guard_tmp: the empty HOME, and the one folder a guard may write.
        host: runs the hooks with `where: host`; without it, those are left out.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        spawner: Any,
        *,
        workspace: str,
        config_dir: str,
        hooks_dir: str,
        owner: Identity,
        emit: Emit,
        session: str = "",
        model: str = "",
        guard: Identity = HOOK,
        home: str = EMPTY_HOME,
        guard_tmp: str = HOOK_TMP,
        host: HostRunner | None = None,
    ) -> None:
        self.hooks = tuple(hook for hook in hooks if hook.where == "sandbox" or host)
        self._host = HostHooks(host) if host else None
        self.session = session
        self.model = model
        self._spawner = spawner
        self._emit = emit
        self._workspace = workspace
        self._places = Places(workspace, config_dir, hooks_dir, owner, guard, home, guard_tmp)
        self._matchers = Matchers(spawner)
        self._by_event: dict[str, tuple[Hook, ...]] = {}
        for hook in self.hooks:
            self._by_event[hook.event] = (*self._by_event.get(hook.event, ()), hook)
        self._persistent = {
            hook.name: PersistentHook(hook, self._places, spawner) for hook in self.hooks if hook.persistent
        }

    def has(self, event: str) -> bool:
        """Whether any hook is configured for the event."""
        return event in self._by_event

    async def start(self) -> None:
        """Starts the persistent hooks, so that the first question does not wait for them."""
        async with asyncio.TaskGroup() as group:
            for hook in self._persistent.values():
                group.create_task(hook.start())

    async def close(self) -> None:
        """Ends the persistent hooks, and waits for those on the host that nobody waits for."""
        async with asyncio.TaskGroup() as group:
            if self._host:
                group.create_task(self._host.close())
            for hook in self._persistent.values():
                group.create_task(hook.close())

    # ---- the four

    async def pre_generation(self, prompt: str) -> PreGeneration:
        """Before the first model call. A stopped question's text reaches no event."""
        report = Report()
        asked = prompt
        context: list[str] = []
        for hook in self._by_event.get("preGeneration", ()):
            outcome = await self._ask(hook, {"prompt": prompt})
            said = outcome.answer
            if stop := self._stopped(hook, outcome, report):
                stop = replace(stop, reason=scrub(stop.reason, asked), response=scrub(stop.response, asked))
                report.send(self._emit, secret=asked)
                return PreGeneration(prompt="", stopped=stop)
            if outcome.failure:
                continue
            verdict = "continue"
            if said.context:
                context.append(said.context)
                verdict = "context"
            if "prompt" in said.replaced:
                prompt = said.replaced["prompt"]
                verdict = "rewrite"
            report.add(hook, verdict, outcome, said.reason)
        report.send(self._emit, secret=asked if prompt != asked else None)
        return PreGeneration(prompt, tuple(context))

    async def pre_tool_call(self, call: ToolCall) -> PreToolCall:
        """Before a call, and before consent is asked."""
        done = PreToolCall(call.input)
        if not self.has("preToolCall"):
            return done
        report = Report(call.id)
        context: list[str] = []
        for hook in await self.matching("preToolCall", call.name):
            outcome = await self._ask(hook, {"tool": _tool(call, done.input)})
            said = outcome.answer
            ends = said.terminate or (said.end and hook.dialect != "" and DIALECTS[hook.dialect].end_ends_the_turn)
            done = replace(done, terminate=done.terminate or ends)
            reason = self._refusal(hook, outcome, report)
            if reason:
                done = replace(done, denied=reason, denied_by=hook.name, result=None, ask=False)
                break
            if outcome.failure:
                continue
            verdict = "continue"
            if said.context:
                context.append(said.context)
                verdict = "context"
            if "input" in said.replaced:
                done = replace(done, input=self._input(hook, call.name, said.replaced["input"], done.input))
                verdict = "rewrite"
            if said.result is not None:
                done = replace(done, result=said.result, result_is_error=said.result_is_error, answered_by=hook.name)
                verdict = "result"
            if said.ask:
                done = replace(done, ask=True, asked_by=done.asked_by or hook.name)
                verdict = "ask"
            report.add(hook, verdict, outcome, said.reason)
        report.send(self._emit)
        return replace(done, context=tuple(context))

    async def post_tool_call(self, call: ToolCall, output: str, is_error: bool) -> PostToolCall:
        """After a call that ran, or that a hook answered. `call.input` is what the tool ran with."""
        done = PostToolCall(output, is_error)
        if not self.has("postToolCall"):
            return done
        report = Report(call.id)
        context: list[str] = []
        for hook in await self.matching("postToolCall", call.name):
            data = {"tool": _tool(call, call.input), "output": done.output, "isError": done.is_error}
            outcome = await self._ask(hook, data)
            said = outcome.answer
            done = replace(done, terminate=done.terminate or said.terminate)
            if outcome.failure:
                report.add(hook, "error", outcome, outcome.failure)
                if hook.on_error == "fail":
                    done = replace(done, failed=f"{hook.name}: {outcome.failure}")
                    break
                continue
            verdict = "continue"
            told = said.context or (said.reason if said.refuse else "")
            if told:
                context.append(told)
                verdict = "context"
            if said.end:
                done = replace(done, terminate=True)
                verdict = "stop"
            if said.replaced:
                done = replace(
                    done,
                    output=said.replaced.get("output", done.output),
                    is_error=said.replaced.get("isError", done.is_error),
                    rewritten=True,
                )
                verdict = "rewrite"
            report.add(hook, verdict, outcome, said.reason)
        report.send(self._emit, mute=done.rewritten or bool(done.failed))
        return replace(done, context=tuple(context))

    async def post_generation(
        self, prompt: str, answer: str, error: str, usage: Mapping[str, Any] | None = None
    ) -> PostGeneration:
        """After the turn, whatever its outcome. Observes. For a stopped question `prompt` is its marker."""
        data = {"prompt": prompt, "answer": answer, "error": error, "usage": dict(usage or {})}
        return PostGeneration(await self._observe("postGeneration", data))

    # ---- beyond the four

    async def session_start(self) -> SessionStart:
        """Once, before the first question; may add context to the session, or refuse it."""
        report = Report()
        context: list[str] = []
        for hook in self._by_event.get("sessionStart", ()):
            outcome = await self._ask(hook, {})
            if stop := self._stopped(hook, outcome, report):
                report.send(self._emit)
                return SessionStart(tuple(context), stop)
            if not outcome.failure:
                said = outcome.answer.context
                context += [said] if said else []
                report.add(hook, "context" if said else "continue", outcome, outcome.answer.reason)
        report.send(self._emit)
        return SessionStart(tuple(context))

    async def session_end(self, status: str) -> None:
        """Once, when the session ends. Observes."""
        await self._observe("sessionEnd", {"status": status})

    async def permission_request(self, call: ToolCall, *, forced: bool = False) -> Permission:
        """Before a person is asked. Any deny wins; a forced prompt can be denied and never allowed."""
        if not self.has("permissionRequest"):
            return Permission()
        report = Report(call.id)
        allowed_by = ""
        for hook in await self.matching("permissionRequest", call.name):
            outcome = await self._ask(hook, {"tool": _tool(call, call.input), "forced": forced})
            reason = self._refusal(hook, outcome, report)
            if not reason and outcome.answer.replaced and not outcome.failure:
                reason = "it would replace the input, which only preToolCall may"
                report.add(hook, "deny", outcome, reason)
            if reason:
                report.send(self._emit)
                return Permission(False, reason, hook.name)
            if outcome.failure:
                continue
            said = outcome.answer
            if said.allow and not said.ask and not forced:
                allowed_by = allowed_by or hook.name
            report.add(hook, "ask" if said.ask else "continue", outcome, said.reason, allow=said.allow)
        report.send(self._emit)
        return Permission(True, by=allowed_by) if allowed_by else Permission()

    async def pre_model_request(self, model: str, system: str, round_number: int) -> ModelRequest:
        """Before each model request: may choose the model and the system prompt for this one, or stop the turn."""
        done = ModelRequest(model, system)
        report = Report()
        context: list[str] = []
        for hook in self._by_event.get("preModelRequest", ()):
            data = {"request": {"model": done.model, "system": done.system, "round": round_number}}
            outcome = await self._ask(hook, data)
            if stop := self._stopped(hook, outcome, report):
                report.send(self._emit)
                return replace(done, stopped=stop)
            if outcome.failure:
                continue
            said = outcome.answer
            context += [said.context] if said.context else []
            if said.replaced:
                done = replace(done, **said.replaced)
            verdict = "rewrite" if said.replaced else "context" if said.context else "continue"
            report.add(hook, verdict, outcome, said.reason)
        report.send(self._emit)
        return replace(done, context=tuple(context))

    async def message(self, message: Mapping[str, Any]) -> Kept:
        """A message before it is kept. A rewrite that loses the role or an id counts as a failure."""
        report = Report()
        rewritten = False
        for hook in self._by_event.get("message", ()):
            outcome = await self._ask(hook, {"message": message})
            changed = outcome.answer.replaced.get("message")
            if not outcome.failure and changed is not None and not _same_skeleton(message, changed):
                outcome = replace(outcome, failure="its message lost or changed a role or an id")
            if outcome.failure:
                report.add(hook, "error", outcome, outcome.failure)
                if hook.on_error == "fail":
                    report.send(self._emit, mute=True)
                    return Kept(message, f"{hook.name}: {outcome.failure}")
                continue
            if changed is not None:
                message, rewritten = changed, True
            report.add(hook, "continue" if changed is None else "rewrite", outcome, outcome.answer.reason)
        report.send(self._emit, mute=rewritten)
        return Kept(message)

    async def stop(self, answer: str, pushed: int) -> Pushed:
        """When a turn would end. A refusal pushes it on, with the reason as the next question.

        Args:
            answer: the turn's answer so far.
            pushed: how often this turn was pushed on already; from `MAX_PUSHES` on no hook is asked.
        """
        hooks = self._by_event.get("stop", ())
        if not hooks:
            return Pushed()
        if pushed >= MAX_PUSHES:
            self._emit("notice", {"level": "warning", "text": f"hooks pushed this turn on {MAX_PUSHES} times: it ends"})
            return Pushed()
        report = Report()
        done = Pushed()
        for hook in hooks:
            outcome = await self._ask(hook, {"answer": answer, "pushed": pushed})
            said = outcome.answer
            if outcome.failure:
                report.add(hook, "error", outcome, outcome.failure)
                if hook.on_error == "fail":
                    done = Pushed(failed=f"{hook.name}: {outcome.failure}")
                    break
                continue
            if said.end or said.terminate:
                report.add(hook, "stop", outcome, said.reason)
                done = Pushed()
                break
            if said.refuse:
                reason = said.reason or said.context or "a hook wants the work to go on"
                report.add(hook, "deny", outcome, reason)
                done = done if done.reason else Pushed(reason, hook.name)
                continue
            report.add(hook, "continue", outcome, said.reason)
        report.send(self._emit)
        return done

    # ---- one hook

    async def ask_one(self, hook: Hook, data: Mapping[str, Any], *, exact: bool = False) -> Outcome:
        """Asks one hook, for the filter of deltas and for `sbx hook test`. Emits nothing.

        Args:
            data: the event's own fields; with `exact` the whole of what the hook reads.
        """
        return await (self._run(hook, data) if exact else self._ask(hook, data))

    def with_hooks(self, hooks: Sequence[Hook]) -> HookChain:
        """Another chain in the same places, that emits nothing. The caller closes it."""
        places = self._places
        return HookChain(
            hooks,
            self._spawner,
            workspace=places.workspace,
            config_dir=places.config_dir,
            hooks_dir=places.hooks_dir,
            owner=places.owner,
            emit=lambda name, data: None,
            session=self.session,
            model=self.model,
            guard=places.guard,
            home=places.home,
            guard_tmp=places.guard_tmp,
        )

    def of(self, event: str) -> tuple[Hook, ...]:
        """The hooks of an event, in order."""
        return self._by_event.get(event, ())

    def emit(self, name: str, data: dict[str, Any]) -> None:
        self._emit(name, data)

    async def _ask(self, hook: Hook, data: Mapping[str, Any]) -> Outcome:
        told = payload(hook.dialect, hook.event, data, session=self.session, cwd=self._workspace, model=self.model)
        return await self._run(hook, told, str(data["tool"]["id"]) if "tool" in data else "")

    async def _run(self, hook: Hook, told: Mapping[str, Any], call: str = "") -> Outcome:
        if hook.where == "host":
            return await self._on_host(hook, told, call)
        if hook.persistent:
            return await self._persistent[hook.name].ask(told)
        return await process.run(hook, told, self._places, self._spawner)

    async def _on_host(self, hook: Hook, told: Mapping[str, Any], call: str) -> Outcome:
        """A hook on the host is waited for where it may refuse, or where its failure must end the turn."""
        if self._host is None:
            return Outcome(failure="there is no host to run it")
        if hook.event in MAY_REFUSE:
            return await self._host.ask(hook, told)
        if hook.on_error == "fail":
            return replace(await self._host.ask(hook, told), answer=NOTHING)

        def over(outcome: Outcome) -> None:
            report = Report(call)
            report.add(hook, "error" if outcome.failure else "continue", outcome, outcome.failure)
            report.send(self._emit)

        self._host.tell(hook, told, over)
        return Outcome(pending=True)

    async def _observe(self, event: str, data: Mapping[str, Any]) -> str:
        report = Report()
        failed = ""
        for hook in self._by_event.get(event, ()):
            outcome = await self._ask(hook, data)
            if outcome.failure:
                report.add(hook, "error", outcome, outcome.failure)
                if hook.on_error == "fail" and not failed:
                    failed = f"{hook.name}: {outcome.failure}"
            else:
                report.add(hook, "continue", outcome, outcome.answer.reason)
        report.send(self._emit)
        return failed

    async def matching(self, event: str, tool: str) -> Sequence[Hook]:
        """The event's hooks whose matcher finds the tool, in order."""
        chosen = []
        for hook in self._by_event.get(event, ()):
            names = [tool]
            if hook.dialect and (theirs := DIALECTS[hook.dialect].tool_name(tool)) != tool:
                names.append(theirs)
            matches, certain = await self._matchers.matches(hook.matcher, names)
            if not certain:
                text = f"{hook.name}: its matcher could not be decided in time for {tool[:80]!r}; the hook runs"
                self._emit("notice", {"level": "warning", "text": text})
            if matches:
                chosen.append(hook)
        return chosen

    def _refusal(self, hook: Hook, outcome: Outcome, report: Report) -> str:
        """The reason when this outcome refuses, by decision or by failure; reports refusals and failures."""
        said = outcome.answer
        if said.refuse and not outcome.failure:
            reason = said.reason or "no reason given"
            report.add(hook, "deny" if hook.event in TOOL_EVENTS else "stop", outcome, reason)
            return reason
        if said.ask and not outcome.failure and hook.event not in TOOL_EVENTS:
            report.add(hook, "stop", outcome, ASKED_A_PERSON)
            return ASKED_A_PERSON
        if not outcome.failure:
            return ""
        report.add(hook, "error", outcome, outcome.failure)
        if hook.on_error == "fail" or (not outcome.understood and hook.event in GUARD_EVENTS):
            return f"the hook {hook.name} failed: {outcome.failure}"
        return ""

    def _stopped(self, hook: Hook, outcome: Outcome, report: Report) -> Stop | None:
        reason = self._refusal(hook, outcome, report)
        if not reason:
            return None
        return Stop(hook.name, reason, outcome.answer.response, failed=bool(outcome.failure))

    def _input(self, hook: Hook, tool: str, given: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return DIALECTS[hook.dialect].to_ours(tool, given, asked) if hook.dialect else given


def _tool(call: ToolCall, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "input": given}


def _same_skeleton(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether role, tool call ids and names survived: servers refuse a history where they do not fit."""

    def skeleton(message: Mapping[str, Any]) -> tuple[Any, ...]:
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            return ("broken",)
        return (
            message.get("role"),
            message.get("tool_call_id"),
            message.get("id"),
            [(call.get("id"), call.get("type")) if isinstance(call, dict) else None for call in calls],
        )

    return skeleton(before) == skeleton(after)
