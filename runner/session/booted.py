"""The first phase of a session: the guest is up and has said so, and has been told nothing yet.

A sandbox in this state belongs to no question, so it can be made ahead of one (`runner.session.pool`). What its end
means is told apart here, since it may end in this phase as well as later.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import AsyncGenerator

from runner.errors import (
    ConfigError,
    EngineError,
    ImageError,
    LimitError,
    OutOfMemory,
    RefusedError,
    SbxError,
    StartupError,
    WireError,
    WireVersionError,
    WorkspaceError,
)
from runner.sandbox.attach import Attached
from runner.sandbox.container import Sandbox
from runner.wire import VERSION
from runner.wire import messages as m
from runner.wire.mux import Mux, MuxClosed

READY_WITHIN = 60.0
"""Seconds from the container's start to the guest's first message."""
LOG_KEPT = 64 * 1024
"""Bytes of the guest's stderr that are kept, for the message when it dies."""
KILLED = (128 + signal.SIGKILL, 128 + signal.SIGTERM, 255)
"""Codes of a container that was ended from outside. PID 1 of another uid cannot be signalled from within."""


class Booted:
    """The guest of one sandbox, and this end of its wire.

    Args:
        sandbox: created, not started; it is this object's from now on, and ended by `end`.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.mux: Mux[m.ToHost] | None = None
        self.ready: m.Ready | None = None
        self._attached: Attached | None = None
        self._incoming: AsyncGenerator[m.ToHost, None] | None = None
        self._next: asyncio.Task[m.ToHost | None] | None = None
        self._ended = False
        self._log: deque[bytes] = deque()
        self._log_size = 0

    async def start(self) -> Mux[m.ToHost]:
        """Starts the container and waits until the guest says that it is up. Call `end` whatever happens.

        Raises:
            EngineError: the engine refuses, or the guest is silent for `READY_WITHIN` seconds.
            ImageError: the image's program cannot be started, or speaks another version of the wire.
            SbxError: the guest says why it cannot go on.
        """
        self._attached = await self.sandbox.start(self._on_log)
        self.mux = Mux(self._attached, m.decode_for_host, even=True)
        self._incoming = self.mux.run()
        try:
            async with asyncio.timeout(READY_WITHIN):
                first = await anext(self._incoming, None)
        except TimeoutError:
            raise EngineError(
                f"the guest was not ready within {READY_WITHIN:g} s", place=self.sandbox.container, log=self.log
            ) from None
        except MuxClosed as error:
            raise WireError(str(error), place=self.sandbox.container, log=self.log) from None
        if isinstance(first, m.Failed):
            raise self.failed(first)
        if first is None:
            raise await self.why_gone()
        if not isinstance(first, m.Ready):
            raise WireError("the guest's first message was not Ready", place=self.sandbox.container, log=self.log)
        if first.version != VERSION:
            raise WireVersionError(
                f"the image's program (sbx {first.program}) speaks wire version {first.version},"
                f" this sbx speaks {VERSION}",
                place=self.sandbox.order.image,
                hint="build the image again with this version",
            )
        self.ready = first
        # The wire is read on, so that one who dies while nobody needs it is noticed.
        self._next = asyncio.create_task(self._look())
        return self.mux

    @property
    def alive(self) -> bool:
        """It is up, and has said nothing since."""
        return self._next is not None and not self._next.done()

    async def messages(self) -> AsyncGenerator[m.ToHost, None]:
        """What the guest says after Ready, until the wire ends. Raises MuxClosed."""
        assert self._next is not None
        assert self._incoming is not None
        first = await self._next
        if first is not None:
            yield first
            async with contextlib.aclosing(self._incoming):
                async for message in self._incoming:
                    yield message

    async def end(self) -> None:
        """Ends the sandbox, whatever state it is in. Idempotent."""
        if self._ended:
            return
        self._ended = True
        if self._next:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        if self._incoming:
            await self._incoming.aclose()
        await self.sandbox.end(self._attached)

    @property
    def log(self) -> str:
        """The end of what the guest wrote to its stderr."""
        return b"".join(self._log).decode("utf-8", "replace")

    def failed(self, message: m.Failed) -> SbxError:
        """The error that the guest tells of itself."""
        match message.kind:
            case "version":
                return WireVersionError(message.message, place=self.sandbox.order.image)
            case "config":
                return ConfigError(message.message)
            case "refused":
                return RefusedError(message.message)
            case "startup":
                first, _, rest = message.message.partition("\n")
                return StartupError(first, log=rest.strip() or None, hint="`--no-startup` leaves startup commands out")
            case "limit":
                return LimitError(message.message, place=self.sandbox.container[:12])
            case "workspace":
                return WorkspaceError(
                    message.message,
                    place=self.sandbox.order.workspace,
                    hint="the engine must run on this machine and see this folder; --mode clone works on a copy",
                )
            case _:
                return WireError(
                    f"the guest failed: {message.message}", place=self.sandbox.container[:12], log=self.log
                )

    async def why_gone(self) -> SbxError:
        """The wire ended by itself: the container's state tells why."""
        state = await self.sandbox.state()
        place = self.sandbox.container[:12]
        if not state:
            return EngineError("the sandbox is gone, or the engine is", place=place, log=self.log)
        code = state.get("ExitCode")
        if state.get("OOMKilled") and code == KILLED[0]:
            return OutOfMemory(
                "the sandbox ran out of memory and the agent loop was killed",
                place=place,
                hint="give it more: --memory",
            )
        if state.get("Error") and not self.ready:
            return ImageError(f"the sandbox did not start: {state['Error']}", place=self.sandbox.order.image)
        if code in KILLED or state.get("Running"):
            return EngineError(
                f"the sandbox was ended from outside (code {code})" if code else "the engine dropped the sandbox",
                place=place,
                hint="someone killed or removed it, or the engine was restarted",
                log=self.log,
            )
        last = self.log.strip().splitlines()[-1:] or [f"code {code}"]
        return WireError(f"the guest ended by itself: {last[0]}", place=place, log=self.log)

    async def _look(self) -> m.ToHost | None:
        assert self._incoming is not None
        return await anext(self._incoming, None)

    def _on_log(self, data: bytes) -> None:
        self._log.append(data)
        self._log_size += len(data)
        while self._log_size > LOG_KEPT and len(self._log) > 1:
            self._log_size -= len(self._log.popleft())
