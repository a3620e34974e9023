"""Every error that `sbx` raises on purpose, and the exit code each one ends the program with.

    SbxError                          1
    ├── UsageError                    2   the caller asked for something that cannot be
    │   └── ConfigError               2   a file of the user's is wrong: names the file and the place
    ├── NotFoundError                 3   no such sandbox, kit, session
    │   └── InUseError                3   it exists, another session has it
    ├── EngineError                   4   no engine, or the engine failed
    │   ├── EngineUnreachable         4   nothing answers, or this user may not ask
    │   ├── EngineTimeout             4   a call to the engine took longer than its bound
    │   └── WorkspaceError            4   the engine does not see the workspace: it runs elsewhere
    ├── ImageError                    5   an image could not be built, pulled or verified
    │   └── WireVersionError          5   the image speaks another version of the wire
    ├── RefusedError                  6   a grant is missing, or policy says no
    ├── ExpectationError              7   --expect or --check was not met
    ├── StartupError                  1   what the kit does at its sandbox's start failed
    ├── TurnError                     1   the turn failed
    │   ├── ModelError                1   the model server is at fault
    │   └── LimitError                1   a limit of rounds, tokens or calls; the loop breaker
    ├── WireError                     4   the guest broke the protocol, or went away
    ├── RunTimeout                  124   the run's time was up
    ├── Interrupted             130/143   ended by a signal
    └── OutOfMemory                 137   the sandbox ran out of memory

An error tells what happened (`str(error)`), where (`place`) and what to do (`hint`). Errors that a builtin
describes too inherit from it, so that callers outside may catch what they know.
"""

from __future__ import annotations

import signal


class SbxError(Exception):
    """Base of all errors that are meant for the user.

    Args:
        message: what happened, one sentence, no trailing period needed.
        place: the file, key, container or URL it happened at.
        hint: what the user can do about it.
        log: more lines that help, such as the end of a build's output.
    """

    exit_code = 1

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None, log: str | None = None):
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint
        self.log = log

    @property
    def kind(self) -> str:
        """The error's name as it stands in JSON, for example `config` for `ConfigError`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join("-" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))

    def to_json(self) -> dict[str, object]:
        """What `--json` prints: `code`, `kind`, `message`, and where known `place`, `hint`, `log`."""
        document: dict[str, object] = {"code": self.exit_code, "kind": self.kind, "message": self.message}
        for key in ("place", "hint", "log"):
            if value := getattr(self, key):
                document[key] = value
        return document


class UsageError(SbxError, ValueError):
    """The command line asks for something that cannot be; nothing was started."""

    exit_code = 2


class ConfigError(UsageError):
    """A file of the user's is wrong. `place` is `FILE: KEY` or `FILE:LINE:COLUMN`."""

    def __str__(self) -> str:
        return f"[config error: {self.place}: {self.message}]" if self.place else f"[config error: {self.message}]"


class NotFoundError(SbxError, LookupError):
    """There is no such sandbox, kit or session; the message lists near names."""

    exit_code = 3


class InUseError(NotFoundError):
    """The sandbox exists and another session uses it."""


class EngineError(SbxError):
    """The engine failed at what it was asked."""

    exit_code = 4


class EngineUnreachable(EngineError, ConnectionError):
    """Nothing answers at the engine's address, or this user may not open it."""


class EngineTimeout(EngineError, TimeoutError):
    """One call to the engine took longer than its bound."""


class WorkspaceError(EngineError):
    """The engine does not see the workspace, or sees another folder in its place: it runs elsewhere."""


class ImageError(SbxError):
    """An image could not be built, pulled, loaded or verified."""

    exit_code = 5


class WireVersionError(ImageError):
    """The program in the image speaks another version of the wire than this host."""


class RefusedError(SbxError, PermissionError):
    """Policy refuses, or a grant is missing."""

    exit_code = 6


class ExpectationError(SbxError):
    """The run went through and what it was expected to do, it did not."""

    exit_code = 7


class StartupError(SbxError):
    """A startup command failed, or a file of the kit's could not be written; the agent was asked nothing."""


class TurnError(SbxError):
    """The turn failed; the session may go on."""


class ModelError(TurnError):
    """The model server cannot be reached, or answered with an error."""


class LimitError(TurnError):
    """A limit of rounds, tokens or calls was reached, or the same call was made again and again."""


class WireError(SbxError, ConnectionError):
    """The other end of the wire broke the protocol, or went away in mid-session."""

    exit_code = 4


class RunTimeout(SbxError, TimeoutError):
    """The run's own time limit was reached."""

    exit_code = 124


class OutOfMemory(SbxError, MemoryError):
    """The sandbox as a whole ran out of memory and its guest was killed."""

    exit_code = 137


class Interrupted(SbxError):
    """Ended by a signal.

    Args:
        number: the signal, SIGINT (code 130) or SIGTERM (code 143).
    """

    def __init__(self, number: signal.Signals):
        super().__init__(f"ended by {number.name}")
        self.number = number

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return 128 + int(self.number)
