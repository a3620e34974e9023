"""What became of each line: one JSON line each, written when it is known.

    {"id": …, "line": 3, "code": 0, "message": "", "attempts": 1, "seconds": 2.1, "started": …, "digest": …, "run": {…}}

`code` is the exit code that `sbx run` would have ended with, `run` its `--json` document. A line that was interrupted
has no result, and `--resume` runs it. A file of results may be cut off in its last line (power loss, a full disk):
that line is taken off and its question runs again. What is wrong before that is not ours, and is left as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from runner.errors import ConfigError, InUseError, UsageError
from runner.frontends.batch.lines import Line
from runner.frontends.document import dumps


@dataclass(frozen=True)
class Result:
    """Of one line."""

    line: Line
    code: int
    message: str = ""
    """Why it failed, one line; empty where it did not."""
    attempts: int = 1
    seconds: float = 0.0
    """Of the last attempt, the making and removing of its sandbox included."""
    started: str = ""
    """When the last attempt began, UTC in ISO 8601."""
    run: dict[str, Any] = field(default_factory=dict)
    """The run's JSON document."""

    @property
    def ok(self) -> bool:
        return self.code == 0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.line.id,
            "line": self.line.number,
            "code": self.code,
            "message": self.message,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "started": self.started,
            "digest": self.line.digest,
            "run": self.run,
        }

    def brief(self) -> Result:
        """Without the run's document, for the summary of a long batch."""
        return Result(self.line, self.code, self.message, self.attempts, self.seconds, self.started)


class File:
    """The file of results (`--output`). One process at a time has it.

    Raises:
        UsageError: it cannot be written; InUseError: another batch has it.
    """

    def __init__(self, path: Path) -> None:
        import fcntl

        self._path = path
        try:
            self._file: BinaryIO = path.open("r+b" if path.exists() else "x+b", buffering=0)
        except OSError as error:
            raise UsageError(f"the results cannot be written: {error.strerror}", place=str(path)) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InUseError("another batch writes these results", place=str(path)) from None

    def load(self, lines: Sequence[Line]) -> list[Result]:
        """The results that are there; a torn last line is taken off.

        Raises:
            ConfigError: what is there is of another batch, or not ours.
        """
        by_id = {line.id: line for line in lines}
        found: dict[str, Result] = {}
        good = 0
        data = self._file.read() or b""
        for number, raw in enumerate(data.splitlines(keepends=True), 1):
            place = f"{self._path}:{number}"
            if not raw.endswith(b"\n"):
                break
            good += len(raw)
            result = self._parse(raw, by_id, place)
            if result.line.id in found:
                raise ConfigError(f"a second result of {result.line.id!r}", place=place)
            found[result.line.id] = result
        self._file.truncate(good)
        self._file.seek(good)
        return list(found.values())

    def demand_empty(self) -> None:
        """Raises UsageError where results are there already: they would be lost."""
        if os.fstat(self._file.fileno()).st_size:
            raise UsageError(
                "there are results already",
                place=str(self._path),
                hint=f"--resume {self._path} runs what is missing in them; or name another file",
            )

    def write(self, text: str) -> None:
        """One line, whole or not at all.

        Raises:
            UsageError: the disk refuses.
        """
        at = self._file.tell()
        data = memoryview(text.encode("ascii"))
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(at)
                self._file.seek(at)
            raise UsageError(f"the results cannot be written: {error.strerror}", place=str(self._path)) from None

    def close(self) -> None:
        self._file.close()

    def _parse(self, raw: bytes, by_id: dict[str, Line], place: str) -> Result:
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        match document:
            case {"id": str(identity), "code": int(code), "digest": str(digest), "message": str(message)}:
                pass
            case _:
                raise ConfigError("is not a result of a batch", place=place, hint="the file was left as it is")
        line = by_id.get(identity)
        if line is None or line.digest != digest:
            what = "no line of this batch" if line is None else f"not what line {line.number} asks now"
            raise ConfigError(
                f"the result of {identity!r} is of {what}" if line is None else f"{identity!r} is {what}",
                place=place,
                hint="take its line out of the results to run it again, or give the new question another id",
            )
        attempts, seconds, started = (document.get(key) for key in ("attempts", "seconds", "started"))
        return Result(
            line,
            code,
            message,
            attempts if isinstance(attempts, int) else 1,
            seconds if isinstance(seconds, (int, float)) else 0.0,
            started if isinstance(started, str) else "",
        )


def text_of(result: Result) -> str:
    """The result as a line."""
    return dumps(result.to_json()) + "\n"
