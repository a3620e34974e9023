"""Commands that the host starts in the sandbox: `exec`, `shell`, `--check`, and connections to published ports."""

from __future__ import annotations

import asyncio
import os

from runner.guest.spawn.command import Command
from runner.guest.spawn.spawner import Process, Spawner, open_pipe
from runner.guest.tools.base import Place
from runner.wire import messages as m
from runner.wire.mux import Mux, Stream, StreamReset
from runner.wire.pipes import PipeTransport

DRAIN = 0.5
"""Seconds that outputs may still be read after the command's own process has ended."""
PIECE = 64 * 1024


class Commands:
    """Runs `Exec` messages, each as a child of its own.

    Args:
        mux: the wire.
        spawner: starts processes.
        place: where and as whom; every command here runs as U.
    """

    def __init__(self, mux: Mux[m.ToGuest], spawner: Spawner, place: Place) -> None:
        self._mux = mux
        self._spawner = spawner
        self._place = place
        self._running: dict[int, Process] = {}

    async def run(self, message: m.Exec) -> None:
        """Starts the command, joins its streams to the wire, and reports its end."""
        streams = [self._mux.accept(c) if c else None for c in (message.stdin, message.stdout, message.stderr)]
        try:
            self._mux.post(await self._run(message, *streams))
        except OSError as error:
            self._mux.post(m.Exited(message.id, None, error=str(error)))
        finally:
            self._running.pop(message.id, None)
            for stream in streams:
                if stream:
                    stream.close()

    async def _run(
        self, message: m.Exec, stdin: Stream | None, stdout: Stream | None, stderr: Stream | None
    ) -> m.Exited:
        environment = dict(self._place.environment)
        if message.tty:
            environment.pop("CI", None)
            environment["TERM"] = "xterm-256color"
        environment.update(message.env)
        command = Command(message.argv, environment, message.cwd or self._place.workspace, self._place.owner)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        ours: list[int] = []
        theirs: list[int] = [null]
        pumps: list[asyncio.Task[None]] = []
        feeds: list[asyncio.Task[None]] = []
        over = asyncio.Event()
        try:
            if message.tty:
                process = await self._spawner.start(
                    command, stdin=null, stdout=null, stderr=null, tty=(message.rows, message.columns)
                )
                self._running[message.id] = process
                if process.terminal >= 0:
                    ours.append(process.terminal)
                    pumps.append(asyncio.create_task(self._out(process.terminal, stdout, over)))
                    feeds.append(asyncio.create_task(self._in(process.terminal, stdin, close=False)))
            else:
                give_in, give_out, give_err = null, null, null
                if stdin:
                    give_in, end = os.pipe2(os.O_CLOEXEC)
                    theirs.append(give_in)
                    feeds.append(asyncio.create_task(self._in(end, stdin, close=True)))
                for stream, is_err in ((stdout, False), (stderr, True)):
                    if stream:
                        end, give = open_pipe()
                        theirs.append(give)
                        pumps.append(asyncio.create_task(self._pipe_out(end, stream, over)))
                        if is_err:
                            give_err = give
                        else:
                            give_out = give
                process = await self._spawner.start(command, stdin=give_in, stdout=give_out, stderr=give_err)
                self._running[message.id] = process
            for fd in theirs:
                os.close(fd)
            theirs.clear()
            timed_out = False
            try:
                async with asyncio.timeout(message.timeout or None):
                    end_of = await process.wait()
            except TimeoutError:
                timed_out = True
                await process.kill()
                end_of = await process.wait()
            over.set()
            await asyncio.gather(*pumps)
            return m.Exited(
                message.id,
                end_of.code,
                signal=end_of.signal,
                error=end_of.error,
                oom=end_of.oom,
                timed_out=timed_out,
                ended=end_of.ended,
            )
        finally:
            for fd in theirs:
                os.close(fd)
            for task in (*pumps, *feeds):
                task.cancel()
            await asyncio.gather(*pumps, *feeds, return_exceptions=True)
            for fd in ours:
                os.close(fd)

    async def _pipe_out(self, fd: int, stream: Stream, over: asyncio.Event) -> None:
        """Closes the pipe when nobody reads on, so that the command is told by SIGPIPE as anywhere."""
        try:
            await self._out(fd, stream, over)
        finally:
            os.close(fd)

    async def _out(self, fd: int, stream: Stream | None, over: asyncio.Event) -> None:
        """One output, to its end. After the command's end, what is there is all there will be: however slowly the
        host takes it, nothing of it is lost, and who else may hold the other end is waited for only `DRAIN`."""
        pipe = PipeTransport(fd, fd)
        ended = asyncio.create_task(over.wait())
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                reading = asyncio.create_task(pipe.read(PIECE))
                await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    await asyncio.wait({reading}, timeout=DRAIN)
                if not reading.done() or not (data := reading.result()):
                    return
                if stream:
                    await stream.write(data)
        except (OSError, StreamReset):
            return  # EIO is how a terminal ends
        finally:
            ended.cancel()
            if reading and not reading.done():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _in(self, fd: int, stream: Stream | None, *, close: bool) -> None:
        pipe = PipeTransport(fd, fd)
        try:
            if stream:
                async for data in stream:
                    await pipe.write(data)
        except (OSError, StreamReset):
            return  # the command no longer reads
        finally:
            if close:
                os.close(fd)

    async def signal(self, exec_id: int, number: int) -> None:
        """Sends a signal to the command, when it still runs."""
        if process := self._running.get(exec_id):
            process.signal(number)

    async def resize(self, exec_id: int, rows: int, columns: int) -> None:
        """The host's window changed."""
        if process := self._running.get(exec_id):
            process.resize(rows, columns)

    async def forward(self, message: m.Forward) -> None:
        """Joins a client of a published port to the program that listens in the container."""
        from runner.guest.forwarding import forward

        await forward(self._mux.accept(message.channel), message.port, message.protocol)
