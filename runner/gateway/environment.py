"""What programs in the container read to find the gateway's proxy and to trust the session's authority."""

from __future__ import annotations

from runner.wire.agent import PROXY_PORT

NO_PROXY = "localhost,127.0.0.1,::1"
"""Names and addresses only: some clients read a network (`127.0.0.0/8`) as a name, and one of them fails on it."""

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
"""Variables that name a whole bundle of trusted authorities: OpenSSL and Python, requests, curl, git, pip."""


def proxy_environment(port: int = PROXY_PORT) -> dict[str, str]:
    """The variables that lead programs to the proxy, in both spellings: clients differ in which one they read."""
    url = f"http://127.0.0.1:{port}"
    names = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": NO_PROXY}
    return names | {name.lower(): value for name, value in names.items()}


def trust_environment(bundle: str, authority: str) -> dict[str, str]:
    """The variables that make common clients trust the session's authority beside the usual ones.

    Args:
        bundle: path in the container of the system's bundle with the authority's certificate appended.
        authority: path in the container of the authority's certificate alone; Node adds it to its own.
    """
    return dict.fromkeys(BUNDLES, bundle) | {"NODE_EXTRA_CA_CERTS": authority}
