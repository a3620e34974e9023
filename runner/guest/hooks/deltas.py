"""Filtering the answer while it streams: the `textDelta` hooks."""

from __future__ import annotations

from typing import Any

from runner.guest.hooks.chain import HookChain


class TextFilter:
    """The `textDelta` hooks over one answer.

    A hook may hold text back (by answering `text: ""`) and give it later; at the end each is asked once more with
    `flush: true`. When a request is tried again, `restart` starts over and what was held back is forgotten. One `hook`
    event a hook tells of the whole answer: an event a delta would drown the record.
    """

    def __init__(self, chain: HookChain) -> None:
        self._chain = chain
        self._hooks = chain.of("textDelta")
        self._attempt = 1
        self._runs = [0] * len(self._hooks)
        self._seconds = [0.0] * len(self._hooks)
        self._changed = [False] * len(self._hooks)
        self._failed: dict[int, tuple[str, str]] = {}
        self.failed = ""
        """A hook with `onError: fail` failed: the turn ends as failed, and nothing more comes out."""

    @property
    def active(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self._hooks)

    async def feed(self, text: str) -> str:
        """One delta in, what may be shown out."""
        return await self._through(text, flush=False) if self._hooks and text else text

    async def flush(self) -> str:
        """The end of the answer: what was held back comes out. Emits the events."""
        if not self._hooks:
            return ""
        rest = await self._through("", flush=True)
        self._report()
        return rest

    async def restart(self) -> None:
        """The request is tried again: the answer begins anew."""
        self._attempt += 1

    async def _through(self, text: str, *, flush: bool) -> str:
        for index, hook in enumerate(self._hooks):
            if self.failed:
                return ""
            if not text and not flush:
                return ""
            data: dict[str, Any] = {"text": text, "flush": flush, "attempt": self._attempt}
            outcome = await self._chain.ask_one(hook, data)
            self._runs[index] += 1
            self._seconds[index] += outcome.seconds
            if outcome.failure:
                self._failed.setdefault(index, (outcome.failure, outcome.stderr))
                if hook.on_error == "fail":
                    self.failed = f"{hook.name}: {outcome.failure}"
                    self._report()
                    return ""
                continue
            if outcome.answer.refuse:
                self.failed = f"{hook.name}: {outcome.answer.reason or 'it stopped the answer'}"
                self._report()
                return ""
            changed = outcome.answer.replaced.get("text", text)
            self._changed[index] |= changed != text
            text = changed
        return text

    def _report(self) -> None:
        for index, hook in enumerate(self._hooks):
            failure = self._failed.get(index)
            data: dict[str, Any] = {
                "event": "textDelta",
                "hook": hook.name,
                "verdict": "error" if failure else "rewrite" if self._changed[index] else "continue",
                "reason": failure[0] if failure else "",
                "ms": round(self._seconds[index] * 1000, 3),
                "runs": self._runs[index],
            }
            if failure:
                data["on_error"] = hook.on_error
            self._chain.emit("hook", data)
        self._runs = [0] * len(self._hooks)
