"""Where the engine is: `DOCKER_HOST`, else the active Docker context, else the default socket.

The order is that of Docker's own command. Its SDK for Python knows only the first and the last, so that a user whose
context points elsewhere (Docker Desktop, Colima, a rootless engine, a remote one) would be told that no engine runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError, EngineUnreachable

if TYPE_CHECKING:
    import ssl

DEFAULT_SOCKET = "/var/run/docker.sock"
PLAIN_PORT = 2375
TLS_PORT = 2376


@dataclass(frozen=True)
class Tls:
    """Files of a TLS connection. Without `ca`, the system's certificates are trusted."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """A fresh client context; raises `ConfigError` naming the files when they cannot be read."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the engine's TLS files cannot be used: {error}", place=self.cert or self.ca) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class Endpoint:
    """One engine's address, and where the address was found."""

    address: str
    """`unix:///run/docker.sock` or `tcp://HOST:PORT`."""
    source: str
    """For messages: `DOCKER_HOST`, `Docker context "desktop"`, `default`."""
    scheme: str
    """`unix` or `tcp`."""
    path: str = ""
    """Of the socket, for `unix`."""
    host: str = ""
    port: int = 0
    tls: Tls | None = None

    @property
    def url(self) -> str:
        """As the SDK wants it."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def endpoint(environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Find the engine's address without asking it anything.

    Args:
        environ: `DOCKER_HOST`, `DOCKER_CONTEXT`, `DOCKER_CONFIG`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`, `HOME`,
            `XDG_RUNTIME_DIR` are read from it.

    Raises:
        ConfigError: a context is named that does not exist or cannot be read.
        EngineUnreachable: the address is of a kind that is not spoken here (ssh, npipe).
    """
    if address := environ.get("DOCKER_HOST", "").strip():
        return _parse(address, "DOCKER_HOST", _tls_of_environment(environ))
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or Path.home()) / ".docker")
    name, place = environ.get("DOCKER_CONTEXT", "").strip(), "DOCKER_CONTEXT"
    if not name:
        place = str(folder / "config.json")
        name = _text(_read_json(folder / "config.json"), "currentContext")
    if name and name != "default":
        return _of_context(folder, name, place)
    rootless = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "docker.sock"
    if not Path(DEFAULT_SOCKET).exists() and rootless.exists():
        return _parse(f"unix://{rootless}", "rootless default", None)
    return _parse(f"unix://{DEFAULT_SOCKET}", "default", None)


def _of_context(folder: Path, name: str, place: str) -> Endpoint:
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / key / "meta.json"
    if not meta.exists():
        raise ConfigError(
            f"there is no Docker context {name!r}",
            place=place,
            hint="`docker context ls` lists them, `docker context use default` goes back to the default",
        )
    endpoints = _read_json(meta).get("Endpoints")
    docker = endpoints.get("docker") if isinstance(endpoints, dict) else None
    address = _text(docker, "Host")
    if not isinstance(docker, dict) or not address:
        raise ConfigError(f"the Docker context {name!r} names no engine", place=str(meta))
    files = folder / "contexts" / "tls" / key / "docker"
    found = {stem: str(files / f"{stem}.pem") for stem in ("ca", "cert", "key") if (files / f"{stem}.pem").exists()}
    tls = Tls(verify=not docker.get("SkipTLSVerify"), **found) if found or docker.get("SkipTLSVerify") else None
    return _parse(address, f'Docker context "{name}"', tls)


def _tls_of_environment(environ: Mapping[str, str]) -> Tls | None:
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    folder = environ.get("DOCKER_CERT_PATH", "")
    if not verify and not environ.get("DOCKER_TLS"):
        return None
    files = Path(folder or Path(environ.get("HOME") or Path.home()) / ".docker")
    found = {stem: str(files / f"{stem}.pem") for stem in ("ca", "cert", "key") if (files / f"{stem}.pem").exists()}
    return Tls(verify=verify, **found)


def _parse(address: str, source: str, tls: Tls | None) -> Endpoint:
    scheme, separator, rest = address.partition("://")
    if not separator and address.startswith("/"):
        scheme, rest = "unix", address
    if scheme == "unix" and rest.startswith("/"):
        return Endpoint(f"unix://{rest}", source, "unix", path=rest)
    if scheme in ("tcp", "http", "https") and rest.strip("/"):
        if scheme == "https" and tls is None:
            tls = Tls()
        host, port = _split(rest.partition("/")[0], TLS_PORT if tls else PLAIN_PORT, address, source)
        return Endpoint(f"tcp://{host}:{port}", source, "tcp", host=host, port=port, tls=tls)
    if scheme == "ssh":
        raise EngineUnreachable(
            f"an engine over ssh is not spoken to directly ({address}, from {source})",
            place=source,
            hint="forward its socket: `ssh -NL /tmp/docker.sock:/var/run/docker.sock HOST`, "
            "then DOCKER_HOST=unix:///tmp/docker.sock; the workspace must exist on that host too",
        )
    raise ConfigError(f"not an engine's address: {address!r}", place=source, hint="unix:///PATH or tcp://HOST:PORT")


def _split(authority: str, default: int, address: str, source: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, str(default)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"not an engine's address: {address!r}", place=source, hint="tcp://HOST:PORT")
    return host, int(port)


def _read_json(path: Path) -> dict[str, Any]:
    """The file's mapping; empty when there is no such file."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(path)) from error
    if not isinstance(document, dict):
        raise ConfigError("is not a JSON object", place=str(path))
    return document


def _text(document: object, key: str) -> str:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""
