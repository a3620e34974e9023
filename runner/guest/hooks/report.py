"""The `hook` events: one for each run of a hook.

The events of one chain go out when the chain is over, because only then is it known whether the question was stopped
or the output masked: what a failed hook wrote to stderr may quote both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runner.guest.hooks.process import Outcome
from runner.guest.hooks.scrub import scrub
from runner.wire.agent import Hook

Emit = Callable[[str, dict[str, Any]], None]


@dataclass
class Report:
    """The `hook` events of one chain, until it is over."""

    call: str = ""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(self, hook: Hook, verdict: str, outcome: Outcome, reason: str = "", **more: Any) -> None:
        if outcome.pending:
            return  # it tells by itself, when it is over
        data: dict[str, Any] = {
            "event": hook.event,
            "hook": hook.name,
            "verdict": verdict,
            "reason": reason,
            "ms": round(outcome.seconds * 1000, 3),
        }
        if self.call:
            data["call"] = self.call
        if outcome.failure:
            data["on_error"] = hook.on_error
            if outcome.exit is not None:
                data["exit"] = outcome.exit
            if outcome.stderr:
                data["stderr"] = outcome.stderr
        self.events.append(("hook", {**data, **more}))
        if outcome.answer.notice:
            self.events.append(("notice", {"level": "info", "text": f"{hook.name}: {outcome.answer.notice}"}))

    def send(self, emit: Emit, *, secret: str | None = None, mute: bool = False) -> None:
        """Emits what was gathered.

        Args:
            secret: a text that must not show: its lines and likely secrets are masked, and no stderr goes out.
            mute: no stderr goes out.
        """
        for name, data in self.events:
            if secret is not None or mute:
                data = {key: value for key, value in data.items() if key != "stderr"}
            if secret is not None:
                data = {k: scrub(v, secret) if k in ("reason", "text") else v for k, v in data.items()}
            emit(name, data)
