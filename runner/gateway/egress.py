"""The tools' way out of one session, put together: policy, proxy, decision log, credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.gateway.environment import proxy_environment
from runner.wire.agent import CLOSED, PROXIED

if TYPE_CHECKING:
    from runner.gateway.credentials import Injector
    from runner.gateway.decisions import DecisionLog, Entry, Sink
    from runner.gateway.policy import Policy
    from runner.gateway.proxy import EgressProxy
    from runner.gateway.upstream import Upstream
    from runner.wire.messages import Dial
    from runner.wire.mux import Mux


@dataclass(frozen=True)
class Egress:
    """What a session needs of it. Close it when the session ends."""

    proxy: Proxy | None = None
    """For `Session(proxy=…)`; None on the engine's own network."""
    network: str = "none"
    """For `Setup(network=…)`."""
    environment: dict[str, str] = field(default_factory=dict)
    """For `Setup(environment=…)`, beside the kit's own variables."""
    log: Decisions | None = None

    def close(self) -> None:
        """Closes the log."""
        if self.log:
            self.log.close()


def open_egress(
    policy: Policy,
    log: Path,
    environ: Mapping[str, str],
    *,
    injector: Injector | None = None,
    sink: Sink | None = None,
) -> Egress:
    """The way out under a policy.

    Args:
        log: the decision log's file, in the session's folder.
        environ: the host's environment: a company's proxy.
        injector: the session's credentials.
        sink: takes each decision too, for the record.

    Raises:
        ConfigError: the environment names a proxy that is none.
    """
    variables = dict(injector.variables) if injector else {}
    decisions = Decisions(log, sink)
    proxy = Proxy(policy, decisions, environ, injector)
    network = CLOSED if policy.closed else PROXIED
    return Egress(proxy, network, proxy_environment() | variables, decisions)


class Proxy:
    """An `EgressProxy` that is made when a program first connects: most runs ask for nothing."""

    def __init__(
        self, policy: Policy, log: Callable[[Entry], None], environ: Mapping[str, str], injector: Injector | None
    ) -> None:
        self.policy = policy
        self._log, self._injector = log, injector
        self._proxy: EgressProxy | None = None
        # A proxy that is none is told now. Where nothing may leave, there is nothing to tell.
        self._upstream: Upstream | None = None
        if not policy.closed and any(name.lower().endswith("_proxy") for name in environ):
            from runner.gateway.upstream import Upstream

            self._upstream = Upstream.from_environment(environ)

    async def handle(self, dial: Dial, mux: Mux[Any]) -> None:
        """Serves one connection to its end."""
        if self._proxy is None:
            from runner.gateway.proxy import EgressProxy

            intercept = self._injector.intercept if self._injector and self._injector.needed else None
            self._proxy = EgressProxy(self.policy, self._log, upstream=self._upstream, intercept=intercept)
        await self._proxy.handle(dial, mux)


class Decisions:
    """The decision log, whose file is made with its first entry."""

    def __init__(self, path: Path, sink: Sink | None) -> None:
        self._path, self._sink = path, sink
        self._log: DecisionLog | None = None

    def __call__(self, entry: Entry) -> None:
        if self._log is None:
            from runner.gateway.decisions import DecisionLog

            self._log = DecisionLog(self._path, *([self._sink] if self._sink else []))
        self._log(entry)

    def close(self) -> None:
        """Closes the file."""
        if self._log:
            self._log.close()
