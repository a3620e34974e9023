"""What passes from one HTTP connection to the other, and what stays behind; and the answers of the gateway's own."""

from __future__ import annotations

from typing import Any

import h11

from runner.gateway.names import split_port
from runner.gateway.policy import Decision
from runner.gateway.redaction import Redactor

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"host"}
)
"""Headers that are about one connection; `Host` is set anew."""


class Refused(Exception):
    """A request is answered with an error page instead of being passed on."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status, self.reason, self.text = status, reason, text


def authority(target: bytes) -> tuple[str, int]:
    try:
        host, port = split_port(target.decode("ascii"))
        if not host or not port:
            raise ValueError("CONNECT names HOST:PORT")
        return host, port_number(port, 443)
    except ValueError as error:
        raise Refused(400, "Bad request", f"sbx gateway: {error}.\n") from None


def port_number(text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536):
        raise ValueError(f"{text[:20]!r} is not a port")
    return int(text)


def end_to_end(headers: Any, replaced: set[bytes]) -> list[tuple[bytes, bytes]]:
    """Headers that are not about one connection, nor for a proxy, nor replaced."""
    pairs: list[tuple[bytes, bytes]] = list(headers)
    named = {part.strip().lower() for name, value in pairs if name == b"connection" for part in value.split(b",")}
    drop = HOP_BY_HOP | replaced | (named - {b"content-length"})
    if any(name == b"transfer-encoding" for name, _ in pairs):
        drop |= {b"content-length"}  # both at once is how one request is smuggled in another
    return [(name, value) for name, value in pairs if name not in drop and not name.startswith(b"proxy-")]


def answer(response: h11.Response, mask: Redactor) -> h11.Response:
    headers = [(name, mask.data(value)) for name, value in end_to_end(response.headers, set())]
    if any(name == b"transfer-encoding" for name, _ in response.headers):
        headers.append((b"Transfer-Encoding", b"chunked"))
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def page(decision: Decision) -> str:
    return (
        f"sbx gateway: refused by the sandbox's network policy.\n"
        f"rule: {decision.rule}\nfrom: {decision.source}\n{decision.reason}.\n"
        "Trying again, or another way, does not help: tell the user what you need and why.\n"
    )
