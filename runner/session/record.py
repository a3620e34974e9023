"""The record: what happened in a session, one JSON line an event, written by the host as it happens.

    {"t": "2026-11-30T20:00:00.123Z", "n": 17, "name": "tool.end", "data": {…}}

Two kinds of broken file look alike and must be told apart. A *torn* record is ours and was cut off in its last line
(power loss, SIGKILL in mid-write): that line is taken off and the session goes on. A *foreign or damaged* one has a
line in its middle that is not ours, or does not begin with `session.start`: it is named and left exactly as it is.
A torn line that was followed by others cannot come from us, since a write that failed is taken back before the next.

What passes here is first redacted, string by string. Of some events only known fields are kept, so that a stopped
question can reach the file by no mistake of the guest's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import InUseError, UsageError
from runner.session.state import Folders, new_session_id, private
from runner.wire.messages import Event

FILE = "record.jsonl"
OUTPUTS = "outputs"

LARGE = 128 * 1024
"""Characters of one string above which it goes to a file of its own, with its head and tail in the line."""
KEPT = 16 * 1024
"""Characters of head, and again of tail, that stay in the line of a large string."""
PENDING = 64 * 1024 * 1024
"""Bytes of lines held in memory while the disk refuses them; after that the oldest go, and are counted."""

NOT_RECORDED = frozenset({"model.delta", "model.reasoning", "model.wait"})
"""Events for front ends only."""
ONLY = {
    "turn.start": frozenset({"turn"}),
    "turn.blocked": frozenset({"turn", "hook", "reason", "response"}),
}
"""Events that are about a question which may be stopped: nothing but these fields is written."""
SYNCED = frozenset({"turn.end", "session.end"})

Redactor = Callable[[str], str]
"""Takes the secrets out of a text."""


def unchanged(text: str) -> str:
    """The redactor of a session without secrets."""
    return text


@dataclass(frozen=True)
class Line:
    """One line of a record. `time` is UTC in ISO 8601 with milliseconds."""

    time: str
    number: int
    name: str
    data: dict[str, Any]


class Record:
    """Writes one session's record. Make it with `create` or `reopen`; one process at a time has it.

    A disk that refuses (full, gone) does not end the session: lines wait in memory and are written as soon as it
    takes them again; `failure` tells why meanwhile, `lost` how many lines were given up.
    """

    def __init__(self, folder: Path, fd: int, *, size: int, number: int, redact: Redactor, clock: Callable[[], float]):
        self.folder = folder
        self.failure: OSError | None = None
        self.lost = 0
        self._fd = fd
        self._size = size
        self._number = number
        self._redact = redact
        self._clock = clock
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self.said = 0
        """Bytes that were given to it, what went to files of their own too."""

    @classmethod
    def create(
        cls,
        folders: Folders,
        *,
        session: str = "",
        redact: Redactor = unchanged,
        clock: Callable[[], float] = time.time,
    ) -> Record:
        """A record for a new session, in a folder of its own. Raises OSError where none can be made.

        Args:
            session: the id, where a sandbox that was started ahead bears one already.
        """
        folder = folders.session(session or new_session_id(clock()))
        private(folders.sessions)
        folder.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(folder / FILE, flags, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(folder, fd, size=0, number=0, redact=redact, clock=clock)

    @classmethod
    def reopen(
        cls, folder: Path, *, redact: Redactor = unchanged, clock: Callable[[], float] = time.time
    ) -> tuple[Record, list[Line]]:
        """Go on with a session's record; a torn last line is taken off first.

        Returns the record and what it holds. Raises InUseError while another process has it, UsageError for a
        foreign or damaged file, which stays as it is.
        """
        path = folder / FILE
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(f"session {folder.name} is in use by another process") from None
            lines, good = _parse(path)
            if good < os.fstat(fd).st_size:
                os.ftruncate(fd, good)
                os.fsync(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(folder, fd, size=good, number=lines[-1].number, redact=redact, clock=clock), lines

    @property
    def id(self) -> str:
        """The session's id."""
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder / FILE

    @property
    def redact(self) -> Redactor:
        """Takes the secrets out of a text, for what is written beside the record."""
        return self._redact

    def write(self, event: Event) -> int | None:
        """Append the event; returns its number, or None for an event that is not recorded. Never raises OSError."""
        if event.name in NOT_RECORDED:
            return None
        self._number += 1
        only = ONLY.get(event.name)
        data = event.data if only is None else {k: v for k, v in event.data.items() if k in only}
        try:
            data = self._clean(data)
            line = self._line(event.name, self._spill(data))
        except RecursionError:
            line = self._line(event.name, {"unrecorded": "nested too deeply"})
        self._pending.append(line)
        self._pending_bytes += len(line)
        self.said += len(line)
        self._flush()
        if event.name in SYNCED:
            self.sync()
        return self._number

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Write what still waits and let the record go. Afterwards `failure` is None, or why lines are missing."""
        self._flush()
        with contextlib.suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)

    def _line(self, name: str, data: dict[str, Any]) -> bytes:
        now = self._clock()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(now))) + f".{int(now % 1 * 1000):03d}Z"
        document = {"t": stamp, "n": self._number, "name": self._redact(name), "data": data}
        # ASCII, because a lone surrogate has no UTF-8 form but has a JSON one.
        return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"

    def _flush(self) -> None:
        while self._pending:
            line = self._pending[0]
            try:
                written = os.write(self._fd, line)
                if written < len(line):
                    # A disk that is nearly full takes a part; the next attempt tells the error.
                    written += os.write(self._fd, line[written:])
                if written < len(line):
                    raise OSError(f"only {written} of {len(line)} bytes were written")
            except OSError as error:
                self.failure = error
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                while self._pending_bytes > PENDING and len(self._pending) > 1:
                    self._pending_bytes -= len(self._pending.popleft())
                    self.lost += 1
                return
            self._size += len(line)
            self._pending.popleft()
            self._pending_bytes -= len(line)
        self.failure = None

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {self._redact(str(key)): self._clean(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(each) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value

    def _spill(self, data: dict[str, Any]) -> dict[str, Any]:
        """Top-level strings that are large go to files; where that fails they stay whole in the line."""
        spilled: dict[str, Any] = {}
        for key, text in data.items():
            if not isinstance(text, str) or len(text) <= LARGE:
                continue
            raw = text.encode("utf-8", "surrogatepass")
            name = f"{self._number:06d}-{re.sub(r'[^A-Za-z0-9_]', '_', key)[:40]}"
            try:
                folder = private(self.folder / OUTPUTS)
                fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(raw)
            except OSError:
                continue
            self.said += len(raw)
            cut = len(text) - 2 * KEPT
            spilled[key] = f"{text[:KEPT]}\n[… {cut} characters are in {OUTPUTS}/{name} …]\n{text[-KEPT:]}"
            spilled.setdefault("spilled", {})[key] = {
                "file": f"{OUTPUTS}/{name}",
                "bytes": len(raw),
                "sha256": hashlib.sha256(raw).hexdigest(),
            }
        return {**data, **spilled}


# ---- reading ----------------------------------------------------------------------------------------------------


def load(folder: Path) -> list[Line]:
    """What a session's record holds; a torn last line is left out, the file stays as it is.

    Raises UsageError for a foreign or damaged file, naming it and the line; OSError where it cannot be read.
    """
    return _parse(folder / FILE)[0]


def whole(folder: Path, line: Line, key: str) -> str:
    """The text of `line.data[key]` in full, from its file where it was too large for the line.

    A file that is missing, or that the record has no business with, gives the head and tail that the line has.
    """
    text = str(line.data.get(key, ""))
    spilled = line.data.get("spilled")
    entry = spilled.get(key) if isinstance(spilled, dict) else None
    name = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not re.fullmatch(OUTPUTS + r"/\d{6,}-\w{1,40}", name, re.ASCII):
        return text
    try:
        fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            return file.read().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError):
        return text


def _parse(path: Path) -> tuple[list[Line], int]:
    """The lines, and how many bytes of the file they are."""
    lines: list[Line] = []
    good = 0
    with path.open("rb") as file:
        for index, raw in enumerate(file, 1):
            line = _parse_line(raw) if raw.endswith(b"\n") else None
            if line is None:
                # Torn: nothing follows. Blocks of zeros after a power loss are torn too.
                if lines and not file.read(1):
                    break
                raise _damaged(path, index, "is not a line of a record")
            if not lines and line.name != "session.start":
                raise _damaged(path, index, "is not the start of a session")
            if lines and line.number <= lines[-1].number:
                raise _damaged(path, index, "does not come after the line before it")
            lines.append(line)
            good += len(raw)
    if not lines:
        raise _damaged(path, 1, "is missing")
    return lines, good


def _damaged(path: Path, index: int, what: str) -> UsageError:
    return UsageError(
        f"{path} is not a record of sbx, or damaged: line {index} {what}",
        place=f"{path}:{index}",
        hint="the file was left as it is",
    )


def _parse_line(raw: bytes) -> Line | None:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    match document:
        case {"t": str(stamp), "n": int(number), "name": str(name), "data": dict(data)}:
            return Line(stamp, number, name, data)
    return None


def iterate(path: Path) -> Iterator[bytes]:
    """The raw lines of a record, whole ones only, for `--json`."""
    with path.open("rb") as file:
        for raw in file:
            if raw.endswith(b"\n"):
                yield raw
