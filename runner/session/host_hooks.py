"""Hooks with `where: host`: started outside the sandbox, by the host process, as the user.

The guest names a hook and sends its stdin. Which command that is, the host knows from the agent that it read itself
before anything ran; a name that it does not know runs nothing. The files that a hook finds under `MM_CONFIG_DIR` are a
private copy of the kit's folder, taken then too: the folder itself may be mounted, and a script in it that a tool edits
would run on the host otherwise. For the same reason no hook starts in the workspace or has its path in a variable.

One command's runs follow one another in the order that the guest asked for them, so a relay sees events in their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.wire.agent import Hook
from runner.wire.messages import HostHook, HostHookDone
from runner.wire.mux import Mux, MuxClosed, Stream, StreamReset
from runner.wire.pipes import PipeTransport

MAX_PAYLOAD = 64 * 1024 * 1024
"""Bytes of one stdin."""
MAX_STDOUT = 1024 * 1024
MAX_STDERR = 16 * 1024
MAX_WAITING = 256
"""Runs that may wait for their turn."""
DRAIN = 0.5
"""Seconds that pipes are still read after the hook has ended: a child of its may hold them."""
CLOSE_WITHIN = 3.0
"""Seconds that hooks may still take when the session is over."""
PIECE = 64 * 1024

KEPT_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
)
"""Of the user's environment, what a notice on the desktop or a log in the home needs. No provider's key is among it."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HostHooks:
    """Runs the hooks of one session.

    Args:
        hooks: all of the agent's; those of the sandbox are left aside.
        snapshot: a tar of the kit's folder (`session.snapshot`), or nothing.
        hooks_dir: the ready-made hooks on this machine.
        workspace: the host's folder; no program is taken from it.
        environ: the user's environment.
    """

    def __init__(
        self, hooks: Sequence[Hook], snapshot: bytes, hooks_dir: str, workspace: str, environ: Mapping[str, str]
    ) -> None:
        self._hooks = {hook.name: hook for hook in hooks if hook.where == "host"}
        self._snapshot = snapshot
        self._folder: Path | None = None
        self._last: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False
        self._environ = {key: environ[key] for key in KEPT_VARIABLES if key in environ}
        self._environ |= {"PATH": _path(environ.get("PATH", ""), workspace), "SBX_HOOKS_DIR": hooks_dir}

    def take(self, message: HostHook, mux: Mux[Any]) -> None:
        """Takes an order from the guest; returns at once. Its place in the order of runs is that of this call."""
        stream = mux.accept(message.body)
        hook = self._hooks.get(message.name)
        if hook is None or self._closed or len(self._running) >= MAX_WAITING:
            stream.reset("not run")
            stream.close()
            why = "the host knows no hook of that name" if hook is None else "too many hooks wait on the host"
            mux.post(HostHookDone(message.id, None, error=why))
            return
        task = asyncio.create_task(self._turn(hook, message.id, stream, mux, self._last.get(hook.command)))
        self._last[hook.command] = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Lets what runs come to its end for a bounded time, ends what does not, and removes the copy."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_WITHIN)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    async def _turn(
        self, hook: Hook, number: int, stream: Stream, mux: Mux[Any], before: asyncio.Task[None] | None
    ) -> None:
        try:
            data = await stream.read_all(MAX_PAYLOAD)
            stream.close()
        except (ValueError, StreamReset) as error:
            done = HostHookDone(number, None, error=f"its stdin did not arrive: {error}")
        else:
            if before:
                await asyncio.wait([before])
            try:
                done = await self._run(hook, number, data)
            except OSError as error:
                done = HostHookDone(number, None, error=error.strerror or str(error))
        with contextlib.suppress(MuxClosed):
            mux.post(done)

    async def _run(self, hook: Hook, number: int, data: bytes) -> HostHookDone:
        environ = {**self._environ, "MM_HOOK_EVENT": hook.event, "MM_CONFIG_DIR": str(self._config())}
        began = time.monotonic()
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    hook.command,
                    stdin=theirs[0],
                    stdout=theirs[1],
                    stderr=theirs[2],
                    cwd="/",
                    env=environ,
                    start_new_session=True,
                )
            finally:
                for fd in theirs:
                    os.close(fd)
            out, err = bytearray(), bytearray()
            size = [0]
            feeder = asyncio.create_task(_feed(ours.pop(0), data))
            out_end, err_end = ours
            readers = [
                asyncio.create_task(_read(out_end, out, MAX_STDOUT, size)),
                asyncio.create_task(_read(err_end, err, MAX_STDERR, None)),
            ]
            timed_out = False
            try:
                try:
                    async with asyncio.timeout(hook.timeout):
                        await process.wait()
                except TimeoutError:
                    timed_out = True
                if timed_out:
                    _end(process)
                    await process.wait()
                await asyncio.wait(readers, timeout=DRAIN)
            finally:
                if process.returncode is None:
                    _end(process)
                for task in (feeder, *readers):
                    task.cancel()
                await asyncio.gather(feeder, *readers, return_exceptions=True)
        finally:
            for fd in ours:
                os.close(fd)
        code = process.returncode
        return HostHookDone(
            number,
            code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            stdout=_text(bytes(out)),
            stderr=_text(bytes(err)),
            size=size[0],
            timed_out=timed_out,
            seconds=time.monotonic() - began,
        )

    def _config(self) -> Path:
        """The copy of the kit's folder, made for the first hook that runs."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sbx-host-hooks-"))
            if self._snapshot:
                with tarfile.open(fileobj=io.BytesIO(self._snapshot), mode="r:") as archive:
                    archive.extractall(self._folder, filter="data")
        return self._folder


def _path(path: str, workspace: str) -> str:
    """The user's PATH without relative folders and without what a tool could put programs into."""
    inside = os.path.realpath(workspace) if workspace else "\0"
    kept = []
    for folder in path.split(":"):
        real = os.path.realpath(folder) if folder.startswith("/") else ""
        if real and real != inside and not real.startswith(inside.rstrip("/") + "/"):
            kept.append(folder)
    return ":".join(kept) or SYSTEM_PATH


def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


async def _feed(fd: int, data: bytes) -> None:
    """A hook that reads nothing of its stdin, or closes it, is its own affair."""
    try:
        await PipeTransport(fd, fd).write(data)
    except OSError:
        return
    finally:
        os.close(fd)


async def _read(fd: int, kept: bytearray, limit: int, size: list[int] | None) -> None:
    pipe = PipeTransport(fd, fd)
    while data := await pipe.read(PIECE):
        if size is not None:
            size[0] += len(data)
            kept += data[: max(limit - len(kept), 0)]
        else:
            kept += data
            del kept[:-limit]
