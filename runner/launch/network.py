"""What may leave a run's sandbox: decided from the command line, the kits and the policy files, then opened.

decide   before anything is started: the policy, the credentials, what needs a grant (codes 2 and 6)
masks    the run's secrets, fetched, so that they can be masked in all that is shown and kept
opened   for the length of a session: the proxy, the decision log, the certificates to trust
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.errors import RefusedError, UsageError
from runner.gateway import grants, rules
from runner.gateway.policy import PRESETS, Policy
from runner.gateway.redaction import Redactor, remember
from runner.wire.agent import PROXIED

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from runner.gateway.credentials import Injector
    from runner.gateway.egress import Egress
    from runner.kits.plan import Plan

BRIDGE = "bridge"
CHOICES = (*PRESETS, BRIDGE)
LOG = "network.jsonl"
"""The decision log, in the session's folder."""
SHORTEST_KEY = 12
"""Characters. What stands for a key at a server that wants none (`ollama`, `EMPTY`) is a common word, and no secret."""


@dataclass(frozen=True)
class Asked:
    """The network as the command line asks for it."""

    preset: str = "none"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    resolve: Sequence[str] = ()
    learn: bool = False
    granted: bool = False
    """The grant `network` was given."""


@dataclass(frozen=True)
class Outgoing:
    """What may leave a run's sandbox."""

    asked: Asked
    policy: Policy
    injector: Injector | None = None
    certificates: Sequence[Path] = ()
    """Files given on the command line; none means what the host trusts."""
    warnings: tuple[str, ...] = ()
    learnt: list[dict[str, object]] = field(default_factory=list)
    """The decisions of a `--learn` run."""

    @property
    def bridge(self) -> bool:
        """The container is on the engine's own network, and the gateway decides nothing."""
        return self.asked.preset == BRIDGE

    @property
    def said(self) -> str:
        """For the banner and the record: `none`, `packages`, `allow example.com`, …"""
        if self.bridge:
            return BRIDGE
        name = "open (learning)" if self.asked.learn else self.asked.preset
        own = f"preset {self.policy.preset}"
        shown = list(dict.fromkeys(p.group or p.text for p in self.policy.allow if not p.source.startswith(own)))
        if not shown:
            return name
        hosts = ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")
        return f"allow {hosts}" if name == "none" else f"{name}, allow {hosts}"


def engine_network(preset: str) -> str:
    """The container's own network, for its profile. Raises UsageError for what is no network."""
    if preset not in CHOICES:
        raise UsageError(f"--network {preset}: not a network", hint=", ".join(CHOICES))
    return BRIDGE if preset == BRIDGE else "none"


def wishes(asked: Asked, plan: Plan) -> list[grants.Wish]:
    """What of the network needs a grant: the command line grants its own, the kits' hosts are for the user to grant."""
    found = []
    if asked.preset != "none":
        found.append(grants.Wish("network", asked.preset, "--network", by_user=True))
    if asked.learn:
        found.append(grants.Wish("network", "every public host", "--learn", by_user=True))
    found += [grants.Wish("network", text, "--allow", by_user=True) for text in asked.allow]
    found += [grants.Wish("network", rule.text, rule.source) for rule in plan.network.allow]
    return found


def decide(
    asked: Asked,
    plan: Plan,
    files: Sequence[rules.PolicyFile],
    environ: Mapping[str, str],
    certificates: Sequence[Path] = (),
) -> Outgoing:
    """What may leave, once the grants are settled.

    Raises:
        UsageError: options that do not go together.
        ConfigError: a rule, a policy file or a credential is wrong, or a required credential is not bound.
        RefusedError: a policy file forbids it, or a kit wants a credential where its binding does not let it go.
    """
    if asked.preset == BRIDGE:
        if asked.allow or asked.deny or asked.learn or asked.resolve:
            raise UsageError(
                "--network bridge goes past the gateway, so --allow, --deny, --resolve and --learn mean nothing there",
                hint="--network open is everything public, through the gateway",
            )
        for file in files:
            if file.network_allow is not None or file.network_deny:
                raise RefusedError(
                    f"{file.path} bounds the network, and --network bridge would go past it", place=file.path
                )
    preset = "open" if asked.learn else "none" if asked.preset == BRIDGE else asked.preset
    policy = rules.build(
        preset,
        allow=asked.allow,
        deny=asked.deny,
        resolve=asked.resolve,
        kits=plan.network,
        kits_granted=asked.granted,
        files=files,
        environ=environ,
    )
    injector = None
    warnings: tuple[str, ...] = ()
    if plan.credentials:
        from runner.gateway.credentials import Injector, credentials_path, load
        from runner.gateway.interception import ServerTls

        server = ServerTls(lambda: _trusting(extra_certificates(certificates, environ) if certificates else []))
        injector = Injector(plan.credentials, load(credentials_path(environ)), environ, server)
        warnings = tuple(
            f"{c.source} can use the credential {c.service}, which is not bound (sbx secret set {c.service})"
            for c in injector.unbound
        )
        if asked.preset == BRIDGE and injector.needed:
            warnings += ("credentials are set by the gateway, and --network bridge goes past it: none is sent",)
    return Outgoing(asked, policy, injector, certificates, warnings)


def bound_models(urls: Sequence[str], files: Sequence[rules.PolicyFile]) -> None:
    """Raises RefusedError where a policy file's `models.allow` does not hold one of the agent's URLs."""
    for url in urls:
        if place := grants.model_url_forbidden(url, files):
            raise RefusedError(f"{place} does not allow the model server {url}", place=place)


def masks(outgoing: Outgoing, key: str = "") -> Redactor:
    """Masks the run's secrets, which are fetched now: the credentials', and the model server's key.

    Raises:
        ConfigError: a secret cannot be had.
    """
    more = [key] if len(key) >= SHORTEST_KEY else []
    masking = outgoing.injector.redactor(more) if outgoing.injector else Redactor(more)
    remember(masking)
    return masking


@dataclass
class Opened:
    """A session's way out."""

    egress: Egress
    network: str
    """For `Setup(network=…)`."""
    environment: dict[str, str]
    """For `Setup(environment=…)`, beside the kits' own variables."""
    trust: str = ""
    """PEM certificates that the sandbox is to trust beside its own."""
    truststore: bytes = b""
    """The same, and the public ones, for Java."""
    tell: Callable[[dict[str, object]], None] = lambda entry: None
    """Takes each decision, for the record and the front ends; set when the session is there."""
    key: str = ""
    """The model server's."""
    masks: Redactor = field(default_factory=Redactor)


@contextmanager
def opened(outgoing: Outgoing, log: Path, environ: Mapping[str, str]) -> Iterator[Opened]:
    """The way out, for the length of a session.

    Args:
        log: the decision log's file.
    """
    from runner.gateway.egress import Egress, open_egress

    way: Opened | None = None

    def sink(entry: dict[str, object]) -> None:
        if way:
            way.tell(entry)
        if outgoing.asked.learn:
            outgoing.learnt.append(entry)

    if outgoing.bridge:
        egress = Egress(environment=dict(outgoing.injector.variables) if outgoing.injector else {})
    else:
        egress = open_egress(outgoing.policy, log, environ, injector=outgoing.injector, sink=sink)
    try:
        network = BRIDGE if outgoing.bridge else egress.network
        way = Opened(egress, network, egress.environment)
        if network in (BRIDGE, PROXIED):
            pems = extra_certificates(outgoing.certificates, environ)
            if outgoing.injector and outgoing.injector.needed:
                pems = [*pems, outgoing.injector.authority.pem.decode("ascii")]
            if pems:
                from runner.gateway.trust import truststore

                way.trust = "\n".join(pem.strip() for pem in pems) + "\n"
                way.truststore = truststore(pems)
        yield way
    finally:
        egress.close()


def extra_certificates(files: Sequence[Path], environ: Mapping[str, str]) -> list[str]:
    """PEM certificates that this host trusts beyond the public ones: a company's."""
    from runner.images.settings import certificates_of

    return certificates_of(files, environ)


def _trusting(pems: Sequence[str]) -> ssl.SSLContext:
    """What the host trusts, and `pems`."""
    import ssl

    context = ssl.create_default_context()
    if pems:
        context.load_verify_locations(cadata="\n".join(pems))
    return context


def learned_lines(outgoing: Outgoing) -> list[str]:
    """What a `--learn` run says at its end: the options that would have been enough."""
    if not outgoing.asked.learn:
        return []
    from runner.gateway.decisions import Entry, learned

    found = learned(Entry(**entry) for entry in outgoing.learnt)  # type: ignore[arg-type]
    if not found:
        return ["learned: nothing was asked for, so nothing needs to be allowed"]
    return ["learned: this run needs", *(f"  --allow {rule}" for rule in found)]


def model_key(variable: str, provider: str, urls: Sequence[str], environ: Mapping[str, str]) -> str:
    """The model server's key: from its variable, else from the credential bound for the provider or the variable.

    Raises:
        ConfigError: there is neither, or it cannot be had.
        RefusedError: the binding does not let it go to one of the agent's URLs.
    """
    from urllib.parse import urlsplit

    from runner.gateway.model import read_key

    if not variable or environ.get(variable, "").strip():
        return read_key(variable, environ)
    from runner.gateway.credentials import credentials_path, load
    from runner.gateway.names import normalise

    bindings = load(credentials_path(environ))
    binding = bindings.get(provider) or bindings.get(variable)
    if binding is None:
        return read_key(variable, environ)
    for url in urls:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if not any(domain.matches(normalise(parts.hostname or ""), port) for domain in binding.domains):
            raise RefusedError(
                f"the credential {binding.service} may not go to the model server {url}",
                place=f"credential {binding.service}",
                hint="add its host to the credential's domains: sbx secret set --domain",
            )
    return binding.fetch(environ)


def model_proxy(urls: Sequence[str], environ: Mapping[str, str]) -> str:
    """URL of the company's proxy for the model's requests; empty where they go directly."""
    from urllib.parse import urlsplit

    from runner.gateway.names import BadName, normalise
    from runner.gateway.upstream import Upstream

    upstream = Upstream.from_environment(environ)
    for url in urls:
        parts = urlsplit(url)
        with suppress(ValueError, BadName):
            port = parts.port or (443 if parts.scheme == "https" else 80)
            proxy = upstream.proxy_for(normalise(parts.hostname or ""), port, plain=parts.scheme == "http")
            if proxy:
                return proxy.url
    return ""


def rule_lines(policy: Policy) -> list[str]:
    """The rules in force, groups resolved, one a line, in the order in which they are asked."""
    return [f"{kind:<8} {rule:<40} {source}" for kind, rule, source in rule_rows(policy)]


def rule_rows(policy: Policy) -> list[tuple[str, str, str]]:
    """Kind, rule and source of each rule in force."""
    rows = [("deny", p.rule, p.source) for p in policy.deny]
    for bound in policy.bounds:
        rows += [("bound", p.rule, p.source) for p in bound.allow] or [("bound", "nothing", bound.source)]
    rows += [("allow", p.rule, p.source) for p in policy.allow]
    rows += [("asked", p.rule, f"{p.source}; not granted") for p in policy.asked]
    for name, addresses in policy.known.items():
        rows += [("address", f"{name} is {address}", "--resolve") for address in addresses]
    return rows
