"""Room in the model's context: how much is left, and how more of it is made.

Two ways, tried in this order. *Pruning* leaves out the outputs of old tool calls, which are most of a long session and
can be had again by making the call again. *Compacting* has the model write a summary that stands for everything but the
newest messages. The cut lies before a question or an answer, never between a call and its result.

The estimate starts from what the server counted for the last request and adds the characters since; a server that
counts nothing is estimated by characters alone. It errs to the safe side only by its margin: what does not fit after
all comes back from the server as an overflow, which makes room once and asks again.

The summary is asked for over a transcript in plain text, not over the messages themselves: it must be shorter than the
window that is full, and servers' templates refuse calls without the tools that they name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.guest.history import History, Message
from runner.guest.tools.base import Tool
from runner.wire import markers

CHARACTERS_A_TOKEN = 4
"""Rough, and the right size for English text and code."""
FREE_TOKENS = 16_384
FREE_PART = 0.15
"""Room is made when less than the larger of the two is free; in a small window, when half of it is."""
UNKNOWN_WINDOW = 8192
"""Tokens that a conversation is made to fit when the server said that it does not, and not how much would."""
KEPT_PART = 0.25
"""Part of the window that the newest messages, which stay as they are, may take."""
PRUNE_GAIN = 0.1
"""Part of the window that pruning must free, or a summary is written instead."""
TRANSCRIPT_OUTPUT = 2000
"""Characters of one tool output or argument in the transcript."""
TRANSCRIPT_TEXT = 8000
"""Characters of one question or answer in the transcript."""
SUMMARY_TOKENS = 4096
"""Room for the summary itself."""

SUMMARY_SYSTEM = "You write summaries of conversations between a user and an assistant that works with tools."
SUMMARY_REQUEST = """\
Write a summary of the conversation above, from which the assistant can go on without having seen it. Say what the \
user wants, what was decided and why, which files were read or changed and what is in them that still matters, what \
was tried and failed, and what is to be done next. Keep names, paths, numbers and commands exactly. Write the summary \
only."""


def tokens_of(characters: int) -> int:
    """An estimate."""
    return -(-characters // CHARACTERS_A_TOKEN)


def size_of(message: Message) -> int:
    """Characters of a message that count for the model."""
    size = len(message.get("content") or "") + 16
    for call in message.get("tool_calls") or ():
        size += len(call["function"]["name"]) + len(call["function"]["arguments"]) + 32
    return size


def size_of_tools(tools: Sequence[Tool]) -> int:
    """Characters of what a request tells of the tools."""
    return sum(len(t.name) + len(t.description) + len(json.dumps(t.parameters)) for t in tools)


@dataclass
class Meter:
    """How full the window is.

    Args:
        fixed: characters of the system prompt and the tools.
    """

    fixed: int = 0
    _counted: int = 0
    _messages: int = 0

    def counted(self, usage: dict[str, int], messages: int) -> None:
        """The server counted a request and its answer, which is the last of `messages` messages."""
        prompt = usage.get("prompt_tokens", 0)
        if prompt > 0:
            self._counted, self._messages = prompt + usage.get("completion_tokens", 0), messages

    def forget(self) -> None:
        """The messages were changed: what the server counted is no longer true."""
        self._counted = self._messages = 0

    def used(self, messages: Sequence[Message]) -> int:
        """Tokens that the next request takes, estimated."""
        if self._counted and self._messages <= len(messages):
            return self._counted + tokens_of(sum(size_of(m) for m in messages[self._messages :]))
        return tokens_of(self.fixed + sum(size_of(m) for m in messages))


def reserve(window: int) -> int:
    """Tokens that are to stay free: for the answer, and for what the next tool calls bring."""
    return max(int(window * FREE_PART), min(FREE_TOKENS, window // 2))


def kept_messages(messages: Sequence[Message], budget: int) -> int:
    """How many of the newest messages stay within `budget` tokens, such that no result is without its call."""
    size = kept = 0
    for count, message in enumerate(reversed(messages), 1):
        size += tokens_of(size_of(message))
        if size > budget:
            break
        if message["role"] != "tool":
            kept = count
    return min(kept, max(len(messages) - 1, 0))


def since_question(messages: Sequence[Message]) -> int:
    """How many messages there are from the last question on."""
    return next((n for n, m in enumerate(reversed(messages), 1) if m["role"] == "user"), len(messages))


@dataclass(frozen=True)
class Pruned:
    keep: int
    outputs: int
    tokens: int
    """Freed, estimated."""


def prune(history: History, window: int) -> Pruned | None:
    """Leaves out the outputs of old tool calls; None when that would free too little to be worth the change."""
    keep = kept_messages(history.messages, int(window * KEPT_PART))
    after = markers.prune(history.messages, keep)
    changed = [(a, b) for a, b in zip(history.messages, after, strict=True) if a is not b]
    freed = tokens_of(sum(size_of(a) - size_of(b) for a, b in changed))
    if not changed or freed < window * PRUNE_GAIN:
        return None
    history.messages[:] = after
    return Pruned(keep, len(changed), freed)


def transcript(messages: Sequence[Message], budget: int) -> str:
    """The messages as text of at most `budget` tokens; where that is too little the oldest are left out, and told."""
    parts: list[str] = []
    size = 0
    for message in reversed(messages):
        part = _part(message)
        size += len(part)
        if tokens_of(size) > budget and parts:
            parts.append("[earlier messages are left out]")
            break
        parts.append(part[-budget * CHARACTERS_A_TOKEN :])
    return "\n\n".join(reversed(parts))


def _part(message: Message) -> str:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return f"TOOL OUTPUT: {_cut(content, TRANSCRIPT_OUTPUT)}"
    if message["role"] == "user":
        return f"USER: {_cut(content, TRANSCRIPT_TEXT)}"
    parts = [f"ASSISTANT: {_cut(content, TRANSCRIPT_TEXT)}"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    parts += [f"CALLS {each['name']}: {_cut(each['arguments'], TRANSCRIPT_OUTPUT)}" for each in calls]
    return "\n".join(parts)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n[… {len(text) - limit} characters …]\n{text[-limit // 2 :]}"


def is_short(messages: Sequence[Message]) -> bool:
    """There is nothing in the messages that a summary would make shorter: no answer but to a summary."""
    return not any(m["role"] == "assistant" and m.get("content") != markers.UNDERSTOOD for m in messages)


def summary(text: str, old: Sequence[Message], kept: Sequence[Message], *, asking: bool) -> Message:
    """The message that stands for `old`.

    Args:
        asking: a turn runs: when its question is among `old`, it is repeated word for word.
    """
    content = f"{markers.SUMMARY_LABEL}\n{text}"
    if asking and not any(m["role"] == "user" for m in kept):
        question = next((str(m["content"]) for m in reversed(old) if m["role"] == "user"), "")
        if question and not question.startswith(markers.SUMMARY_LABEL):
            content += f"\n\n[the question that is being worked on]\n{_cut(question, TRANSCRIPT_TEXT)}"
    return {"role": "user", "content": content}


def summary_messages(messages: Sequence[Message], window: int) -> list[dict[str, Any]]:
    """The request for a summary of `messages`."""
    budget = max(window - reserve(window) - SUMMARY_TOKENS, window // 4)
    text = f"{transcript(messages, budget)}\n\n---\n\n{SUMMARY_REQUEST}"
    return [{"role": "system", "content": SUMMARY_SYSTEM}, {"role": "user", "content": text}]
