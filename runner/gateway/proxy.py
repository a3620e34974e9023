"""The HTTP and CONNECT proxy: every connection that a program in the container makes to the outside is decided here.

The guest hands on bytes and decides nothing. Here each request is read (`h11`), judged by the policy's one matcher, and
written down. A plain request is built anew from what was read; what a tunnel may carry is in `tunnel`. A refusal is an
answer that a model can read: its status line and its body name the rule, where the rule comes from, and what the user
can do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

import h11

from runner.gateway.connection import Connection, Intercept, Limits, Way
from runner.gateway.decisions import Entry
from runner.gateway.names import Address
from runner.gateway.policy import Policy, Resolve, Verdict, judge
from runner.gateway.tunnel import OverLimit
from runner.gateway.upstream import Upstream
from runner.wire.messages import Dial
from runner.wire.mux import Mux, MuxClosed, StreamReset

RESOLVE_TIMEOUT = 10.0
"""Seconds for a name's addresses."""


async def resolve(name: str) -> Sequence[Address]:
    """The addresses of a name, as the host's own resolver gives them. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT):
            found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise OSError(f"no answer within {RESOLVE_TIMEOUT:.0f} s") from None
    except UnicodeError as error:
        raise OSError(str(error)) from None
    return tuple(dict.fromkeys(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


class EgressProxy:
    """Serves the connections of one sandbox.

    Args:
        policy: decides.
        log: gets an entry for each request.
        lookup: resolves names; the default asks the host's resolver.
        upstream: how the host reaches the internet; `Upstream.from_environment(os.environ)` for the company's proxy.
        limits: bounds.
        intercept: which tunnels are opened for a credential.
    """

    def __init__(
        self,
        policy: Policy,
        log: Callable[[Entry], None],
        *,
        lookup: Resolve = resolve,
        upstream: Upstream | None = None,
        limits: Limits | None = None,
        intercept: Intercept | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._way = Way(
            policy,
            log,
            lookup,
            upstream or Upstream(),
            self._limits,
            intercept or (lambda host, port: None),
            self.count,
        )
        self._open = 0
        self._bytes = 0

    async def handle(self, dial: Dial, mux: Mux[Any]) -> None:
        """Serves one connection to its end. Run it as a task of its own; cancelling it ends the connection."""
        try:
            stream = mux.accept(dial.channel)
        except MuxClosed:
            return
        if dial.service != "proxy" or self._open >= self._limits.connections:
            stream.reset("too many connections" if dial.service == "proxy" else "no such service")
            return
        self._open += 1
        whole = False
        try:
            async with asyncio.timeout(self._limits.total):
                connection = Connection(self._way, stream, dial.call)
                whole = await connection.serve()
        except (OSError, h11.ProtocolError, TimeoutError):
            pass  # the entry in the log says how far it came
        finally:
            self._open -= 1
            if whole:
                stream.close()
                await _drain(stream)
            else:
                stream.reset("the gateway ended the connection")

    async def judge(self, host: str, port: int) -> Verdict:
        """What the proxy would decide; `sbx policy check` asks the same function of the policy."""
        return await judge(self._way.policy, host, port, self._way.lookup)

    def count(self, size: int) -> None:
        """Adds to the session's bytes. Raises OverLimit."""
        self._bytes += size
        if self._bytes > self._limits.bytes:
            raise OverLimit(f"the session's limit of {self._limits.bytes} bytes is reached")


async def _drain(stream: Any) -> None:
    """Takes what the program still sends, until it ends too, so that the stream is forgotten by both ends."""
    with contextlib.suppress(StreamReset, TimeoutError):
        async with asyncio.timeout(2.0):
            while await stream.read():
                pass
            return
    stream.reset("the connection is over")
