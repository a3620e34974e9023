"""Attacks on the hooks, by what a model can do: tool calls, one after the other, and background jobs.

Each guard refuses commands that hold its own word (`FORBID-FILE`, …). An attack prepares something, then makes the
call that the guard must refuse; a marker on the host's side of the workspace tells whether it ran.
"""

from __future__ import annotations

import asyncio
import io
import re
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from runner.frontends import safe
from runner.frontends.banner import Banner
from runner.frontends.printer import Printer
from runner.frontends.terminal import Output
from runner.wire.messages import Event
from tests.escape.attack import HARDENED, PRELUDE, Outcome
from tests.escape.stage import Stage

Step = dict[str, Any] | str


@dataclass(frozen=True)
class GuardAttack:
    """Calls that end with one that must not run, or with a marker that must not be written."""

    name: str
    control: str
    off: str
    steps: Callable[[str], list[Step]]
    """From the workspace's path, the calls. The marker is `WORKSPACE/reached`."""
    owners: tuple[int, ...] = (1000, 0)
    slow: bool = False

    def run(self, stage: Stage, where: str) -> Outcome:
        box = stage.box(where)
        marker = box.workspace / "reached"
        marker.unlink(missing_ok=True)
        events = box.ask(self.steps(str(box.workspace)))
        calls = [e for e in events if e.name in ("tool.end", "tool.denied")]
        if marker.exists():
            return Outcome(True, True, "REACHED " + (marker.read_text().strip() or "the forbidden call ran"))
        denied = [e.data for e in calls if e.name == "tool.denied"]
        said = f"by {denied[-1].get('by')}: {denied[-1].get('reason')}" if denied else "no marker was made"
        end = events[-1].data
        return Outcome(False, end.get("status") == "completed" and bool(calls), f"refused {said}"[:120])


def _forbidden(word: str) -> Step:
    return {"command": f"touch reached # FORBID-{word}"}


def _python(script: str, **more: Any) -> Step:
    text = PRELUDE + script
    return {
        "command": f"cat > /tmp/attack.py <<'END-OF-SCRIPT'\n{text}\nEND-OF-SCRIPT\npython3 -I /tmp/attack.py",
        **more,
    }


WATCH = """
def guards():
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = open(f"/proc/{name}/cmdline", "rb").read()
            if line.endswith(b"\\0waits\\0") and b"FORBID-" in line and not line.startswith(b"sh"):
                yield int(name)
        except OSError:
            pass
end = time.monotonic() + 0.5
while time.monotonic() < end:
    for pid in guards():
        try:
            once(pid)
        except OSError:
            continue
        open("reached", "w").write(what)
        sys.exit()
"""


def _watching(body: str) -> Callable[[str], list[Step]]:
    """A background job that waits for a guard and reaches for it, while calls go on."""
    return lambda _: [
        _python(textwrap.dedent(body) + WATCH, background=True),
        {"command": "true"},
        {"tool": "output", "job": "job1", "wait": 3},
        *({"tool": "output", "job": f"job{n}", "wait": 3} for n in range(2, 9)),
        {"command": "true"},
    ]


UID = "identity of its own (uid 64001)"

ATTACKS = [
    GuardAttack(
        "a .pth file in the home",
        "hooks have an empty home, no user site",
        "guards at home",
        lambda _: [
            {
                "command": "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d;"
                " echo 'import os; os._exit(0)' > $d/escape.pth"
            },
            _forbidden("FILE"),
            {"command": "rm -rf ~/.local"},
        ],
    ),
    GuardAttack(
        "usercustomize in the home",
        "hooks have an empty home, no user site",
        "guards at home",
        lambda _: [
            {
                "command": "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d;"
                " echo 'import os; os._exit(0)' > $d/usercustomize.py"
            },
            _forbidden("FILE"),
            {"command": "rm -rf ~/.local"},
        ],
    ),
    GuardAttack(
        "a module in the workspace",
        "PYTHONSAFEPATH for python3 -c",
        "guards at home",
        lambda _: [
            {"command": "echo 'import os; os._exit(0)' > json.py"},
            _forbidden("INLINE"),
            {"command": "rm -f json.py"},
        ],
    ),
    GuardAttack(
        "a start-up file in the home (.node_modules, .guardrc)",
        "hooks have an empty home",
        "guards at home",
        lambda _: [
            {"command": "echo 'exit 0' > ~/.guardrc; chmod 644 ~/.guardrc"},
            _forbidden("RC"),
            {"command": "rm -f ~/.guardrc"},
        ],
    ),
    GuardAttack(
        "another python3 on the path",
        "hooks have system folders as PATH",
        "guards at home",
        lambda _: [
            {"command": "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0\\n' > ~/bin/python3; chmod 755 ~/bin/python3"},
            {"command": "rm -f json.py; touch reached # FORBID-FILE"},
            {"command": "rm -rf ~/bin"},
        ],
    ),
    GuardAttack(
        "variables for the next call",
        "each call and hook has an environment of its own",
        "guards at home",
        lambda _: [
            {
                "command": "export PYTHONSTARTUP=$PWD/start.py PYTHONPATH=$PWD BASH_ENV=$PWD/env ENV=$PWD/env;"
                " d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d;"
                " echo 'import os; os._exit(0)' > $d/usercustomize.py; cp $d/usercustomize.py sitecustomize.py;"
                " echo 'exit 0' > env; cp env ~/.bashrc; cp env ~/.profile"
            },
            _forbidden("FILE"),
            {"command": "rm -rf ~/.local env sitecustomize.py"},
        ],
    ),
    GuardAttack(
        "edit the kit's folder in the workspace",
        "hooks run from a copy made before any tool",
        "guard in the workspace",
        lambda _: [
            {"command": "cp kit/guard.py kept; echo 'raise SystemExit(0)' > kit/guard.py"},
            _forbidden("FILE"),
            {"command": "cp kept kit/guard.py"},
        ],
    ),
    GuardAttack(
        "another kit's folder in its place",
        "hooks run from a copy made before any tool",
        "guard in the workspace",
        lambda _: [
            {"command": "mv kit kit-kept; mkdir kit; echo 'raise SystemExit(0)' > kit/guard.py"},
            _forbidden("FILE"),
            {"command": "rm -rf kit; mv kit-kept kit"},
        ],
    ),
    GuardAttack(
        "a job that waits for a guard's memory",
        UID,
        "guards as U",
        _watching(
            """
            what = "a guard's memory, opened for writing"
            def once(pid):
                touch(f"/proc/{pid}/mem", os.O_RDWR)
            """
        ),
    ),
    GuardAttack(
        "a job that reads a guard's question",
        UID,
        "guards as U",
        _watching(
            """
            what = "a guard's stdin"
            def once(pid):
                touch(f"/proc/{pid}/fd/0")
            """
        ),
    ),
    GuardAttack(
        "a job that answers for a guard",
        UID,
        "guards as U",
        _watching(
            """
            what = "a guard's stdout"
            def once(pid):
                touch(f"/proc/{pid}/fd/1", os.O_WRONLY)
            """
        ),
    ),
    GuardAttack(
        "a job that ends or stops a guard",
        UID,
        "guards as U",
        _watching(
            """
            what = "a signal to a guard"
            def once(pid):
                os.kill(pid, 0)
            """
        ),
    ),
    GuardAttack(
        "a job that traces a guard",
        UID,
        "guards as U",
        _watching(
            """
            what = "ptrace of a guard"
            def once(pid):
                call("ptrace", 0x4206, pid, 0, 0)
            """
        ),
    ),
    GuardAttack(
        "a job that reads a guard's environment",
        UID,
        "guards as U",
        _watching(
            """
            what = "a guard's environment"
            def once(pid):
                open(f"/proc/{pid}/environ", "rb").read()
            """
        ),
    ),
]


class PlayTheModel:
    """A tool takes the model's port in the sandbox and waits for the guest to ask there."""

    name = "play the model"
    control = "no port for the model in the sandbox"
    off = "direct model"
    owners = (1000, 0)
    slow = False

    def run(self, stage: Stage, where: str) -> Outcome:
        box = stage.box(where)
        marker, ready = box.workspace / "played", box.workspace / "listening"
        ready.unlink(missing_ok=True)
        over = box.start(
            """
os.chdir(FACTS["workspace"])
with socket.create_server(("127.0.0.1", FACTS["model_port"])) as server:
    server.settimeout(2)
    open("listening", "w").close()
    try:
        peer, _ = server.accept()
        open("played", "w").close()
    except TimeoutError:
        pass
"""
        )
        until(ready.exists)
        end = box.ask(["the model's own answer"])[-1].data
        over()
        if marker.exists():
            return Outcome(True, True, "REACHED the guest's question")
        told = end.get("answer") == "the model's own answer"
        return Outcome(False, told, f"refused nobody came; the turn: {end.get('status')}")


ESCAPES = {
    "the window's title": "\x1b]0;owned\x07",
    "the clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "a link": "\x1b]8;;http://example.invalid\x1b\\here\x1b]8;;\x1b\\",
    "clear the screen": "\x1b[2J\x1b[H\x9b2J",
    "the other direction": "\u202egnp.exe",
}
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Terminal:
    """Escape sequences in what a user sees: the answer, a tool's output, a file's name, a hook's reason."""

    control = "everything shown is made safe"
    owners = (1000,)
    off = "shown as it is"
    slow = False

    def __init__(self, where: str) -> None:
        self.name = f"terminal escapes in {where}"
        self._where = where

    def run(self, stage: Stage, where: str) -> Outcome:
        text = " ".join(ESCAPES.values())
        quoted = "$'" + "".join(f"\\U{ord(c):08x}" for c in text.replace("/", ":")) + "'"
        steps: list[Step] = {
            "an answer": [{"command": "true"}, text],
            "an output": [{"command": f"printf %s {quoted}"}, "done"],
            "a command": [{"command": f": {text}"}, "done"],
            "a file's name": [{"command": f"touch -- {quoted}; ls"}, "done"],
            "a missing file's name": [{"tool": "read", "path": f"{text}"}, "done"],
        }[self._where]
        events = stage.box(HARDENED).ask(steps)
        shown = ""
        for mode in ("text", "json", "events"):
            with ExitStack() as stack:
                if where == self.off:
                    stack.enter_context(patch.object(safe, "_OBEYED", re.compile("(?!)")))
                shown += screen(events, mode)
        said = any(e.name == "tool.end" or e.data.get("answer") for e in events)
        found = sorted({f"{ord(c):#x}" for c in OBEYED.findall(shown)})
        if found:
            return Outcome(True, said, "REACHED " + " ".join(found))
        return Outcome(False, said and "owned" in shown, "refused shown as text")


class Replay:
    """A session that has been."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self.on_ask: Any = None
        self.banner = Banner("0", "", "demo", "scripted", (), True, "image", "none")

    async def ask(self, prompt: str) -> AsyncIterator[Event]:
        for event in self._events:
            yield event

    async def cancel(self) -> None:
        raise AssertionError("nobody cancels this")

    steer = new = cancel  # type: ignore[assignment]


def screen(events: list[Event], mode: Any) -> str:
    """What a user sees of a turn."""
    out, err = io.StringIO(), io.StringIO()
    printer = Printer(Output(out), Output(err), mode)
    asyncio.run(printer.run(Replay(events), "question"))  # type: ignore[arg-type]
    printer.finish()
    return out.getvalue() + err.getvalue()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Looks again until it is so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it never came to be")
        time.sleep(0.01)


OTHERS = [
    PlayTheModel(),
    *map(Terminal, ("an answer", "an output", "a command", "a file's name", "a missing file's name")),
]
