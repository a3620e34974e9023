"""What a single value of a spec may be. Every rule takes the text and answers what is wrong with it, or nothing.

They know no file and no place: `runner.kits.section` asks them and adds both. The patterns are the public kit format's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Rule = Callable[[str], str]
"""From a value to what is wrong with it; an empty text when it is fine."""

KIT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
DOTTED = re.compile(r"[a-z][a-zA-Z0-9]*(\.[a-z][a-zA-Z0-9]*)*")
GROUP = re.compile(r"@[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtTpP])?(?:[iI]?[bB])?")
MODE = re.compile(r"0?[0-7]{1,4}")

RESERVED_PREFIXES = ("SBX_", "DOCKER_", "DASH_", "LD_")
RESERVED_NAMES = frozenset(("HOME", "USER", "SHELL", "PATH"))

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_MAX_HOST = 253
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}


def kit_name(value: str) -> str:
    if KIT_NAME.fullmatch(value):
        return ""
    return f"{value!r} is not a kit name: lower-case letters, digits and inner hyphens, at most 64"


def variable_name(value: str) -> str:
    return (
        "" if VARIABLE.fullmatch(value) else f"{value!r} is not a variable name: letters, digits and _, no digit first"
    )


def own_variable(value: str) -> str:
    """A name for a variable that a kit sets; the sandbox's own are not a kit's to set."""
    if fault := variable_name(value):
        return fault
    if value in RESERVED_NAMES or value.startswith(RESERVED_PREFIXES):
        return f"the variable {value} is the sandbox's own; a kit cannot set it"
    return ""


def argument_name(value: str) -> str:
    return "" if ARGUMENT.fullmatch(value) else f"{value!r} is not an argument name: letters, digits, _ and -"


def dotted_path(value: str) -> str:
    return "" if DOTTED.fullmatch(value) else f"{value!r} is not a dotted path such as sandbox.image"


def not_empty(value: str) -> str:
    return "" if value.strip() else "must not be empty"


def one_of(*choices: str) -> Rule:
    def rule(value: str) -> str:
        if value in choices:
            return ""
        return f"{value!r} is none of {', '.join(repr(c) for c in choices)}"

    return rule


def absolute_path(value: str) -> str:
    """A path in the container, absolute and without `..`."""
    if not value.startswith("/"):
        return f"the path {value!r} must be absolute"
    if "\0" in value or ".." in value.split("/"):
        return f"the path {value!r} must not hold '..'"
    return ""


def inner_path(value: str) -> str:
    """A path below the kit's folder."""
    if value.startswith("/") or ".." in value.split("/"):
        return f"the path {value!r} leads out of the kit's folder"
    return ""


def file_name(value: str) -> str:
    if not value or "/" in value or value in (".", "..") or not value.isprintable():
        return f"{value!r} is not a file name"
    return ""


def mode(value: str) -> str:
    return "" if MODE.fullmatch(value) else f"the mode {value!r} is not octal, such as '0644'"


def size(value: str) -> str:
    return "" if SIZE.fullmatch(value) else f"{value!r} is not a size such as 512m or 8g"


def parse_size(value: str) -> int:
    """Bytes of a size such as `512m`, `8g`, `2gib`; units are powers of 1024.

    Raises:
        ValueError: it is none.
    """
    match = SIZE.fullmatch(value)
    if not match:
        raise ValueError(value)
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def file_content(value: str) -> str:
    """Content of `setup.files`: of all `${…}`, only `${WORKDIR}` is filled in, so no other may stand there."""
    start = value.find("${")
    while start >= 0:
        end = value.find("}", start)
        if end < 0:
            break  # never closed, so it is plain text; looking on from each "${" would take for ever
        if end > start + 2 and value[start : end + 1] != "${WORKDIR}":
            return f"the content uses {value[start : end + 1]}; only ${{WORKDIR}} is filled in"
        start = value.find("${", start + 2 if end == start + 2 else end)
    return ""


def format_text(value: str) -> str:
    count = value.count("%s")
    return "" if count == 1 else f"the format {value!r} must hold %s exactly once, not {count} times"


def image(value: str) -> str:
    """An image reference; only what no engine could read is refused here."""
    if not value or any(c.isspace() or not c.isprintable() for c in value) or value.startswith("-"):
        return f"{value!r} is not an image reference"
    return ""


def opens_everything(value: str) -> bool:
    """`*` and `**` alone, with any port: not of the grammar, and seen in the wild."""
    return value.partition(":")[0] in ("*", "**")


def network(value: str) -> str:
    """An entry of a network list: a host, wildcard, CIDR or group, with a port, a range of ports or `*`."""
    if value.startswith("@"):
        return "" if GROUP.fullmatch(value) else f"{value!r} is not a group such as @python-packages"
    if "://" in value:
        return f"{value!r} is a URL; give the host alone, or host:port"
    if "/" in value:
        return _cidr(value)
    host, ports, fault = split_port(value)
    if fault:
        return fault
    return _port_fault(value, ports) or _host_fault(value, host)


def split_port(value: str) -> tuple[str, str, str]:
    """Host, port part (empty without one) and what is wrong."""
    if value.startswith("["):
        host, bracket, rest = value[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", "", f"{value!r} is not a host: the bracket is not closed"
        return f"[{host}]", rest[1:], f"{value!r} lacks its port" if rest == ":" else ""
    if value.count(":") > 1:
        return f"[{value}]", "", ""
    host, colon, port = value.partition(":")
    return host, port, f"{value!r} lacks its port" if colon and not port else ""


class Hosts:
    """The hosts that a list of network patterns names, ports aside."""

    def __init__(self, patterns: Iterable[str]):
        self._exact: set[str] = set()
        self._one: set[str] = set()
        self._many: set[str] = set()
        for pattern in patterns:
            host = split_port(pattern)[0].lower().rstrip(".")
            self._exact.add(host)
            if host.startswith("**."):
                self._many.add(host.removeprefix("**."))
            elif host.startswith("*."):
                self._one.add(host.removeprefix("*."))

    def name(self, domain: str) -> bool:
        """Whether one of the patterns names `domain`, itself perhaps a pattern."""
        wanted = split_port(domain)[0].lower().rstrip(".")
        if wanted in self._exact:
            return True
        first, _, rest = wanted.partition(".")
        if rest in self._one and not first.startswith("*"):
            return True
        while rest:
            if rest in self._many:
                return True
            rest = rest.partition(".")[2]
        return False


def _host_fault(value: str, host: str) -> str:
    if host.startswith("["):
        import ipaddress

        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return f"{value!r} holds no IPv6 address"
        return ""
    name = host
    for wildcard in ("**.", "*."):
        if name.startswith(wildcard):
            name = name.removeprefix(wildcard)
            break
    if "*" in name or (name != host and name.rpartition(".")[2].isdecimal()):
        return f"{value!r}: a wildcard stands only at the start of a name, as '*.' or '**.'"
    name = name.removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            return f"{value!r} is not a host"
    if not name or len(name) > _MAX_HOST or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return f"{value!r} is not a host"
    return ""


def _port_fault(value: str, ports: str) -> str:
    if ports in ("", "*"):
        return ""
    first, dash, last = ports.partition("-")
    numbers = [first, last] if dash else [first]
    if not all(n.isascii() and n.isdecimal() and 1 <= int(n[:6]) <= 65535 for n in numbers):
        return f"{value!r}: a port is a number from 1 to 65535, a range such as 80-90, or *"
    if dash and int(first) > int(last):
        return f"{value!r}: the range of ports runs backwards"
    return ""


def _cidr(value: str) -> str:
    import ipaddress

    address, ports = value, ""
    if value.count(":") == 1:
        address, _, ports = value.partition(":")
    try:
        ipaddress.ip_network(address)
    except ValueError:
        return f"{value!r} is neither a host nor a network such as 10.0.0.0/8"
    return _port_fault(value, ports)
