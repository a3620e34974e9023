"""The closed list of what a guest may ask of the agent's model servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from runner.errors import ConfigError
from runner.gateway.names import HOST_ALIAS, Host, HostPort, is_loopback_name, normalise, split_port

PLAIN_URL = re.compile(r'[!"$->@-\[\]-~]+')
"""Printable ASCII without space, backslash, query and fragment."""


@dataclass(frozen=True)
class Target:
    """Where an allowed request really goes."""

    url: str
    host_header: str
    said: str
    """The URL as the user wrote it, for messages."""
    local: bool
    """It is on this host."""
    moved: bool
    """Its name means this host, and the connection goes to 127.0.0.1."""


def allowed(url: str) -> dict[tuple[str, str, str], Target]:
    """What a guest may ask of one of the agent's URLs: (method, origin, path) to where it goes."""
    base = url.rstrip("/")
    try:
        if not PLAIN_URL.fullmatch(base):
            raise ValueError("not a plain URL")
        origin, path = cut(base)
        parts = urlsplit(base)
        host, _ = _place(parts)
    except ValueError as error:
        raise ConfigError(
            f"the model URL {url!r} cannot be used: {error}", hint="write it as http://HOST:PORT/v1"
        ) from None
    moved = host == HOST_ALIAS or (isinstance(host, str) and host.endswith(".localhost"))
    netloc = parts.netloc
    if moved:
        netloc = f"127.0.0.1:{parts.port}" if parts.port else "127.0.0.1"
    header = netloc if host == HOST_ALIAS else parts.netloc
    local = moved or is_loopback_name(host)
    root = path.removesuffix("/v1")
    requests = (
        ("GET", f"{path}/models"),
        ("POST", f"{path}/chat/completions"),
        ("GET", f"{root}/props"),
        ("POST", f"{root}/api/show"),
        ("GET", f"{root}/api/v0/models"),
    )
    return {
        (method, origin, wanted): Target(f"{parts.scheme}://{netloc}{wanted}", header, f"{url}", local, moved)
        for method, wanted in requests
    }


def cut(url: str) -> tuple[str, str]:
    """A URL's origin in its one spelling, and its path as it stands. Raises ValueError."""
    parts = urlsplit(url)
    host, port = _place(parts)
    return f"{parts.scheme} {HostPort(host, port)}", parts.path


def _place(parts: SplitResult) -> tuple[Host, int]:
    if parts.scheme not in ("http", "https"):
        raise ValueError("only http and https are spoken")
    if "@" in parts.netloc:
        raise ValueError("a user name in the URL")
    host, port = split_port(parts.netloc)
    if not host or not re.fullmatch(r"[0-9]{0,5}", port) or parts.netloc.endswith(":"):
        raise ValueError("no host, or a bad port")
    number = int(port) if port else (443 if parts.scheme == "https" else 80)
    if not 0 < number < 65536:
        raise ValueError("a bad port")
    return normalise(host), number
