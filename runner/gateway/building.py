"""Closed builds: what an image's build steps may reach is decided by the gateway too.

The steps join the network of a container that has none but its loopback, on which a forwarder listens and carries
each connection over the container's stdin and stdout to this process (`images/network/forward.pl`). A step that does
not use the proxy gets nowhere. Package sources of the base image itself are allowed, since what every sandbox needs
is installed from them; all else is for the kits to list under `permissions.network.install` (or `allow`). No grant is
needed for that: a build sees the kit's own files and nothing of the user's, so there is nothing it could carry out.

The engine's classic builder does this, which is the one that its API has. BuildKit has no such network.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import secrets
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runner.errors import ConfigError, EngineError, NotFoundError, SbxError
from runner.gateway import rules
from runner.gateway.environment import proxy_environment
from runner.gateway.policy import Policy
from runner.images.build import Closed
from runner.kits.data import data_folder
from runner.wire import messages as m

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.gateway.decisions import Entry
    from runner.kits.plan import Plan

READY_WITHIN = 30.0
"""Seconds until the forwarder listens."""
END_WITHIN = 10.0
MAX_SOURCES = 1024 * 1024
"""Bytes of a base image's list of package sources."""
DEBIAN = "@debian-packages"
LABEL = "dev.sbx.build"
"""On a build's helper, with the kit's name. It is no sandbox, and is not listed as one."""


class ClosedBuilds:
    """Makes the network of a build; for `images.ensure(network=…)`.

    Args:
        engine: where.
        plan: what is built; its lists are the rules.
        files: the policy files, which bound a build too.
        environ: the host's environment: package clients, a company's proxy.
    """

    def __init__(
        self, engine: Engine, plan: Plan, files: Sequence[rules.PolicyFile], environ: Mapping[str, str]
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._files = files
        self._environ = environ

    @contextmanager
    def __call__(self, images: Iterable[str], proxies: Mapping[str, str]) -> Iterator[Closed]:
        """The network, for the length of a build.

        Args:
            images: what the helper may run in, tried in order; the first is the base.
            proxies: variables with the proxies of this host's package clients.

        Raises:
            EngineError: the helper cannot be started.
            ConfigError: a rule is wrong, or a group cannot be resolved.
        """
        from runner.gateway.upstream import Upstream
        from runner.sandbox.container import LABEL_SESSION, Janitor, remove

        session = f"build-{secrets.token_hex(8)}"
        upstream = Upstream.from_environment({**proxies, **self._environ})
        janitor = Janitor(self._engine, f"{LABEL_SESSION}={session}")
        try:
            container = self._create(images, session)
            forwarder = None
            try:
                policy = self._policy(_package_sources(self._engine, container))
                forwarder = _Forwarder(self._engine, container, policy, upstream)
                yield Closed(f"container:{container}", proxy_environment(), forwarder.refused)
            finally:
                if forwarder:
                    forwarder.close()
                with contextlib.suppress(NotFoundError):
                    remove(self._engine, container)
        finally:
            janitor.done()

    def _policy(self, sources: Sequence[str]) -> Policy:
        groups = _BuildGroups(self._environ, self._files, sources)
        policy = rules.build(
            "none",
            kits=self._plan.network,
            kits_granted=True,
            install=True,
            files=self._files,
            environ=self._environ,
            groups=groups,
        )
        with contextlib.suppress(ConfigError):  # a base that needs no packages may have no package client either
            policy = replace(policy, allow=(*policy.allow, *groups.expand(DEBIAN, "what every sandbox needs")))
        return policy

    def _create(self, images: Iterable[str], session: str) -> str:
        """The helper, created and not started; in the first image that has Perl."""
        from runner.sandbox import owner
        from runner.sandbox.container import LABEL_SESSION, remove

        script = (data_folder("images") / "network" / "forward.pl").read_text(encoding="utf-8")
        labels = {LABEL_SESSION: session, LABEL: self._plan.name, owner.LABEL: owner.current().label()}
        last = ""
        for image in images:
            document = {
                "Image": image,
                "Entrypoint": ["perl", "-e", script],
                "Cmd": [],
                "User": "65534:65534",
                "WorkingDir": "/",
                "Labels": labels,
                "OpenStdin": True,
                "StdinOnce": True,
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "Tty": False,
                "HostConfig": {
                    "NetworkMode": "none",
                    "CapDrop": ["ALL"],
                    "SecurityOpt": ["no-new-privileges"],
                    "ReadonlyRootfs": True,
                    "PidsLimit": 8,
                    "Memory": 512 * 1024 * 1024,
                    "LogConfig": {"Type": "none", "Config": {}},
                },
            }
            answer = self._engine.request("POST", "/containers/create", document, doing="creating the build's network")
            container = str(answer["Id"])
            if _has_perl(self._engine, container):
                return container
            last = image
            remove(self._engine, container)
        raise EngineError(f"the build's network cannot be made: there is no Perl in {last}")


class _BuildGroups(rules.Groups):
    """Groups of a build: Debian's packages come from where this host's apt and the base's own get them."""

    def __init__(self, environ: Mapping[str, str], files: Sequence[rules.PolicyFile], sources: Sequence[str]) -> None:
        super().__init__(environ, files)
        self._sources = tuple(sources)

    def resolve(self, name: str, source: str = "") -> tuple[tuple[str, ...], str]:
        if name != DEBIAN or any(name in file.groups for file in self._files):
            return super().resolve(name, source)
        try:
            entries, origin = super().resolve(name, source)
        except ConfigError:
            if not self._sources:
                raise
            entries, origin = (), ""
        both = tuple(dict.fromkeys([*entries, *self._sources]))
        return both, " and ".join(filter(None, [origin, "the base's own sources" if self._sources else ""]))


class _Forwarder:
    """The gateway's end of a build's network, in a thread of its own: the build itself blocks."""

    def __init__(self, engine: Engine, container: str, policy: Policy, upstream: Any) -> None:
        self._refused: dict[str, str] = {}
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        work = self._serve(engine, container, policy, upstream)
        self._thread = threading.Thread(target=self._run, args=(work,), name="sbx-build-network", daemon=True)
        self._thread.start()
        try:
            self._ready.result(READY_WITHIN)
        except TimeoutError:
            self.close()
            raise EngineError(f"the build's network was not ready within {READY_WITHIN:g} s") from None

    def refused(self) -> list[str]:
        """What steps asked for and were refused, each with the rule: one line each."""
        return [f"{place}: {why}" for place, why in self._refused.items()]

    def close(self) -> None:
        """Ends every connection."""
        if self._loop and self._task:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(END_WITHIN)

    def _run(self, work: Any) -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(
                    error if isinstance(error, SbxError) else EngineError(f"the build's network failed: {error}")
                )

    def _log(self, entry: Entry) -> None:
        if entry.outcome == "denied":
            self._refused.setdefault(f"{entry.host}:{entry.port}", entry.reason)

    async def _serve(self, engine: Engine, container: str, policy: Policy, upstream: Any) -> None:
        from runner.gateway.proxy import EgressProxy
        from runner.sandbox.attach import attach
        from runner.wire.mux import Mux, MuxClosed

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        said: list[bytes] = []
        attached = await attach(engine.endpoint, engine.version, container, said.append)
        tasks: set[asyncio.Task[None]] = set()
        try:
            doing = "starting the build's network"
            await asyncio.to_thread(engine.request, "POST", f"/containers/{container}/start", doing=doing)
            mux: Mux[m.ToHost] = Mux(attached, m.decode_for_host, even=True)
            proxy = EgressProxy(policy, self._log, upstream=upstream)
            async for message in mux.run():
                if isinstance(message, m.Event) and not self._ready.done():
                    self._ready.set_result(None)
                elif isinstance(message, m.Dial):
                    tasks.add(task := asyncio.create_task(proxy.handle(message, mux)))
                    task.add_done_callback(tasks.discard)
            raise EngineError(f"the build's network ended: {b''.join(said).decode('utf-8', 'replace').strip()}")
        except MuxClosed as error:
            raise EngineError(f"the build's network failed: {error}") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            attached.close()


def _has_perl(engine: Engine, container: str) -> bool:
    try:
        path = f"/containers/{container}/archive?path=/usr/bin/perl"
        engine.request("HEAD", path, doing="looking for Perl in the base image")
    except NotFoundError:
        return False
    return True


def _package_sources(engine: Engine, container: str) -> list[str]:
    """`HOST:PORT` of each package source that the image's own apt is set to."""
    raw = _archive(engine, container, "/etc/apt")
    if raw is None:
        return []
    found: list[str] = []
    with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for member in archive:
            if not member.isfile() or not re.search(r"sources\.list(\.d/[^/]+)?$", member.name):
                continue
            content = archive.extractfile(member)
            text = content.read(MAX_SOURCES).decode("utf-8", "replace") if content else ""
            for url in re.findall(r"^[^#]*?(https?://[^\s\]]+)", text, re.MULTILINE):
                with contextlib.suppress(ValueError):
                    parts = urlsplit(url)
                    port = parts.port or (443 if parts.scheme == "https" else 80)
                    if parts.hostname:
                        found.append(f"{parts.hostname}:{port}")
    return list(dict.fromkeys(found))


def _archive(engine: Engine, container: str, path: str) -> bytes | None:
    """A path of a container's as a tar; None when it is not there."""
    try:
        with engine.call(f"reading {path} of the base image", READY_WITHIN):
            chunks, _ = engine.api.get_archive(container, path)
            data = b""
            for chunk in chunks:
                data += chunk
                if len(data) > MAX_SOURCES:
                    break
            return data
    except NotFoundError:
        return None
