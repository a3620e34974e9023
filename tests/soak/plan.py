"""What each line of a soak is to do, and what its result must be."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from runner.scripted.answers import CUT, Answer, Chunks, Pause, Raw, Reply, Say
from runner.scripted.request import Call, Request

GUARD = "case $(cat) in *forbidden*) echo 'not this one' >&2; exit 2;; esac"
"""A hook for every tool call: what holds the word is denied."""
TIMEOUT = 8.0
"""Seconds of a line that hangs."""


@dataclass(frozen=True)
class Kind:
    """A sort of line."""

    code: int
    """Of its result."""
    status: str
    """Of its turn, in the run's document."""
    said: str
    """Stands in the answer or in the message."""
    weight: int


KINDS = {
    "answer": Kind(0, "completed", "answered", 40),
    "tool": Kind(0, "completed", "ran: nothing else is here", 25),
    "deny": Kind(0, "completed", "denied: not this one", 15),
    "crash": Kind(1, "failed", "", 10),
    "refuse": Kind(1, "failed", "no such thing", 8),
    "hang": Kind(124, "cancelled", "not over after", 2),
}


def draw(count: int, seed: int) -> list[str]:
    """The kind of each line: every kind comes, in proportion, in an order of its own for each seed."""
    total = sum(kind.weight for kind in KINDS.values())
    kinds = [name for name, kind in KINDS.items() for _ in range(max(1, count * kind.weight // total))]
    kinds += ["answer"] * (count - len(kinds))
    random.Random(seed).shuffle(kinds)
    return kinds[:count]


def line(index: int, kind: str, workspace: str) -> dict[str, object]:
    """A line of the batch."""
    more = {"timeout": TIMEOUT} if kind == "hang" else {}
    return {"id": f"{kind}-{index}", "prompt": f"do {kind} {index}", "workspace": workspace, **more}


class Model:
    """Answers by plan: what a question gets depends on nothing but the question."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Answer:
        found = re.search(r"do (\w+) (\d+)", request.question)
        assert found
        kind, index = found.groups()
        self.asked[f"{kind}-{index}"] += 1
        match kind:
            case "tool" | "deny" if not request.outputs:
                words = "forbidden" if kind == "deny" else "nothing else is here"
                return Say(calls=[Call("bash", {"command": f"test $(ls | wc -l) = 0 && echo {words}"})])
            case "tool":
                return Say(f"ran: {request.outputs[-1]}")
            case "deny":
                return Say(f"denied: {'not this one' if 'not this one' in request.outputs[-1] else 'NOT'}")
            case "crash":
                return Chunks([{"choices": [{"index": 0, "delta": {"content": "so far"}}]}, CUT], done=False)
            case "refuse":
                return Reply(404, {"error": {"message": "no such thing"}})
            case "hang":
                return Raw([Pause(600)])
        return Say("answered")
