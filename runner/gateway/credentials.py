"""Credentials: what the user binds, where a kit wants it, and the headers that come of both.

A kit says *where* a credential is to be set, the user says *which* secret that is and *to which domains it may go*. A
kit's `inject` outside those domains is refused: a kit must not choose where a token goes. In the sandbox the variable
reads `proxy-managed`; the value is fetched on the host when a request first needs it.

    github:                          # the service, as kits name it
      env: GITHUB_TOKEN              # or `file: PATH`, or `command: [pass, show, github]`
      domains: [api.github.example]
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, RefusedError
from runner.gateway.connection import Interception
from runner.gateway.interception import Authority, ServerTls, opened
from runner.gateway.names import Host
from runner.gateway.policy import Pattern, parse
from runner.gateway.redaction import SHORTEST, Redactor
from runner.kits.plan import Credential, Inject

PLACEHOLDER = "proxy-managed"
"""What a credential's variable reads in the sandbox."""
COMMAND_TIMEOUT = 30.0
"""Seconds for a command that fetches a secret."""
MAX_SECRET = 64 * 1024
_KINDS = ("env", "file", "command")


@dataclass(frozen=True)
class Binding:
    """Where a service's secret comes from, and where it may go."""

    service: str
    kind: str
    """`env`, `file` or `command`."""
    source: tuple[str, ...]
    """The variable, the path, or the command."""
    domains: tuple[Pattern, ...]

    def fetch(self, environ: Mapping[str, str]) -> str:
        """The secret.

        Raises:
            ConfigError: it cannot be had, is empty, or too short to be masked. Its own text is in no message.
        """
        place = f"credential {self.service}"
        if self.kind == "env":
            secret = environ.get(self.source[0], "")
        elif self.kind == "file":
            path = Path(self.source[0]).expanduser()
            try:
                if path.stat().st_size > MAX_SECRET:
                    raise ConfigError(f"{path} is over {MAX_SECRET} bytes", place=place)
                secret = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "not UTF-8"
                raise ConfigError(f"{path} cannot be read: {why}", place=place) from None
        else:
            try:
                done = subprocess.run(
                    list(self.source),
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=COMMAND_TIMEOUT,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = f"took over {COMMAND_TIMEOUT:.0f} s" if not isinstance(error, OSError) else str(error.strerror)
                raise ConfigError(f"the command {self.source[0]!r} failed: {why}", place=place) from None
            if done.returncode:
                raise ConfigError(f"the command {self.source[0]!r} ended with code {done.returncode}", place=place)
            secret = done.stdout.decode("utf-8", "replace")
        secret = secret.strip()
        if len(secret) < SHORTEST:
            where = " ".join(self.source[:1])
            raise ConfigError(f"{self.kind} {where} holds no secret of at least {SHORTEST} characters", place=place)
        if not secret.isascii() or not secret.isprintable():
            raise ConfigError("the secret holds characters that cannot stand in a header", place=place)
        return secret


def credentials_path(environ: Mapping[str, str]) -> Path:
    """`~/.config/sbx/credentials.yaml`, or under `XDG_CONFIG_HOME`."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(home) / "sbx" / "credentials.yaml"


def load(path: Path) -> dict[str, Binding]:
    """The user's bindings; none when there is no file.

    Raises:
        ConfigError: the file is wrong, or others than its owner may write it.
    """
    import yaml

    try:
        if path.stat().st_mode & 0o022:
            raise ConfigError("others may write this file", place=str(path), hint=f"chmod 600 {path}")
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise ConfigError("the file cannot be read as YAML", place=str(path)) from None  # no text of it is shown
    if not isinstance(document, dict):
        raise ConfigError("must be a mapping of services", place=str(path))
    return {str(service): _binding(str(service), entry, f"{path}: {service}") for service, entry in document.items()}


def _binding(service: str, entry: Any, place: str) -> Binding:
    if not isinstance(entry, dict):
        raise ConfigError("must be a mapping", place=place)
    if unknown := [key for key in entry if key not in (*_KINDS, "domains")]:
        raise ConfigError(f"unknown key {unknown[0]!r}; there are {', '.join((*_KINDS, 'domains'))}", place=place)
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        raise ConfigError(f"needs exactly one of {', '.join(_KINDS)}", place=place)
    kind = kinds[0]
    value = entry[kind]
    source = value if kind == "command" else [value]
    if not isinstance(source, list) or not source or not all(isinstance(part, str) and part for part in source):
        raise ConfigError("must be a list of texts" if kind == "command" else "must be a text", place=f"{place}.{kind}")
    domains = entry.get("domains")
    if not isinstance(domains, list) or not domains or not all(isinstance(domain, str) for domain in domains):
        raise ConfigError("must list the domains that the secret may go to", place=f"{place}.domains")
    patterns = tuple(parse(domain, f"{place}.domains") for domain in domains)
    if any(pattern.kind == "cidr" for pattern in patterns):
        raise ConfigError("a secret goes to names, not to networks", place=f"{place}.domains")
    return Binding(service, kind, tuple(source), patterns)


@dataclass(frozen=True)
class _Route:
    where: Pattern
    inject: Inject
    binding: Binding


class Injector:
    """The credentials of one session.

    Args:
        credentials: the plan's.
        bindings: the user's.
        environ: the host's environment.
        server: starts TLS towards servers.

    Raises:
        RefusedError: a kit wants a secret at a domain that its binding does not name.
        ConfigError: a required credential is not bound, or a domain is none.
    """

    def __init__(
        self,
        credentials: Sequence[Credential],
        bindings: Mapping[str, Binding],
        environ: Mapping[str, str] = os.environ,
        server: Callable[..., Any] | None = None,
    ) -> None:
        self._environ = environ
        self._server = server or ServerTls()
        self._authority: Authority | None = None
        self._routes: list[_Route] = []
        self._secrets: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        """The sandbox's variables, each `proxy-managed`."""
        self.unbound: list[Credential] = []
        """Credentials that kits can use and the user has not bound."""
        self._masking = Redactor()
        for credential in credentials:
            binding = bindings.get(credential.service)
            if binding is None:
                if credential.required:
                    raise ConfigError(
                        f"{credential.source} needs the credential {credential.service!r}, which is not bound",
                        hint=f"sbx secret set {credential.service} --domain DOMAIN",
                    )
                self.unbound.append(credential)
                continue
            self.variables |= dict.fromkeys(credential.env, PLACEHOLDER)
            for inject in credential.inject:
                where = parse(inject.domain, f"{credential.source}: credentials.{credential.service}")
                if not any(_covers(domain, where) for domain in binding.domains):
                    raise RefusedError(
                        f"{credential.source} wants the credential {credential.service!r} at {inject.domain}, "
                        "where its binding does not let it go",
                        place=f"credential {credential.service}",
                        hint=f"if that is right, add {inject.domain} to its domains in credentials.yaml",
                    )
                self._routes.append(_Route(where, inject, binding))

    @property
    def authority(self) -> Authority:
        """The session's certificate authority, made when it is first needed."""
        if self._authority is None:
            self._authority = Authority()
        return self._authority

    @property
    def needed(self) -> bool:
        """Whether any tunnel will be opened, so that the sandbox must trust `authority`."""
        return bool(self._routes)

    def intercept(self, host: Host, port: int) -> Interception | None:
        """For `EgressProxy`: how to open a tunnel to `host`, or None to leave it closed."""
        routes = [route for route in self._routes if route.where.matches(host, port)]
        if not routes:
            return None

        def headers() -> list[tuple[bytes, bytes]]:
            return [(r.inject.header.encode("ascii"), self._value(r).encode("ascii")) for r in routes]

        services = ", ".join(dict.fromkeys(route.binding.service for route in routes))
        return Interception(
            services, headers, lambda outer: opened(outer, self.authority, host), self._server, lambda: self._masking
        )

    def redactor(self, more: Sequence[str] = ()) -> Redactor:
        """Masks every bound secret, fetched now, and `more` (the model's key).

        Raises:
            ConfigError: a secret cannot be had.
        """
        for route in self._routes:
            self._secret(route.binding)
        return Redactor([*self._secrets.values(), *more])

    def _secret(self, binding: Binding) -> str:
        if binding.service not in self._secrets:
            self._secrets[binding.service] = binding.fetch(self._environ)
            self._masking = Redactor(self._secrets.values())
        return self._secrets[binding.service]

    def _value(self, route: _Route) -> str:
        try:
            secret = self._secret(route.binding)
        except ConfigError as error:
            raise OSError(str(error)) from None
        inject = route.inject
        if inject.format:
            return inject.format.replace("%s", secret)
        if inject.scheme == "basic":
            return "Basic " + base64.b64encode(f"{inject.username}:{secret}".encode()).decode("ascii")
        return f"Bearer {secret}" if inject.scheme == "bearer" else secret


def _covers(wide: Pattern, narrow: Pattern) -> bool:
    """Whether everything that `narrow` matches is matched by `wide`."""
    if not wide.first <= narrow.first <= narrow.last <= wide.last:
        return False
    if narrow.kind in ("name", "address"):
        return (wide.kind == narrow.kind and wide.host == narrow.host) or (
            narrow.kind == "name" and wide.matches(narrow.host, narrow.first)
        )
    if wide.kind == "deep":
        return narrow.host == wide.host or narrow.host.endswith("." + wide.host)
    return wide.kind == "one" and narrow.kind == "one" and wide.host == narrow.host
