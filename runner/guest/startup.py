"""What a kit does at every start, in this order: files, workspace files, startup commands.

All of it runs as U, or as uid 0 without any capability, never as the guest. A file that cannot be written and a
command that fails end the start: an agent in a half-made sandbox would work on false ground. What a background command
comes to later is a notice.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from runner.guest.spawn import privileges
from runner.guest.spawn.command import GUEST_UID, HOOK_UID, NOBODY_UID, RUN_DIR, Command, Identity
from runner.guest.spawn.spawner import Process, Spawner, open_pipe
from runner.guest.tools.base import Place
from runner.wire.mux import Mux
from runner.wire.pipes import PipeTransport
from runner.wire.setup import CONTENTS, Instruction, KitSetup, Startup

STARTUP_WITHIN = 600.0
"""Seconds for one startup command that is not in the background."""
PLACING_WITHIN = 60.0
"""Seconds for writing all files."""
KEPT_OUTPUT = 16 * 1024
"""Bytes of a startup command's output that are kept, the last ones."""
DRAIN = 0.3
"""Seconds that the output of a failed command is still read."""
_ROOT = Identity(0, 0, "root")


class StartupFailed(Exception):
    """The start cannot go on. The first line says what, the others are the command's output."""


class AtStart:
    """Does it, and ends what it left running.

    Args:
        setup: what is to be done.
        spawner: starts processes.
        place: where, and as whom U runs.
        mux: the wire, for the copy of the workspace.
        emit: takes events.
    """

    def __init__(
        self,
        setup: KitSetup,
        spawner: Spawner,
        place: Place,
        emit: Callable[[str, dict[str, Any]], None],
        mux: Mux[Any],
    ) -> None:
        self._mux = mux
        self._setup = setup
        self._spawner = spawner
        self._place = place
        self._emit = emit
        self._watching: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Raises StartupFailed."""
        if self._setup.clone:
            from runner.guest.filling import fill

            if wrong := await fill(self._mux.accept(self._setup.clone), self._spawner, self._place):
                raise StartupFailed(f"the workspace could not be copied: {wrong}")
        if self._setup.files or self._setup.workspace:
            await self._place_files()
        if any(_identity(entry.user, self._place.owner).uid == 0 for entry in self._setup.startup):
            # What is not dumpable belongs to root in /proc, which uid 0 would then own by that alone.
            privileges.set_dumpable(True)
        for number, entry in enumerate(self._setup.startup, 1):
            await self._start(number, entry)

    async def close(self) -> None:
        """Ends what still runs."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    # ---- files

    async def _place_files(self) -> None:
        workspace = [] if self._setup.read_only else [asdict(file) for file in self._setup.workspace]
        order = {
            "root": self._place.workspace,
            "files": [asdict(file) for file in self._setup.files],
            "workspace": workspace,
        }
        if self._setup.read_only and self._setup.workspace:
            self._warn("the workspace is read-only: the kit's files for it are left out")
        result = await self._spawner.run(
            Command(
                [f"{RUN_DIR}/{CONTENTS}"],
                {"PATH": "/usr/bin:/bin"},
                "/",
                self._place.owner,
                call="runner.guest.placing:main",
            ),
            input=json.dumps(order).encode(),
            timeout=PLACING_WITHIN,
            limit=8 * 1024 * 1024,
        )
        try:
            answer = json.loads(result.stdout.data)
        except ValueError:
            said = result.stderr.data.decode("utf-8", "replace").strip() or result.exit.error or "no answer"
            raise StartupFailed(f"the kit's files could not be written: {said}") from None
        if answer["failed"]:
            named = {file.path: file.source for file in self._setup.files}
            first = [
                f"{path}: {reason}" + (f" (kit {named[path]})" if path in named else "")
                for path, reason in answer["failed"]
            ]
            raise StartupFailed("\n".join([f"the kit's file {first[0]}", *first[1:]]))
        if answer["kept"]:
            self._emit("workspace.kept", {"paths": answer["kept"]})
            self._warn(f"your own {_listed(answer['kept'])} in the workspace stays; the kit brings another one")

    # ---- commands

    async def _start(self, number: int, entry: Startup) -> None:
        shown = shlex.join(entry.argv)
        identity = _identity(entry.user, self._place.owner)
        environment = dict(self._place.environment)
        if identity != self._place.owner:
            environment.update(USER=identity.name, LOGNAME=identity.name, HOME=_home(identity))
        order = Command(
            list(entry.argv),
            environment,
            self._place.workspace,
            identity,
            fallback_cwd="/",
            call="runner.guest.keeping:main",
        )
        started = time.monotonic()
        status, give_status = os.pipe2(os.O_CLOEXEC)
        output, give_output = open_pipe()
        try:
            process = await self._spawner.start(order, stdin=give_status, stdout=give_output, stderr=give_output)
        except BaseException:
            os.close(status)
            os.close(output)
            raise
        finally:
            os.close(give_status)
            os.close(give_output)
        tail = _Tail(output)
        ended = asyncio.create_task(_read_end(status))
        watching = asyncio.create_task(self._watch(entry, shown, process, tail, ended, started))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        if entry.background:
            return
        try:
            async with asyncio.timeout(STARTUP_WITHIN):
                how = await asyncio.shield(ended)
        except TimeoutError:
            how = f"error not done after {STARTUP_WITHIN:g} s"
        if how != "0":
            await asyncio.wait([tail.task], timeout=DRAIN)
            raise StartupFailed(f"startup command {number} of kit {entry.source} {_said(how)}: {shown}\n{tail.text}")

    async def _watch(
        self, entry: Startup, shown: str, process: Process, tail: _Tail, ended: asyncio.Task[str], started: float
    ) -> None:
        """Until everything of the command is over; cancelled, it ends it."""
        try:
            how = await asyncio.shield(ended)
            event = {"command": list(entry.argv), "user": entry.user, "background": entry.background}
            milliseconds = round((time.monotonic() - started) * 1000, 1)
            self._emit("startup", {**event, "source": entry.source, "end": how, "ms": milliseconds})
            if entry.background and how != "0":
                await asyncio.wait([tail.task], timeout=DRAIN)
                last = tail.text.strip().splitlines()[-1:]
                self._warn(
                    f"the background startup command of kit {entry.source} {_said(how)}: {shown}"
                    + (f": {last[0]}" if last else "")
                )
            await process.wait()
        finally:
            ended.cancel()
            tail.task.cancel()
            if process.pid:
                await asyncio.shield(process.kill())
            await asyncio.gather(ended, tail.task, return_exceptions=True)

    def _warn(self, text: str) -> None:
        self._emit("notice", {"level": "warning", "text": text})


class _Tail:
    """Reads an output to its end and keeps its last bytes, so that nobody who writes it ever waits."""

    def __init__(self, descriptor: int) -> None:
        self._kept: deque[bytes] = deque()
        self._size = 0
        self.task = asyncio.create_task(self._read(descriptor))

    async def _read(self, descriptor: int) -> None:
        pipe = PipeTransport(descriptor, descriptor)
        try:
            while data := await pipe.read(64 * 1024):
                self._kept.append(data)
                self._size += len(data)
                while self._size - len(self._kept[0]) >= KEPT_OUTPUT:
                    self._size -= len(self._kept.popleft())
        finally:
            os.close(descriptor)

    @property
    def text(self) -> str:
        return b"".join(self._kept)[-KEPT_OUTPUT:].decode("utf-8", "replace")


async def _read_end(descriptor: int) -> str:
    """What `runner.guest.keeping` tells of the command."""
    pipe = PipeTransport(descriptor, descriptor)
    data = b""
    try:
        while len(data) < 1024 and (piece := await pipe.read(1024)):
            data += piece
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace") or "error it was ended"


def _said(how: str) -> str:
    kind, _, rest = how.partition(" ")
    if kind == "error":
        return f"failed ({rest})"
    return f"ended by signal {rest}" if kind == "signal" else f"failed with code {how}"


def _identity(user: str, owner: Identity) -> Identity:
    name = user.partition(":")[0]
    if name in ("1000", "agent"):
        return owner
    if name in ("0", "root"):
        return owner if owner.uid == 0 else _ROOT
    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise StartupFailed(f"a startup command wants the user {user}, which the image does not have") from None
    if found.pw_uid in (GUEST_UID, HOOK_UID, NOBODY_UID):
        raise StartupFailed(f"a startup command wants the user {user}, which the sandbox keeps for itself")
    return owner if found.pw_uid == owner.uid else Identity(found.pw_uid, found.pw_gid, found.pw_name)


def _home(identity: Identity) -> str:
    try:
        return pwd.getpwuid(identity.uid).pw_dir
    except KeyError:
        return "/"


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:5])
    return shown if len(paths) <= 5 else f"{shown} and {len(paths) - 5} more"


def instructions_prompt(instructions: Sequence[Instruction], tools: Sequence[str]) -> list[str]:
    """The system prompt's part about the kits' instructions: by pointer, and by content where no tool reads a file."""
    if not instructions:
        return []
    if not {"bash", "read_file"} & set(tools):
        return [f"Instructions of the kit {entry.kit}:\n\n{entry.content.strip()}" for entry in instructions]
    listed = "\n".join(f"- {RUN_DIR}/{entry.path} (kit {entry.kit})" for entry in instructions)
    return [f"How to use this sandbox and its tools is written in these files; read them before you start:\n{listed}"]
