"""What programs in the container read to find the gateway's proxy."""

from __future__ import annotations

from runner.wire.agent import PROXY_PORT

NO_PROXY = "localhost,127.0.0.1,::1"
"""Names and addresses only: some clients read a network (`127.0.0.0/8`) as a name, and one of them fails on it."""


def proxy_environment(port: int = PROXY_PORT) -> dict[str, str]:
    """The variables that lead programs to the proxy, in both spellings: clients differ in which one they read."""
    url = f"http://127.0.0.1:{port}"
    names = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": NO_PROXY}
    return names | {name.lower(): value for name, value in names.items()}
