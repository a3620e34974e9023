#!/usr/bin/env python3
"""stop: the workspace's tests must pass before the turn may end.

Usage: `python3 "$SBX_HOOKS_DIR/test_gate.py" [--seconds 240] [-- COMMAND…]`, with a `timeout` above those seconds.

Without a command it takes what the workspace offers: `make test`, `npm test`, `go test ./...`, `cargo test`, pytest.
Where there is none, the turn may end. When the tests fail, the model reads the end of their output and goes on; after
eight tries in a row the turn ends all the same, so that a test which cannot pass does not keep it for ever.
"""

import json
import os
import re
import signal
import subprocess
import sys

from hook_io import HookError, folder_of, serve
from turn_state import State

MOST_TRIES = 8
SECONDS = 240.0
"""Default bound of one run of the tests."""
SHOWN = 4000
"""Characters of the tests' output that the model reads."""


def found_command(workspace):
    """The command that runs the workspace's tests, or None."""

    def text(name):
        try:
            with open(os.path.join(workspace, name), encoding="utf-8", errors="replace") as file:
                return file.read(1 << 20)
        except OSError:
            return ""

    for name in ("GNUmakefile", "makefile", "Makefile"):
        if re.search(r"(?m)^test\s*:(?!=)", text(name)):
            return ["make", "test"]
    try:
        scripts = json.loads(text("package.json") or "{}").get("scripts", {})
        if isinstance(scripts, dict) and "test" in scripts:
            return ["npm", "test", "--silent"]
    except (ValueError, AttributeError):
        pass
    if text("go.mod"):
        return ["go", "test", "./..."]
    if text("Cargo.toml"):
        return ["cargo", "test", "--quiet"]
    if text("pytest.ini") or "pytest" in text("pyproject.toml") or os.path.isdir(os.path.join(workspace, "tests")):
        return ["python3", "-m", "pytest", "-q", "-x"]
    return None


def run(command, workspace, seconds):
    """Runs the tests; returns what went wrong, or "" when they passed."""
    try:
        process = subprocess.Popen(
            command,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise HookError(f"the tests cannot be started ({os.strerror(error.errno)})") from error
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return f"The tests did not end within {seconds:.0f} seconds.\n{tail(output)}"
    return "" if process.returncode == 0 else f"The tests fail (exit code {process.returncode}).\n{tail(output)}"


def tail(output):
    text = output.decode("utf-8", errors="replace")
    return text if len(text) <= SHOWN else "…" + text[-SHOWN:]


def handler(command, seconds):
    def handle(event):
        workspace = folder_of(event)
        state = State("test-gate", event)
        chosen = command or found_command(workspace)
        if not chosen:
            return None
        failure = run(chosen, workspace, seconds)
        if not failure:
            state.forget()
            return None
        tries = state.load().get("tries", 0)
        tries = tries + 1 if isinstance(tries, int) else 1
        if tries > MOST_TRIES:
            state.forget()
            return None
        state.save({"tries": tries})
        return {
            "decision": "block",
            "reason": f"{failure}\nMake `{' '.join(chosen)}` pass before you finish (try {tries} of {MOST_TRIES}).",
        }

    return handle


def main():
    arguments = sys.argv[1:]
    command = None
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    seconds = SECONDS
    if arguments:
        if len(arguments) != 2 or arguments[0] != "--seconds" or not re.fullmatch(r"\d{1,6}(\.\d+)?", arguments[1]):
            sys.exit("usage: test_gate.py [--seconds N] [-- COMMAND…]")
        seconds = float(arguments[1])
    serve("test_gate", handler(command, seconds))


if __name__ == "__main__":
    main()
