"""A hook that stays: one process for the session, one JSON line in, one JSON line out.

The danger is an answer that belongs to another question. So a process that has said something nobody asked for, or
that was left in the middle of a question (time-out, cancel), is ended and never read again; a hook may repeat the
request's `id`, and an `id` that does not fit is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from runner.guest.hooks import answer as answers
from runner.guest.hooks import process
from runner.guest.hooks.answer import Answer
from runner.guest.hooks.process import DENIES, Outcome, Places
from runner.guest.hooks.scrub import mask_secrets
from runner.wire.agent import Hook

MAX_DEATHS = 2
"""It is started again after its first death, not after the second."""

END_BOUND = 2.0
"""Seconds that ending the process may take."""

LAST_WORDS_BOUND = 0.5
"""Seconds to wait for the end of a dead process's stderr."""

STDERR_KEPT = process.MAX_STDERR


class _Died(Exception):
    """The process ended in place of an answer."""


class _Running:
    """The process and its three pipes."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.reader = asyncio.StreamReader(limit=answers.MAX_STDOUT)
        self.errors = _Tail()
        self._transports: list[asyncio.BaseTransport] = []
        self.writer: asyncio.StreamWriter

    @classmethod
    async def start(cls, hook: Hook, places: Places, spawner: Any) -> _Running:
        pipes = [os.pipe() for _ in range(3)]
        theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
        ours = (pipes[0][1], pipes[1][0], pipes[2][0])
        try:
            for end in theirs:
                os.fchmod(end, 0o666)  # else `echo > /dev/stderr` fails: the pipe is the guest's
            handle = await spawner.start(places.command(hook), stdin=theirs[0], stdout=theirs[1], stderr=theirs[2])
        except BaseException:
            for end in ours:
                os.close(end)
            raise
        finally:
            for end in theirs:
                os.close(end)
        self = cls(handle)
        loop = asyncio.get_running_loop()
        writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(ours[0], "wb", 0))
        self.writer = asyncio.StreamWriter(writing, protocol, None, loop)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(ours[1], "rb", 0)
        )
        failing, _ = await loop.connect_read_pipe(lambda: self.errors, os.fdopen(ours[2], "rb", 0))
        self._transports = [writing, reading, failing]
        return self

    async def exchange(self) -> bytes:
        """Reads one line while what was written goes out: a hook may answer before it has read everything."""
        if not self.writer.transport.get_write_buffer_size():
            return await self.reader.readuntil(b"\n")
        drained = asyncio.create_task(self._drain())
        try:
            return await self.reader.readuntil(b"\n")
        finally:
            drained.cancel()
            await asyncio.gather(drained, return_exceptions=True)

    async def _drain(self) -> None:
        with contextlib.suppress(OSError):  # it closed its stdin; what it answers still counts
            await self.writer.drain()

    async def last_words(self) -> str:
        """Its stderr, after its death."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_BOUND):
                await self.errors.ended.wait()
        return mask_secrets(process.tail(bytes(self.errors.kept)))

    @property
    def has_unread(self) -> bool:
        return bool(self.reader._buffer)  # type: ignore[attr-defined]

    async def end(self) -> None:
        for transport in self._transports:
            if transport.is_closing():
                continue  # it saw the other end close; aborting it again is an error in asyncio
            transport.abort() if isinstance(transport, asyncio.WriteTransport) else transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_BOUND):
                await self.handle.kill()


class _Tail(asyncio.Protocol):
    """Keeps the end of a stream."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.kept += data
        del self.kept[:-STDERR_KEPT]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


class PersistentHook:
    """One hook's process over the session. Questions are asked one after the other."""

    def __init__(self, hook: Hook, places: Places, spawner: Any) -> None:
        self._hook = hook
        self._places = places
        self._spawner = spawner
        self._running: _Running | None = None
        self._deaths = 0
        self._asked = 0
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Starts the process ahead of the first question; a failure shows then."""
        async with self._lock:
            if self._running is None:
                try:
                    self._running = await _Running.start(self._hook, self._places, self._spawner)
                except OSError:
                    self._running = None

    async def close(self) -> None:
        async with self._lock:
            await self._end()

    async def ask(self, payload: Mapping[str, Any]) -> Outcome:
        """One question. The hook's `timeout` bounds starting, writing and answering together."""
        began = time.monotonic()
        async with self._lock:
            self._asked += 1
            try:
                data = process.encode({**payload, "id": self._asked}) + b"\n"
            except ValueError as error:
                return Outcome(failure=f"cannot be asked: {error}", understood=False)
            settled = False
            try:
                async with asyncio.timeout(self._hook.timeout):
                    outcome = await self._answered(data)
                settled = True
            except TimeoutError:
                outcome = Outcome(failure=f"took longer than {self._hook.timeout:g} s")
            finally:
                if not settled:
                    await asyncio.shield(self._end())
        return Outcome(**{**outcome.__dict__, "seconds": time.monotonic() - began})

    async def _answered(self, data: bytes) -> Outcome:
        while True:
            if self._deaths >= MAX_DEATHS:
                return Outcome(failure="has died twice in this session and is not started again")
            try:
                if self._running is None:
                    self._running = await _Running.start(self._hook, self._places, self._spawner)
                return await self._one_line(self._running, data)
            except OSError as error:
                self._deaths += 1
                return Outcome(failure=f"could not be started: {error}")
            except _Died:
                outcome = await self._post_mortem()
                if outcome is not None:
                    return outcome

    async def _one_line(self, running: _Running, data: bytes) -> Outcome:
        if running.has_unread:
            await self._end()
            self._deaths += 1
            return Outcome(failure="wrote a line that nobody asked for", understood=False)
        running.writer.write(data)
        try:
            line = await running.exchange()
        except asyncio.IncompleteReadError as error:
            if error.partial.strip():
                await self._end()
                self._deaths += 1
                return Outcome(failure="ended in the middle of an answer", understood=False)
            raise _Died from None
        except asyncio.LimitOverrunError:
            await self._end()
            self._deaths += 1
            return Outcome(failure="wrote a line of more than 1 MiB")
        outcome = process.interpret(self._hook, line)
        if outcome.understood and not self._fits(line):
            await self._end()
            self._deaths += 1
            return Outcome(failure="answered another question (its `id` differs)", understood=False)
        return outcome

    def _fits(self, line: bytes) -> bool:
        if b'"id"' not in line:
            return True
        try:
            document = json.loads(line)
        except ValueError:
            return True
        return not isinstance(document, dict) or document.get("id", self._asked) == self._asked

    async def _post_mortem(self) -> Outcome | None:
        """What a death means: a refusal (exit code 2), or one more start (None), or a failure."""
        assert self._running is not None
        running, self._running = self._running, None
        self._deaths += 1
        try:
            end = await running.handle.wait()
            stderr = await running.last_words()
        finally:
            await running.end()
        if end.code == DENIES:
            return Outcome(
                Answer(refuse=True, reason=stderr.strip()[: answers.MAX_REASON] or "exit code 2"), exit=DENIES
            )
        if self._deaths < MAX_DEATHS:
            return None
        how = f"code {end.code}" if end.signal is None else process.signal_name(end.signal)
        return Outcome(failure=f"died twice (last: {end.error or how})", exit=end.code, stderr=stderr)

    async def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()
