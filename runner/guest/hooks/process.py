"""One hook, run once: environment, payload in, bytes out, and what its end means."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.guest.hooks import answer as answers
from runner.guest.hooks.answer import MAX_STDOUT, Answer, NotAnAnswer, NotUnderstood
from runner.guest.hooks.dialect import DIALECTS
from runner.guest.hooks.scrub import mask_secrets
from runner.guest.spawn.command import EMPTY_HOME, HOOK, HOOK_TMP, Command, Identity, Result
from runner.wire.agent import GUARD_EVENTS, Hook

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MAX_STDERR = 16 * 1024
"""Bytes of a failed hook's stderr that an event carries."""

DENIES = 2
"""The exit code that means "deny", with stderr as the reason."""

_LONE = re.compile("[\ud800-\udfff]")
_INLINE_PYTHON = re.compile(r"\bpython[0-9.]*(\s+-\w+)*\s+-\w*c\b")


@dataclass(frozen=True)
class Outcome:
    """What one run of a hook came to."""

    answer: Answer = answers.NOTHING
    failure: str = ""
    """Why the hook counts as failed; empty when it did not."""
    understood: bool = True
    """False: it tried to decide and nobody knows what. A guard refuses then."""
    exit: int | None = None
    stderr: str = ""
    """Its end. Shown of a failed hook only."""
    stdout: bytes = b""
    """As the hook wrote it, for whoever tries a hook."""
    seconds: float = 0.0
    pending: bool = False
    """It runs on the host and nobody waits for it."""


@dataclass(frozen=True)
class Places:
    """What every hook of a session shares."""

    workspace: str
    config_dir: str
    hooks_dir: str
    owner: Identity
    guard: Identity = HOOK
    home: str = EMPTY_HOME
    guard_tmp: str = HOOK_TMP

    def command(self, hook: Hook) -> Command:
        """The process to start: a clean environment, and the workspace as far as it can be entered."""
        identity = self.owner if hook.user == "owner" else self.guard
        environment = {
            "PATH": SYSTEM_PATH,
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "PYTHONNOUSERSITE": "1",
            "MM_HOOK_EVENT": hook.event,
            "MM_CONFIG_DIR": hook.config_dir or self.config_dir,
            "SBX_HOOKS_DIR": self.hooks_dir,
            "CLAUDE_PROJECT_DIR": self.workspace,
        }
        if identity == self.guard:
            environment["TMPDIR"] = self.guard_tmp
        if _INLINE_PYTHON.search(hook.command):
            # `python3 -c` would import a `json.py` that a tool put into the workspace.
            environment["PYTHONSAFEPATH"] = "1"
        return Command(["sh", "-c", hook.command], environment, self.workspace, identity, fallback_cwd="/")


def encode(payload: Mapping[str, Any]) -> bytes:
    """The payload as one line of UTF-8, without the line's end. Lone surrogates stay escaped, as JavaScript does.

    Raises:
        ValueError: it cannot be said in JSON (nested too deeply, NaN).
    """
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("the payload is nested too deeply") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _LONE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode("utf-8")


async def run(hook: Hook, payload: Mapping[str, Any], places: Places, spawner: Any) -> Outcome:
    """Starts the hook, gives it the payload, and reads what it came to. Cancelling ends its whole process tree."""
    try:
        data = encode(payload)
    except ValueError as error:
        return Outcome(failure=f"cannot be asked: {error}", understood=False)
    return read(hook, await spawner.run(places.command(hook), input=data, timeout=hook.timeout, limit=MAX_STDOUT))


def read(hook: Hook, result: Result) -> Outcome:
    """What a hook that has ended came to."""
    stderr = mask_secrets(tail(result.stderr.data))
    stdout = result.stdout
    too_much = stdout.size > MAX_STDOUT
    failure = _failure(hook, result)
    common: dict[str, Any] = {"exit": result.exit.code, "seconds": result.seconds, "stdout": stdout.data}
    if result.exit.code == DENIES and not result.timed_out:
        said = _quiet_parse(hook, stdout.data) if not too_much else answers.NOTHING
        reason = stderr.strip()[: answers.MAX_REASON] or said.reason or "exit code 2"
        return Outcome(Answer(refuse=True, reason=reason, response=said.response), stderr=stderr, **common)
    if failure:
        # What was said before the end still counts when it refuses: "go on" is not what its author meant.
        said = _quiet_parse(hook, stdout.data) if hook.event in GUARD_EVENTS and not too_much else answers.NOTHING
        if said.refuse:
            return Outcome(said, stderr=stderr, **common)
        return Outcome(failure=failure, stderr=stderr, **common)
    if too_much:
        return Outcome(failure=f"wrote {stdout.size} bytes to stdout, more than 1 MiB", stderr=stderr, **common)
    return interpret(hook, stdout.data, stderr=stderr, exit=result.exit.code, seconds=result.seconds)


def interpret(hook: Hook, stdout: bytes, *, stderr: str = "", **common: Any) -> Outcome:
    """The outcome of a hook that ended well."""
    common["stdout"] = stdout
    try:
        said = answers.parse(stdout, hook.event, plain_text=plain_text(hook))
    except NotUnderstood as error:
        return Outcome(failure=f"cannot be understood: {error}", understood=False, stderr=stderr, **common)
    except NotAnAnswer as error:
        return Outcome(failure=f"its answer is {error}", stderr=stderr, **common)
    if said.reason:
        said = replace(said, reason=mask_secrets(said.reason))
    if said.error:
        return Outcome(said, failure=said.reason or "it reported an error", stderr=stderr, **common)
    return Outcome(said, stderr=stderr, **common)


def plain_text(hook: Hook) -> str:
    """What text that is no JSON means for this hook."""
    if not hook.dialect:
        return "failure"
    return "context" if hook.event in DIALECTS[hook.dialect].text_is_context else "ignored"


def tail(data: bytes) -> str:
    """The end of a stderr, as text."""
    return data[-MAX_STDERR:].decode("utf-8", "replace")


def _quiet_parse(hook: Hook, stdout: bytes) -> Answer:
    try:
        return answers.parse(stdout, hook.event, plain_text=plain_text(hook))
    except (NotUnderstood, NotAnAnswer):
        return answers.NOTHING


def _failure(hook: Hook, result: Result) -> str:
    end = result.exit
    if result.timed_out:
        return f"took longer than {hook.timeout:g} s"
    if end.error:
        return f"could not be started: {end.error}"
    if end.oom:
        return "ran out of memory"
    if end.signal is not None:
        return f"was ended by {signal_name(end.signal)}"
    if end.code is None:
        return "ended, nobody knows how"
    if end.code in (0, DENIES):
        return ""
    return f"exited with code {end.code}{_meaning(end.code)}"


def _meaning(code: int) -> str:
    if code == 126:
        return " (not executable)"
    if code == 127:
        return " (command not found)"
    return f" ({signal_name(code - 128)})" if 128 < code < 160 else ""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
