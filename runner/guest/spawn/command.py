"""What to start, as whom, and what came of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GUEST_UID = 64000
"""The agent loop's uid and gid: the number of `wire.agent`, whose import would cost every supervisor its memory."""
HOOK_UID = 64001
"""The guards' uid and gid."""
NOBODY_UID = 65534
"""What an unmapped owner looks like in a user namespace."""

HOME = "/home/agent"
RUN_DIR = "/run/sbx"
"""A tmpfs of the guest's own: U can read it and not write it."""
EMPTY_HOME = "/run/sbx/empty"
"""Empty, the guest's, 0555: the HOME of hooks."""
OUTPUT_DIR = "/tmp/sbx-output"  # noqa: S108 - made by root in a sticky /tmp before anything else runs; U cannot write it
"""Whole outputs of calls whose output was cut. The guest writes, U reads."""
HOOK_TMP = "/tmp/sbx-hook"  # noqa: S108 - as above, 0700, of `HOOK_UID`
"""The one folder in which a guard may write."""


class Identity(NamedTuple):
    """Whom a process runs as. It never has a capability."""

    uid: int
    gid: int
    name: str


HOOK = Identity(HOOK_UID, HOOK_UID, "sbx-hook")


@dataclass(frozen=True)
class Command:
    """What to start."""

    argv: Sequence[str]
    """A name without `/` is looked up in `env`'s PATH. Bytes that are no UTF-8 travel as surrogate escapes."""
    env: Mapping[str, str]
    """The whole environment; nothing is added."""
    cwd: str
    identity: Identity
    fallback_cwd: str = ""
    """Used when `identity` cannot enter `cwd`; if empty, the start fails then."""
    call: str = ""
    """Not empty: nothing is executed; the function `MODULE:NAME`, preloaded by the server, is called with `argv`
    after the drop. Starts in a fraction of an interpreter's start-up, and cannot be attached to by U."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits, soft and hard, by their name without `RLIMIT_`: `{"FSIZE": 1 << 20}`."""
    grace: float = 0.2
    """Seconds that what the process left behind has to end by itself (`… | tee`, `> >(tee)`) before it is ended."""


@dataclass(frozen=True)
class Exit:
    """How it ended. Both `code` and `signal` None: it never started, or nobody knows; `error` says which."""

    code: int | None = None
    signal: int | None = None
    ended: int = 0
    """Processes that it left behind and that were ended."""
    oom: bool = False
    """The kernel killed for want of memory while it ran, and it failed."""
    oom_counted: bool = True
    """False where the kernel's count cannot be read, so that `oom` says nothing."""
    error: str = ""
    """Why it could not be started, or why its end is unknown."""
    killed: bool = False
    """Ended by us."""
    stuck: int = 0
    """Processes that did not die by SIGKILL within the bound (uninterruptible in the kernel)."""

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.error


@dataclass(frozen=True)
class Spill:
    """Where the whole of an output goes when it does not fit the limit.

    `folder` must not be writable by anyone but the guest; `.stdout` or `.stderr` is added to `name`.
    """

    name: str
    folder: str = OUTPUT_DIR
    limit: int = 64 * 1024 * 1024
    """Most bytes a stream."""


@dataclass(frozen=True)
class Captured:
    """One stream: exact up to the limit, beyond it the head and the tail."""

    data: bytes
    size: int
    """True size in bytes."""
    truncated: bool
    head: int
    """How many bytes of `data` are the head; the rest is the tail. All of it when nothing was cut."""
    path: str = ""
    """The file with the whole, when something was cut and it was asked for."""
    kept: int = 0
    """Bytes in that file; less than `size` when the file's cap, or the disk's end, was reached."""

    def parts(self) -> tuple[str, str]:
        """Head and tail as text, cut at character boundaries; bytes that are no UTF-8 become U+FFFD."""
        head, tail = self.data[: self.head], self.data[self.head :]
        if self.truncated:
            head, tail = head[: _whole(head)], tail[_first(tail) :]
        return head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")


@dataclass(frozen=True)
class Result:
    """A finished command and its output."""

    exit: Exit
    stdout: Captured
    stderr: Captured
    timed_out: bool
    seconds: float


def _whole(data: bytes) -> int:
    """The length without a character that is cut off at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if 0xF0 <= byte <= 0xF4 else 3 if byte >= 0xE0 else 2 if byte >= 0xC2 else 1
        return len(data) - back if back < length <= 4 and byte < 0xF5 else len(data)
    return len(data)


def _first(data: bytes) -> int:
    """Where the first whole character begins; at most three bytes are skipped."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return start


def reason(number: int) -> str:
    """An errno of a failed start in plain words."""
    return {
        errno.ENOENT: "not found",
        errno.EACCES: "permission denied",
        errno.EPERM: "not permitted",
        errno.ENOTDIR: "not a folder",
        errno.ENOEXEC: "not an executable format (a script without #!?)",
        errno.E2BIG: "argument list too long",
        errno.EAGAIN: "no more processes: the sandbox's limit is reached",
        errno.ENOMEM: "out of memory",
        errno.EMFILE: "too many open files",
        errno.ENFILE: "too many open files",
    }.get(number, os.strerror(number).lower())
