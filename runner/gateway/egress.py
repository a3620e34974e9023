"""The tools' way out of one session, put together: policy, proxy, decision log, credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.gateway.environment import proxy_environment
from runner.wire.agent import PROXIED

if TYPE_CHECKING:
    from runner.gateway.credentials import Injector
    from runner.gateway.decisions import DecisionLog, Sink
    from runner.gateway.policy import Policy
    from runner.gateway.proxy import EgressProxy


@dataclass(frozen=True)
class Egress:
    """What a session needs of it. Close it when the session ends."""

    proxy: EgressProxy | None = None
    """For `Session(proxy=…)`; None when the policy lets nothing through."""
    network: str = "none"
    """For `Setup(network=…)`."""
    environment: dict[str, str] = field(default_factory=dict)
    """For `Setup(environment=…)`, beside the kit's own variables."""
    log: DecisionLog | None = None

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
    sink: Sink | Callable[[dict[str, object]], None] | None = None,
) -> Egress:
    """The way out under a policy.

    Args:
        log: the decision log's file, in the session's folder.
        environ: the host's environment: a company's proxy.
        injector: the session's credentials.
        sink: takes each decision too, for the record.

    Raises:
        ConfigError: the environment names a proxy that is none.
        OSError: the log cannot be written.
    """
    variables = dict(injector.variables) if injector else {}
    if policy.closed:
        return Egress(environment=variables)
    from runner.gateway.decisions import DecisionLog
    from runner.gateway.proxy import EgressProxy
    from runner.gateway.upstream import Upstream

    upstream = Upstream.from_environment(environ)
    decisions = DecisionLog(log, *([sink] if sink else []))
    intercept = injector.intercept if injector and injector.needed else None
    proxy = EgressProxy(policy, decisions, upstream=upstream, intercept=intercept)
    return Egress(proxy, PROXIED, proxy_environment() | variables, decisions)
