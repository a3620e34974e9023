"""Causes every way a command line can end, for real, and prints a table of them: `make situations`.

python -m tests.situations            the table; ends with 1 when a situation ends otherwise than written here
python -m tests.situations WORD …     only the situations with one of the words
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.life.conftest import SCRIPT
from tests.conformance.main.conftest import Done, Sbx

WITHIN = 300.0
"""Seconds for one situation; the first builds an image."""


@dataclass
class Stage:
    """A folder of its own, with a kit, a workspace and a sandbox that is kept."""

    root: Path
    sbx: Sbx = field(init=False)

    def __post_init__(self) -> None:
        self.sbx = Sbx(self.root)
        self.kit("kit", "provider: llmman\nmodel: scripted\n", SCRIPT)
        (self.root / "work").mkdir()
        (self.root / "work" / "todo.txt").write_text("buy milk\n")

    def kit(self, name: str, agent: str, script: str = SCRIPT, spec: str = "") -> str:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "agent.yaml").write_text(agent)
        (folder / "demo.yaml").write_text(script)
        if spec:
            (folder / "spec.yaml").write_text(spec)
        return f"./{name}"

    def run(self, *arguments: str, **options: object) -> Done:
        given = [
            text.replace("KEPT", KEPT) if text.startswith("KEPT") else os.path.expanduser(text) for text in arguments
        ]
        return self.sbx(*given, timeout=WITHIN, **options)  # type: ignore[arg-type]

    def ask(self, question: str, *more: str, kit: str = "./kit", **options: object) -> Done:
        return self.run("run", kit, "work", "--demo", "-q", "-p", question, *more, **options)

    def interrupted(self, act: Callable[[subprocess.Popen[str]], object], *more: str) -> Done:
        """A run whose tool call sleeps; `act` happens to it in the middle of that."""
        command = self.sbx.command("run", "./kit", "work", "--demo", "--events", "-q", "-p", "run sleep 600", *more)
        pipe = subprocess.PIPE
        run = subprocess.Popen(command, env=self.sbx.env(), stdout=pipe, stderr=pipe, text=True, cwd=self.root)
        assert run.stdout is not None
        for line in run.stdout:
            if json.loads(line)["name"] == "tool.start":
                break
        act(run)
        out, err = run.communicate(timeout=WITHIN)
        return Done(run.returncode, out, err)

    def container(self) -> str:
        query = ["docker", "ps", "-q", "--filter", f"label=dev.sbx.workspace={self.root / 'work'}"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]

    def listening(self, stack: ExitStack, answer: bytes | None) -> str:
        """The address of something that is no engine: it answers this, or never."""
        server = socket.create_server(("127.0.0.1", 0))
        stack.callback(server.close)

        def serve() -> None:
            held = []
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                held.append(client)
                if answer is not None:
                    client.recv(4096)
                    client.sendall(answer)
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


SPEC = "schemaVersion: '2'\nkind: sandbox\nname: {name}\nsandbox: {{image: debian:bookworm-slim}}\n{more}"
Cause = Callable[[Stage], Done]
SITUATIONS: list[tuple[str, int, Cause]] = []


def situation(name: str, code: int) -> Callable[[Cause], Cause]:
    """Registers what causes it, and the code it has to end with."""

    def register(cause: Cause) -> Cause:
        SITUATIONS.append((name, code, cause))
        return cause

    return register


def simple(name: str, code: int, *arguments: str, **options: object) -> None:
    SITUATIONS.append((name, code, lambda stage: stage.run(*arguments, **options)))


def asking(name: str, code: int, question: str, *more: str, **options: object) -> None:
    SITUATIONS.append((name, code, lambda stage: stage.ask(question, *more, **options)))


# ---- the command line
simple("no such command", 2, "rnu")
simple("no such option", 2, "ls", "--jsno")
simple("no terminal, no question", 2, "run", "./kit", "work")
simple("two forms of output", 2, "run", "./kit", "work", "-p", "hi", "--json", "--events")
asking("an empty question", 2, " ")
asking("the question's file is missing", 2, "@no-such-file")
asking("a broken regular expression", 2, "hi", "--expect", "(")
asking("a broken JMESPath", 2, "hi", "--expect", "jmespath:[")
asking("an artifact without a destination", 2, "hi", "--artifact", "x")
asking("a mount of nothing", 2, "hi", "--mount", "/no/such")
asking("no such grant", 2, "hi", "--grant", "everything")
simple("the workspace is missing", 2, "run", "./kit", "no-such-folder", "-p", "hi")


@situation("the kit's YAML is broken", 2)
def _(stage: Stage) -> Done:
    return stage.ask("hi", kit=stage.kit("broken", "provider: [\n"))


@situation("an unknown key in agent.yaml", 2)
def _(stage: Stage) -> Done:
    return stage.ask("hi", kit=stage.kit("unknown", "provider: llmman\nmodle: x\n"))


# ---- names
simple("no such kit", 3, "run", "hooks-dmeo", "-p", "hi")
simple("no such sandbox", 3, "inspect", "no-such-sandbox")
simple("no such session", 3, "log", "20200101-000000000-00000000")
simple("no such path in the sandbox", 3, "cp", "KEPT:/no/such", ".")


@situation("the sandbox is in use", 3)
def _(stage: Stage) -> Done:
    found: list[Done] = []

    def second(run: subprocess.Popen[str]) -> None:
        found.append(stage.ask("hi", "--keep", "--name", "situations-busy"))
        run.terminate()

    stage.interrupted(second, "--keep", "--name", "situations-busy")
    return found[0]


# ---- grants
simple("the workspace is the home folder", 6, "run", "./kit", "~", "-p", "hi")


@situation("a kit wants to be privileged", 6)
def _(stage: Stage) -> Done:
    spec = SPEC.format(name="wide", more="security: {privileged: true}\n")
    return stage.ask("hi", kit=stage.kit("wide", "provider: llmman\nmodel: m\n", spec=spec))


@situation("a kit sends prompts elsewhere", 6)
def _(stage: Stage) -> Done:
    kit = stage.kit("elsewhere", "provider: openai\nmodel: m\nbaseUrl: http://models.example.com/v1\n")
    return stage.run("run", kit, "work", "-p", "hi")


# ---- the engine
simple("no engine's socket", 4, "ls", env={"DOCKER_HOST": "unix:///no/such/socket"})
simple("no such Docker context", 2, "ls", env={"DOCKER_CONTEXT": "no-such-context"})
simple("nothing listens there", 4, "ls", env={"DOCKER_HOST": "tcp://127.0.0.1:1"})


@situation("what answers is no engine", 4)
def _(stage: Stage) -> Done:
    with ExitStack() as stack:
        return stage.run("ls", env={"DOCKER_HOST": stage.listening(stack, b"HTTP/1.0 200 OK\r\n\r\nhello")})


@situation("the engine says nothing", 4)
def _(stage: Stage) -> Done:
    with ExitStack() as stack:
        return stage.run("ls", env={"DOCKER_HOST": stage.listening(stack, None)})


@situation("the sandbox is removed in mid-turn", 4)
def _(stage: Stage) -> Done:
    return stage.interrupted(
        lambda _: subprocess.run(["docker", "rm", "-f", stage.container()], capture_output=True, check=True)
    )


# ---- the image
@situation("an install command fails", 5)
def _(stage: Stage) -> Done:
    more = "setup: {install: [{command: 'echo no such package >&2; exit 9'}]}\n"
    spec = SPEC.format(name="failing", more=more)
    return stage.ask("hi", kit=stage.kit("failing", "provider: llmman\nmodel: m\n", spec=spec))


# ---- the turn
asking("an answer", 0, "cat todo.txt")
asking(
    "a question that a hook stops", 0, "hi", "--hook", 'preGeneration=echo \'{"continue": false, "stopReason": "no"}\''
)


@situation("a guard that fails", 1)
def _(stage: Stage) -> Done:
    hooks = "hooks:\n  preGeneration:\n    - {command: exit 7, onError: fail}\n"
    return stage.ask("hi", kit=stage.kit("guarded", f"provider: llmman\nmodel: scripted\n{hooks}"))


asking("the model server answers with an error", 1, "break")
asking("more tokens than allowed", 1, "run true", "--max-tokens", "1")
simple("no model server", 1, "run", "./kit", "work", "-q", "-p", "hi", "--base-url", "http://127.0.0.1:1/v1")

# ---- expectations
asking("the answer is not as expected", 7, "hi", "--expect", "goodbye")
asking("the result is not as expected", 7, "hi", "--expect", "jmespath:length(tool_calls) > `3`")
asking("the check fails", 7, "hi", "--check", "test -e made")
asking("an artifact is missing", 7, "hi", "--artifact", "made=made")

# ---- time, signals, memory
asking("the time is up", 124, "hang", "--timeout", "5")
SITUATIONS.append(("Ctrl-C", 130, lambda stage: stage.interrupted(lambda run: run.send_signal(signal.SIGINT))))
SITUATIONS.append(("SIGTERM", 143, lambda stage: stage.interrupted(lambda run: run.terminate())))
asking("the sandbox runs out of memory", 137, "hi", "--memory", "12m")

# ---- exec
simple("exec: the command's own code", 42, "exec", "KEPT", "sh", "-c", "exit 42")
simple("exec: killed by a signal", 137, "exec", "KEPT", "sh", "-c", "kill -9 $$")
simple("exec: no such command", 127, "exec", "KEPT", "no-such-command")
simple("exec: not a program", 126, "exec", "KEPT", "/etc/passwd")
simple("exec: no such sandbox", 125, "exec", "no-such-sandbox", "true")
simple("exec: a terminal without one", 125, "exec", "-t", "KEPT", "true")

KEPT = "situations-kept"


def message(done: Done) -> str:
    """The one line that a person reads."""
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error:", "sbx:", "✗", "Error"))]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name": "run.end"')]
    if not lines and events:
        return str(events[-1]["data"].get("error", {}).get("message", ""))
    return (lines or done.stderr.splitlines() or done.stdout.splitlines() or [""])[-1 if not lines else 0]


def main(words: list[str]) -> int:
    """Causes them, and prints the table as it goes."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="sbx-situations-") as folder:
        stage = Stage(Path(folder))
        made = stage.run("create", "./kit", "work", "--name", KEPT, cwd=stage.root)
        assert made.code == 0, made.said
        try:
            print("| situation | code | message |\n|---|---|---|")
            for name, code, cause in SITUATIONS:
                if words and not any(word in name for word in words):
                    continue
                done = cause(stage)
                shown = message(done).replace(folder, "…").replace("|", "\\|").replace(os.path.expanduser("~"), "~")
                mark = "" if done.code == code else f" (expected {code})"
                wrong += done.code != code
                print(f"| {name} | {done.code}{mark} | {shown} |", flush=True)
        finally:
            stage.run("rm", "-f", KEPT)
            stage.run("rm", "-f", "situations-busy")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
