"""One spelling for every host name and address, so that two spellings of a host never get two verdicts.

What looks alike and must be the same: `EXAMPLE.com.`, `example.com`; `127.1`, `0x7f.1`, `2130706433`, `127.0.0.1` and
`::ffff:127.0.0.1`; a name in its own script and in its `xn--` form. What looks alike and must not be: an address and a
name. As in the URL standard, a host whose last label is a number is an IPv4 address or it is nothing.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address
Host = str | Address
"""A normalised host: a lower-case ASCII name without a trailing dot, or an address."""

HOST_ALIAS = "host.docker.internal"
"""In a sandbox, this name means the machine that `sbx` runs on."""

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class BadName(ValueError):
    """This is neither a host name nor an address."""


@dataclass(frozen=True)
class HostPort:
    """A host in its one spelling, and a port."""

    host: Host
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if isinstance(self.host, IPv6Address) else str(self.host)
        return f"{host}:{self.port}"


def normalise(host: str) -> Host:
    """The one spelling of `host`: an address in any form becomes an address, a name lower-case ASCII.

    Raises:
        BadName: it is neither; also for a zone (`fe80::1%eth0`), which names a network interface of the host's.
    """
    text = host
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
        if ":" not in text:
            raise BadName(f"{host!r}: brackets are for IPv6 addresses")
    if ":" in text:
        return _ipv6(text, host)
    text = _ascii(text, host).removesuffix(".")
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels, host)
    if len(text) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadName(f"{host[:80]!r} is not a host name")
    return text


def split_port(text: str) -> tuple[str, str]:
    """`host:port`, `[v6]:port`, `host` or a bare IPv6 address cut in two; the port is empty when there is none.

    Raises:
        BadName: brackets that do not close, or text after them that is no port.
    """
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadName(f"{text[:80]!r} is not HOST or HOST:PORT")
        return host + "]", rest[1:]
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def is_loopback_name(host: Host) -> bool:
    """Whether the host means the machine itself: `localhost`, a name under it, or a loopback address."""
    if isinstance(host, str):
        return host == "localhost" or host.endswith(".localhost")
    return host.is_loopback


def embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address carries (mapped, compatible, NAT64, 6to4), else the address itself."""
    if isinstance(address, IPv6Address):
        if inner := address.ipv4_mapped or address.sixtofour:
            return inner
        for network in _CARRIERS:
            if address in network and int(address) & 0xFFFFFFFF > 1:
                return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


_CARRIERS = (ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b::/96"))
_METADATA = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fd00:ec2::/32"),
    ipaddress.ip_network("100.100.100.200/32"),
    ipaddress.ip_network("168.63.129.16/32"),
)
_SHARED = (
    ipaddress.ip_network("100.64.0.0/10"),
    ipaddress.ip_network("192.88.99.0/24"),
    ipaddress.ip_network("2001::/32"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("fec0::/10"),
)


def private_kind(address: Address) -> str:
    """Why an address is not simply somewhere on the internet, in a few words; empty when it is."""
    address = embedded(address)
    checks = (
        (any(address in n for n in _METADATA if n.version == address.version), "a link-local or metadata address"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.is_unspecified, "the unspecified address"),
        (any(address in n for n in _SHARED if n.version == address.version), "a shared or tunnel address"),
        (address.is_private, "a private address"),
        (address.is_reserved or not address.is_global, "a reserved address"),
    )
    return next((words for hit, words in checks if hit), "")


def _ascii(text: str, host: str) -> str:
    if text.isascii():
        return text.lower()
    import idna

    try:
        mapped = unicodedata.normalize("NFKC", text)
        return mapped.lower() if mapped.isascii() else idna.encode(mapped, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise BadName(f"{host[:80]!r} is not a host name") from None


def _ipv6(text: str, host: str) -> Address:
    try:
        if "%" in text:
            raise ValueError
        address = IPv6Address(text)
    except ValueError:
        raise BadName(f"{host[:80]!r} is not an IPv6 address") from None
    return address.ipv4_mapped or address


def _ipv4(labels: list[str], host: str) -> IPv4Address:
    """The URL standard's IPv4 parser: 1 to 4 numbers, decimal, octal (0…) or hexadecimal (0x…)."""
    try:
        if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
            raise ValueError
        numbers = [_number(label) for label in labels]
        if any(n > 255 for n in numbers[:-1]) or numbers[-1] >= 256 ** (5 - len(numbers)):
            raise ValueError
    except ValueError:
        raise BadName(f"{host[:80]!r} ends in a number and is not an IPv4 address") from None
    value = numbers[-1]
    for place, number in enumerate(numbers[:-1]):
        value += number << (8 * (3 - place))
    return IPv4Address(value)


def _number(label: str) -> int:
    if len(label) > 40:
        raise ValueError
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8) if len(label) > 1 and label.startswith("0") else int(label)
