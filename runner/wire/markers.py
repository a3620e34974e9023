"""The words that stand in a history for what the host or the guest did, so that both write the same ones.

The guest writes a history as it happens; the host writes it again from the record, at a resume. A marker that differed
between the two would be a prompt whose beginning changes, and a model that reads two things for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Message = dict[str, Any]

CONTEXT_LABEL = "[context added by a hook]"
"""Stands before context in what the model reads."""

CANCELLED = "[cancelled by the user before it finished]"
UNKNOWN_RESULT = "[no result: the session ended while this call ran; what it did is not known]"
NOT_RUN = "[not run: the turn ended before this call]"
NO_ANSWER = "[the turn ended without an answer]"
PRUNED = "[an old output was left out here to save room; make the call again if you need it]"
"""Stands for the output of a call that was pruned."""
SUMMARY_LABEL = "[summary of the conversation so far]"
UNDERSTOOD = "Understood."
"""The answer that stands between a summary and a question: two questions in a row are refused by some servers."""


def blocked_marker(reason: str) -> str:
    """What the history keeps of a stopped question."""
    return f"[prompt blocked by a hook: {reason}]"


def denied_marker(reason: str, by: str = "") -> str:
    """What the model reads as the output of a call that did not run.

    Args:
        by: a hook's name, or `consent` (a person), `policy`, `limit` (of calls).
    """
    if by == "limit":
        return f"[not run: {reason}]"
    who = {"consent": "the user", "policy": "policy"}.get(by, "a hook")
    return f"[denied by {who}: {reason}]"


def with_context(text: str, context: Iterable[Any]) -> str:
    """`text` with every piece of context below it, labelled."""
    return "\n\n".join([text, *(f"{CONTEXT_LABEL}\n{piece}" for piece in context if piece)])


def ending(status: str, error: str = "") -> str:
    """The answer that stands where a turn ended without one.

    Args:
        status: of the turn: `cancelled`, `failed`, `stopped`, or empty when nobody knows.
    """
    if status == "cancelled":
        return CANCELLED
    return f"[the turn failed: {error}]" if error else NO_ANSWER


# ---- making room, done by the guest and done again at a resume


PRUNED_FROM = 1000
"""Characters of an output from which on leaving it out saves room worth speaking of."""


def prune(messages: Sequence[Message], keep: int) -> list[Message]:
    """The messages with the outputs of tools left out, but for those among the last `keep` messages.

    Short outputs stay, and so does every call with its result: a server refuses one without the other.
    """
    pruned = []
    for index, message in enumerate(messages):
        old = index < len(messages) - keep
        if old and message["role"] == "tool" and len(message["content"]) >= PRUNED_FROM:
            message = {**message, "content": PRUNED}
        pruned.append(message)
    return pruned


def compact(messages: Sequence[Message], summary: str, keep: int, *, answered: bool = False) -> list[Message]:
    """The summary, then the last `keep` messages, without results whose call is gone.

    Args:
        answered: a question comes next, so the summary needs an answer of its own.
    """
    kept = list(messages[-keep:]) if 0 < keep <= len(messages) else []
    while kept and kept[0]["role"] == "tool":
        kept.pop(0)
    head: list[Message] = [{"role": "user", "content": summary}]
    if kept[0]["role"] == "user" if kept else answered:
        head.append({"role": "assistant", "content": UNDERSTOOD})
    return head + kept
