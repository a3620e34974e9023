"""The way from the host to the internet: directly, or through a company's proxy that the host's environment names.

Through such a proxy the gateway checks names and ports; which address a name means is then that proxy's decision, and
the log says so (`via`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from runner.errors import ConfigError
from runner.gateway.names import HOST_ALIAS, Address, Host, HostPort, is_loopback_name, normalise

READ_LIMIT = 256 * 1024
"""Bytes buffered of a connection to a server."""
MAX_PROXY_HEAD = 16 * 1024
CLOSE_TIMEOUT = 1.0
"""Seconds for the last bytes to leave before a connection is cut."""


class ConnectFailed(OSError):
    """No connection; the text says to what and why."""


@dataclass(frozen=True)
class CompanyProxy:
    """An HTTP proxy of the host's."""

    host: str
    port: int
    tls: bool = False
    authorization: str = ""
    """Value of `Proxy-Authorization`; never logged."""
    url: str = ""
    """As the environment has it; may hold a password."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Link:
    """A connection to a server, or to the proxy that carries plain HTTP on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str = ""
    via: CompanyProxy | None = None
    absolute: bool = False
    """Requests on it must name the whole URL: it ends at a proxy."""

    async def close(self) -> None:
        """Closes it, whatever state it is in."""
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self.writer.wait_closed()
            except TimeoutError:
                self.writer.transport.abort()


@dataclass(frozen=True)
class Upstream:
    """How the host reaches the internet."""

    http: CompanyProxy | None = None
    https: CompanyProxy | None = None
    exempt: tuple[str, ...] = ()
    """Entries of `NO_PROXY`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Upstream:
        """Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, lower case first, as curl does.

        Raises:
            ConfigError: a variable holds no URL of an HTTP proxy.
        """

        def get(*names: str) -> tuple[str, str]:
            return next(((n, environ[n].strip()) for n in names if environ.get(n, "").strip()), ("", ""))

        http = _proxy(*get("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"))
        https = _proxy(*get("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"))
        _, exempt = get("no_proxy", "NO_PROXY")
        return cls(http, https, tuple(part for part in exempt.replace(",", " ").split() if part))

    def proxy_for(self, host: Host, port: int, *, plain: bool) -> CompanyProxy | None:
        """The proxy for a request, or None for a direct connection. The host itself is always direct."""
        if host == HOST_ALIAS or is_loopback_name(host):
            return None
        if any(_exempts(entry, host, port) for entry in self.exempt):
            return None
        return self.http if plain else self.https

    async def connect(self, host: Host, port: int, addresses: Sequence[Address], *, plain: bool, within: float) -> Link:
        """A connection for a request that was allowed.

        Args:
            addresses: the checked addresses; tried in order.
            plain: for plain HTTP requests; else a tunnel.
            within: seconds, for all of it.

        Raises:
            ConnectFailed: nothing of it worked.
        """
        proxy = self.proxy_for(host, port, plain=plain)
        try:
            async with asyncio.timeout(within):
                if proxy is None:
                    return await _direct(host, port, addresses)
                return await _through(proxy, host, port, plain=plain)
        except TimeoutError:
            where = f"the proxy {proxy}" if proxy else str(HostPort(host, port))
            raise ConnectFailed(f"{where} did not answer within {within:.0f} s") from None


async def _direct(host: Host, port: int, addresses: Sequence[Address]) -> Link:
    why = "no address"
    for address in addresses:
        try:
            reader, writer = await asyncio.open_connection(str(address), port, limit=READ_LIMIT)
        except OSError as error:
            why = f"{address}: {error.strerror or error}"
        else:
            return Link(reader, writer, str(address))
    raise ConnectFailed(f"no connection to {HostPort(host, port)}: {why}")


async def _through(proxy: CompanyProxy, host: Host, port: int, *, plain: bool) -> Link:
    context = ssl.create_default_context() if proxy.tls else None
    try:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port, ssl=context, limit=READ_LIMIT)
    except OSError as error:
        raise ConnectFailed(f"the proxy {proxy} cannot be reached: {error.strerror or error}") from None
    link = Link(reader, writer, via=proxy, absolute=plain)
    if plain:
        return link
    done = False
    try:
        target = HostPort(host, port)
        extra = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{extra}\r\n".encode("ascii"))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].decode("latin-1")
        parts = status.split(" ", 2)
        if len(head) > MAX_PROXY_HEAD or len(parts) < 2 or not parts[0].startswith("HTTP/1."):
            raise ConnectFailed(f"the proxy {proxy} does not speak HTTP")
        if not parts[1].startswith("2"):
            raise ConnectFailed(f"the proxy {proxy} refuses {target}: {' '.join(parts[1:])[:200]}")
        done = True
        return link
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise ConnectFailed(f"the proxy {proxy} closed the connection") from None
    finally:
        if not done:
            await link.close()


def _proxy(variable: str, url: str) -> CompanyProxy | None:
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
    except ValueError:
        # the value is not shown: it may hold a password
        raise ConfigError(f"{variable} is not the URL of an HTTP proxy", place=f"environment: {variable}") from None
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    whole = url if "://" in url else f"http://{url}"
    return CompanyProxy(parts.hostname, port, parts.scheme == "https", authorization, whole)


def _exempts(entry: str, host: Host, port: int) -> bool:
    """Whether an entry of NO_PROXY holds for a host: a name and everything below it, an address, a network, `*`."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
        return not isinstance(host, str) and host.version == network.version and host in network
    name, _, wanted = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    if wanted and wanted != str(port):
        return False
    try:
        place = normalise(name.removeprefix("*").removeprefix("."))
    except ValueError:
        return False
    if isinstance(place, str) and isinstance(host, str):
        return host == place or host.endswith("." + place)
    return place == host
