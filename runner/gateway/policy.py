"""The matcher: what may leave a sandbox. Enforcement, `sbx policy check` and `sbx policy ls` ask this one object.

A request is judged twice. First by its *name* and port, before anything is looked up: resolving a name that is not
allowed would itself carry data out. Then each *address* that the name resolves to is judged, and the connection goes
to exactly those addresses: a second look-up could give others.

    pattern          matches
    example.com      that name, or that address
    *.example.com    exactly one more label, not example.com itself
    **.example.com   any number of further labels, not example.com itself
    10.0.0.0/8       addresses: one that is asked for as such, or one that an allowed name resolves to
    @python-packages where the host's own package client gets its packages
    …:80  …:80-90  …:*   the port; without one, 443

Deny wins, whoever said it. A policy file's `allow` is a bound: it opens nothing by itself, and what it does not hold
stays closed whatever the command line and the kits say. Private, loopback, link-local, metadata and multicast
addresses stay closed unless a rule names the address or a CIDR around it: neither an allowed name that resolves to one
nor `open` is enough. One exception: a group's hosts are what this host's own package clients are set to, which for a
company is a mirror in its own network, so they may have private addresses (not loopback, link-local or metadata ones).
The host itself is `host.docker.internal:PORT`, in full; no wildcard means it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from runner.errors import ConfigError
from runner.gateway.names import (
    HOST_ALIAS,
    Address,
    BadName,
    Host,
    HostPort,
    embedded,
    normalise,
    private_kind,
    split_port,
)

DEFAULT_PORT = 443
PRESETS = ("none", "packages", "open")

_OF_A_MIRROR = ("a private address", "a shared or tunnel address", "a reserved address")
"""What a package mirror's address may be (`names.private_kind`)."""

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""Looks a name up. Raises OSError when it does not resolve."""


@dataclass(frozen=True)
class Pattern:
    """One entry of a network list."""

    text: str
    """As written."""
    source: str
    """Who wrote it: `kit NAME`, `--allow`, a policy file, `preset packages`."""
    kind: str
    """`name`, `one` (`*.x`), `deep` (`**.x`), `address`, `cidr` or `any` (the preset `open`)."""
    host: str = ""
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
    first: int = DEFAULT_PORT
    last: int = DEFAULT_PORT
    group: str = ""
    """The `@group` that it was resolved from."""

    @property
    def rule(self) -> str:
        """How messages call it."""
        return f"{self.group} ({self.text})" if self.group else self.text

    def matches(self, host: Host, port: int) -> bool:
        """Whether it is about this host, in its one spelling, and this port."""
        if not self.first <= port <= self.last:
            return False
        if self.kind == "any":
            return True
        if isinstance(host, str):
            if self.kind == "name":
                return host == self.host
            head = host.removesuffix("." + self.host)
            return head != host and (self.kind == "deep" or (self.kind == "one" and "." not in head))
        return any(
            self.network is not None and address.version == self.network.version and address in self.network
            for address in {host, embedded(host)}
        )

    @property
    def names_addresses(self) -> bool:
        """Whether it can open an address that is not simply on the internet."""
        return self.kind in ("address", "cidr")


def parse(text: str, source: str, *, group: str = "") -> Pattern:
    """One entry of a network list as a pattern. `@group` entries are resolved before (`rules.expand`).

    Raises:
        ConfigError: it is not one; `place` is `source`.
    """

    def wrong(why: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{text!r} is not a network rule: {why}", place=source, hint=hint or None)

    written = text.strip()
    if not written or any(c.isspace() for c in written):
        raise wrong("it is empty or holds a space")
    if "://" in written:
        raise wrong("it is a URL", "write HOST or HOST:PORT")
    try:
        if "/" in written:
            return _cidr(written, source, group)
        host, port = split_port(written)
        if written.endswith(":"):
            raise ValueError("no port after the colon")
        first, last = _ports(port)
        if host in ("*", "**"):
            raise wrong("it would match every host", "use --network open")
        for prefix, kind in (("**.", "deep"), ("*.", "one")):
            if host.startswith(prefix):
                suffix = normalise(host.removeprefix(prefix))
                if not isinstance(suffix, str):
                    raise ValueError("a wildcard before an address")
                return Pattern(written, source, kind, suffix, None, first, last, group)
        if "*" in host:
            raise ValueError("a * stands for whole labels at the front: *.x or **.x")
        place = normalise(host)
        if isinstance(place, str):
            return Pattern(written, source, "name", place, None, first, last, group)
        return Pattern(written, source, "address", str(place), ipaddress.ip_network(place), first, last, group)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise wrong(str(error)) from None


@dataclass(frozen=True)
class Bound:
    """What one policy file's `network.allow` holds."""

    source: str
    allow: tuple[Pattern, ...]


@dataclass(frozen=True)
class Decision:
    """Allowed or denied, by which rule, and where that rule comes from."""

    allowed: bool
    rule: str
    source: str
    reason: str
    """A sentence that a person, or a model, can act on."""


@dataclass(frozen=True)
class Verdict:
    """A decision about one request, with the addresses it may connect to."""

    decision: Decision
    host: Host | None
    port: int
    addresses: tuple[Address, ...] = ()
    unresolved: str = ""
    """Why an allowed name has no address."""


@dataclass(frozen=True)
class Policy:
    """Everything that decides what may leave; made by `rules.build`."""

    preset: str = "none"
    allow: tuple[Pattern, ...] = ()
    deny: tuple[Pattern, ...] = ()
    bounds: tuple[Bound, ...] = ()
    asked: tuple[Pattern, ...] = field(default=())
    """What kits ask for and was not granted: opens nothing, but makes a refusal say so."""
    known: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    """Addresses that the user gave names (`--resolve`). They are not looked up, and may be private; no policy file's
    bound is widened by that."""

    @cached_property
    def closed(self) -> bool:
        """Nothing can be allowed, so no proxy needs to listen."""
        return not self.allow or any(not bound.allow for bound in self.bounds)

    def decide(self, host: str, port: int) -> Decision:
        """The decision by name and port, before anything is looked up."""
        try:
            place = normalise(host)
        except BadName as error:
            return Decision(False, "host names", "built in", str(error))
        return self._decide(place, port)

    def decide_address(self, host: Host, port: int, address: Address) -> Decision:
        """The decision about one address of an allowed name."""
        said = f"{HostPort(host, port)} resolves to {address}"
        for pattern in self.deny:
            if pattern.names_addresses and pattern.matches(address, port):
                return Decision(False, pattern.rule, pattern.source, f"{said}, which is denied")
        kind = private_kind(address)
        by = _first(self.allow, host, port)
        if kind in _OF_A_MIRROR and by and by.group:
            kind = ""
        if kind and address in self.known.get(str(host), ()) and self._bounds_name(address, port) is None:
            kind = ""
        if kind and not (named := self._names(address, port)).allowed:
            return Decision(False, "private addresses", named.source, f"{said}, {kind}; {named.reason}")
        return Decision(True, "", "", "")

    def _decide(self, host: Host, port: int) -> Decision:
        said = str(HostPort(host, port))
        if not 0 < port < 65536:
            return Decision(False, "ports", "built in", f"{port} is not a port")
        for pattern in self.deny:
            if pattern.matches(host, port):
                return Decision(False, pattern.rule, pattern.source, f"{said} is denied by {pattern.rule}")
        for bound in self.bounds:
            if not _first(bound.allow, host, port):
                reason = f"{said} is outside what {bound.source} allows; no option of sbx can widen that"
                return Decision(False, "network.allow", bound.source, reason)
        if not isinstance(host, str) and (kind := private_kind(host)):
            named = self._names(host, port)
            if not named.allowed:
                return Decision(False, "private addresses", named.source, f"{said} is {kind}; {named.reason}")
            return named
        if pattern_ := _first(self.allow, host, port):
            return Decision(True, pattern_.rule, pattern_.source, f"{said} is allowed by {pattern_.rule}")
        if asked := _first(self.asked, host, port):
            reason = f"{asked.source} asks for {said}; run with --grant network, or with --allow {said}"
            return Decision(False, "grant network", asked.source, reason)
        reason = f"no rule allows {said}; the user can allow it with --allow {said}"
        return Decision(False, "default", f"preset {self.preset}", reason)

    def _names(self, address: Address, port: int) -> Decision:
        """Whether rules name this address, as a non-public one must be: an allow rule and every bound."""
        if outside := self._bounds_name(address, port):
            return outside
        for pattern in self.allow:
            if pattern.names_addresses and pattern.matches(address, port):
                return Decision(True, pattern.rule, pattern.source, f"{address} is allowed by {pattern.rule}")
        hint = f"such an address must be named itself: --allow {HostPort(address, port)}"
        if address.is_loopback:
            hint = f"a service of the host's is --allow {HOST_ALIAS}:{port}"
        return Decision(False, "private addresses", "built in", hint)

    def _bounds_name(self, address: Address, port: int) -> Decision | None:
        """The refusal of a policy file whose bound does not name the address; None when each does."""
        for bound in self.bounds:
            if not any(p.names_addresses and p.matches(address, port) for p in bound.allow):
                return Decision(False, "network.allow", bound.source, f"{bound.source} does not name that address")
        return None


async def judge(policy: Policy, host: str, port: int, resolve: Resolve) -> Verdict:
    """The whole judgement of one request: name, port, then every address. The proxy and `policy check` both call it.

    Every address must pass: a public address beside a private one is how rebinding looks.
    """
    decision = policy.decide(host, port)
    try:
        place = normalise(host)
    except BadName:
        return Verdict(decision, None, port)
    if not decision.allowed:
        return Verdict(decision, place, port)
    if not isinstance(place, str):
        return Verdict(decision, place, port, (place,))
    if place == HOST_ALIAS:
        loopback = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
        return Verdict(decision, place, port, loopback)
    try:
        addresses = policy.known.get(place) or tuple(await resolve(place))
    except OSError as error:
        return Verdict(decision, place, port, (), f"{place} does not resolve: {error.strerror or error}")
    if not addresses:
        return Verdict(decision, place, port, (), f"{place} has no address")
    for address in addresses:
        one = policy.decide_address(place, port, address)
        if not one.allowed:
            return Verdict(one, place, port)
    return Verdict(decision, place, port, addresses)


def _first(patterns: Iterable[Pattern], host: Host, port: int) -> Pattern | None:
    """The first pattern that matches; the host itself is only ever meant by its full name."""
    for pattern in patterns:
        if host == HOST_ALIAS and pattern.kind != "name":
            continue
        if pattern.matches(host, port):
            return pattern
    return None


def _ports(text: str) -> tuple[int, int]:
    if not text:
        return DEFAULT_PORT, DEFAULT_PORT
    if text == "*":
        return 1, 65535
    first, dash, last = text.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= 5 for part in ([first, last] if dash else [first])):
        raise ValueError("the port is a number, a range A-B, or *")
    low, high = int(first), int(last or first)
    if not 0 < low <= high < 65536:
        raise ValueError("ports are 1 to 65535, the smaller first")
    return low, high


def _cidr(text: str, source: str, group: str) -> Pattern:
    base, _, rest = text.partition("/")
    bits, colon, port = rest.partition(":")
    address = normalise(base)
    if isinstance(address, str) or not (bits.isascii() and bits.isdigit()):
        raise ValueError("a / belongs to a network: ADDRESS/BITS")
    if colon and not port:
        raise ValueError("no port after the colon")
    first, last = _ports(port)
    if ":" in base and address.version == 4:
        raise ValueError("write the network in IPv4 form")
    network = ipaddress.ip_network(f"{address}/{bits}")  # host bits set: ValueError, as the network is then unclear
    return Pattern(text, source, "cidr", str(network), network, first, last, group)
