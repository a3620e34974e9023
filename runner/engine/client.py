"""Asking the engine: every question has a bound, every failure is one of ours.

Three failures look alike from the SDK and are told apart here, since the user does something else about each: nothing
listens (start it), this user may not open the socket (join the group), and it listens but does not answer in time
(restart it, or one container is wedged).
"""

from __future__ import annotations

import json
import os
import socket
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.engine.endpoint import Endpoint, endpoint
from runner.errors import EngineError, EngineTimeout, EngineUnreachable, NotFoundError, SbxError

if TYPE_CHECKING:
    import docker

CONNECT_TIMEOUT = 5.0
"""Seconds until an engine that accepts and says nothing counts as unreachable."""
CALL_TIMEOUT = 60.0
"""Seconds for one call, where the caller names no other bound: between two bytes of the answer."""
LOWEST_API = (1, 41)
"""Engine 20.10: cgroup namespaces, host-gateway, and Debian 12's own package."""
HIGHEST_API = (1, 44)
"""What the SDK was written for."""
ANSWER_LIMIT = 64 * 1024 * 1024
"""Bytes of one plain answer."""

_bound: ContextVar[float] = ContextVar("engine_call_timeout", default=CALL_TIMEOUT)


class Engine:
    """One engine that answered.

    Args:
        at: its address.
        version: the API version to speak, such as `1.41`.
        podman: it is podman, which speaks Docker's API with a few words meant otherwise.
    """

    def __init__(self, at: Endpoint, version: str, *, podman: bool = False):
        self.endpoint = at
        self.version = version
        self.podman = podman

    @cached_property
    def api(self) -> docker.APIClient:
        """The SDK's client; imported on first use. Use it inside `call`, which bounds it."""
        import docker

        class Bounded(docker.APIClient):
            """Takes each request's time limit from the `call` that it is made in, in whichever thread."""

            def _set_request_timeout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
                if kwargs.get("timeout") is None:  # the SDK's pull and build say None themselves
                    kwargs["timeout"] = _bound.get()
                return kwargs

        client = Bounded(base_url=self.endpoint.url, version=self.version, tls=self._sdk_tls())  # type: ignore[arg-type]
        weakref.finalize(self, client.close)  # its connections are not left to the garbage collector
        return client

    @contextmanager
    def call(self, doing: str, timeout: float = CALL_TIMEOUT) -> Iterator[None]:
        """Bound the SDK's calls made inside, and translate what they raise.

        Args:
            doing: for messages, such as `starting the container`.
            timeout: seconds between two bytes of the engine's answer.

        Raises:
            NotFoundError: the engine knows no such thing.
            EngineTimeout: no byte for `timeout` seconds.
            EngineUnreachable: the connection broke or was refused.
            EngineError: the engine answered with another error, which the message quotes.
        """
        token = _bound.set(timeout)
        try:
            yield
        except Exception as error:
            translated = self._translate(error, doing, timeout)
            if translated is None:
                raise
            raise translated from error
        finally:
            _bound.reset(token)

    def get(self, path: str, *, doing: str, timeout: float = CONNECT_TIMEOUT) -> Any:
        """`request` with GET."""
        return self.request("GET", path, doing=doing, timeout=timeout)

    def request(
        self, method: str, path: str, document: object = None, *, doing: str, timeout: float = CALL_TIMEOUT
    ) -> Any:
        """One plain question without the SDK, for the few asked at every start; its import costs 0.2 s.

        Args:
            method: of HTTP.
            path: under the API's root, such as `/images/NAME/json`; already quoted.
            document: sent as JSON, unless None.
            doing: for messages.
            timeout: seconds for each step of the conversation.

        Returns: the decoded JSON.
        """
        status, _, body = _ask(self.endpoint, f"/v{self.version}{path}", timeout, doing, method, document)
        try:
            answer = json.loads(body) if body else None
        except ValueError as error:
            raise EngineError(f"the engine's answer is not JSON while {doing}", place=self.endpoint.address) from error
        if status == HTTPStatus.NOT_FOUND:
            raise NotFoundError(_message(answer) or f"not found while {doing}")
        if status >= HTTPStatus.BAD_REQUEST:
            text = _message(answer) or str(status)
            raise EngineError(f"the engine failed while {doing}: {text}", place=self.endpoint.address, hint=_hint(text))
        return answer

    def close(self) -> None:
        """Close the connections the SDK keeps open."""
        if "api" in self.__dict__:
            self.api.close()

    def _sdk_tls(self) -> object:
        if self.endpoint.tls is None:
            return False
        from docker.tls import TLSConfig

        tls = self.endpoint.tls
        pair = (tls.cert, tls.key) if tls.cert and tls.key else None
        return TLSConfig(client_cert=pair, ca_cert=tls.ca or None, verify=tls.verify)

    def _translate(self, error: Exception, doing: str, timeout: float) -> EngineError | NotFoundError | None:
        """Ours for one of the SDK's, of requests' or of urllib3's; None for anything else."""
        if isinstance(error, SbxError):
            return None  # it was translated where it arose, or has nothing to do with the engine
        import requests
        import urllib3
        from docker import errors

        place = self.endpoint.address
        if isinstance(error, errors.APIError) and error.response is not None:
            error.response.close()  # an answer that was to be streamed would keep its connection
        if isinstance(error, errors.NotFound):
            return NotFoundError(error.explanation or f"not found while {doing}", place=place)
        if isinstance(error, errors.APIError):
            text = error.explanation or str(error)
            return EngineError(f"the engine failed while {doing}: {text}", place=place, hint=_hint(text))
        timeouts = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
        # A read that times out while a stream is iterated comes as a ConnectionError around the real one.
        if isinstance(error, timeouts) or (isinstance(error, requests.ConnectionError) and "timed out" in str(error)):
            return EngineTimeout(
                f"the engine said nothing for {timeout:g} s while {doing}",
                place=place,
                hint="one container may be wedged, or the machine is overloaded; `docker ps` shows whether it answers",
            )
        connection = (requests.ConnectionError, urllib3.exceptions.HTTPError, ConnectionError)
        if isinstance(error, connection):
            return EngineUnreachable(f"the connection to the engine broke while {doing}", place=place)
        if isinstance(error, (errors.DockerException, requests.RequestException)):
            return EngineError(f"the engine failed while {doing}: {error}", place=place)
        return None


def connect(environ: Mapping[str, str] = os.environ, *, timeout: float = CONNECT_TIMEOUT) -> Engine:
    """Find the engine, ask whether it is there, and agree on an API version. A millisecond; no SDK.

    Raises:
        EngineUnreachable: says which address, why, and what to do.
        EngineError: it speaks only versions older than 1.41.
        ConfigError: the Docker configuration names what is not there.
    """
    at = endpoint(environ)
    status, headers, body = _ask(at, "/_ping", timeout, "asking whether the engine is there")
    offered = headers.get("api-version", "")
    if status != HTTPStatus.OK or not offered:
        raise EngineUnreachable(
            f"what answers at {at.address} ({at.source}) is no Docker engine: status {status}, {body[:80]!r}",
            place=at.address,
        )
    numbers = _numbers(offered)
    if numbers < LOWEST_API:
        raise EngineError(
            f"the engine speaks API {offered}, at least {'.'.join(map(str, LOWEST_API))} is needed",
            place=at.address,
            hint="upgrade it to version 20.10 or newer",
        )
    version = ".".join(map(str, min(numbers, HIGHEST_API)))
    return Engine(at, version, podman="libpod-api-version" in headers)


def _ask(
    at: Endpoint, path: str, timeout: float, doing: str, method: str = "GET", document: object = None
) -> tuple[int, dict[str, str], bytes]:
    """One question in HTTP/1.0: the engine closes after the answer, so that there is no framing to read."""
    content = b"" if document is None else json.dumps(document).encode("ascii")
    kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
    asked = f"{method} {path} HTTP/1.0\r\nHost: {at.host or 'docker'}\r\nUser-Agent: sbx\r\n{kind}\r\n"
    try:
        with _open(at, timeout) as connection:
            connection.sendall(asked.encode("ascii") + content)
            answer = bytearray()
            while chunk := connection.recv(65536):
                answer += chunk
                if len(answer) > ANSWER_LIMIT:
                    raise EngineError(f"the engine's answer is too long while {doing}", place=at.address)
    except TimeoutError as error:
        raise EngineTimeout(
            f"the engine at {at.address} ({at.source}) said nothing for {timeout:g} s while {doing}",
            place=at.address,
            hint="restart it, or see its log",
        ) from error
    except OSError as error:
        raise unreachable(at, error) from error
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdecimal():
        raise EngineUnreachable(f"what answers at {at.address} ({at.source}) speaks no HTTP", place=at.address)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(parts[1]), headers, body


def _open(at: Endpoint, timeout: float) -> socket.socket:
    if at.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(at.path)
        except BaseException:
            connection.close()
            raise
        return connection
    plain = socket.create_connection((at.host, at.port), timeout)
    if at.tls is None:
        return plain
    try:
        return at.tls.context().wrap_socket(plain, server_hostname=at.host)
    except BaseException:
        plain.close()
        raise


def unreachable(at: Endpoint, error: OSError) -> EngineUnreachable:
    """The error for an address that could not be opened: which, why, what to do."""
    if isinstance(error, PermissionError):
        group = _group(at.path)
        hint = (
            f"`sudo usermod -aG {group} $USER`, then log in again; members of that group are root on this machine"
            if group
            else "its owner must let you in, or take a rootless engine of your own"
        )
        which = f"its group is {group}, which you are not in" if group else "it belongs to another user"
        return EngineUnreachable(
            f"you may not open the engine's socket {at.path} ({at.source}): {which}", place=at.address, hint=hint
        )
    start = "start it: `sudo systemctl start docker`, or as root on Debian or Ubuntu `make engine` in this repository"
    if isinstance(error, FileNotFoundError):
        return EngineUnreachable(
            f"no Docker engine: there is no socket {at.path} ({at.source})",
            place=at.address,
            hint=f"install one (Debian, Ubuntu: `sudo apt-get install docker.io`) or {start}",
        )
    if isinstance(error, ConnectionRefusedError):
        what = at.path or f"{at.host}:{at.port}"
        return EngineUnreachable(f"no Docker engine listens at {what} ({at.source})", place=at.address, hint=start)
    return EngineUnreachable(
        f"the Docker engine at {at.address} ({at.source}) cannot be reached: {error}",
        place=at.address,
        hint="see `docker context ls` and DOCKER_HOST",
    )


def _group(path: str) -> str:
    """Name of the group that may open the socket, or empty where a group would not help."""
    import grp

    try:
        status = Path(path).stat()
    except OSError:
        return ""
    if not status.st_mode & 0o020 or status.st_gid in os.getgroups():
        return ""
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _message(document: object) -> str:
    value = document.get("message") if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _hint(text: str) -> str | None:
    if "no space left on device" in text:
        return "the engine's disk is full: `sbx image prune`, `docker system df` shows what takes it"
    return None
