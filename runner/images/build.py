"""The tag of a plan, "nothing to build", and the build.

A second run asks the engine one question: is there an image of this tag that bears this plan's label. The tag is a
hash over all that shapes the image, so that no file of it needs to be compared.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import __version__, wire
from runner.engine import Engine
from runner.errors import EngineError, EngineTimeout, ImageError, NotFoundError
from runner.images import base as bases
from runner.images import dockerfile, settings
from runner.images.events import Note, Output, Progress, Ready, Step, ignore
from runner.kits.plan import Base, Plan

BUILD_SILENCE = 1800.0
"""Seconds without a byte of output until a build has failed; an install command may be silent for long."""
LOCK_WAIT = 3600.0
"""Seconds that a second build of the same plan waits for the first."""
LOCK_POLL = 0.2
LOG_LIMIT = 64 * 1024
"""Characters of a failing step's output that are kept, from its end."""

STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)\n?$", re.DOTALL)
RED = re.compile(r"\A\x1b\[91m(.*)\x1b\[0m\Z", re.DOTALL)
"""How the classic builder marks what a step wrote to stderr."""
EXIT = re.compile(r"returned a non-zero code: (\d+)")


@dataclass(frozen=True)
class Image:
    """A plan's image in the engine."""

    id: str
    tag: str
    labels: Mapping[str, str] = field(default_factory=dict)
    built: bool = False
    """Whether this call built it."""


@dataclass(frozen=True)
class Closed:
    """The network of a closed build: its steps reach what a policy allows, through a proxy, and nothing else."""

    mode: str
    """For the builder: `container:ID`."""
    proxies: Mapping[str, str]
    """The variables that lead programs to the proxy."""
    refused: Callable[[], list[str]]
    """What steps asked for and were refused, one line each."""


MakeNetwork = Callable[[Iterable[str], Mapping[str, str]], AbstractContextManager[Closed]]
"""From images that a helper may run in, and this host's proxies, to a closed network."""


def tag(plan: Plan) -> str:
    """`sbx/NAME:HASH`. Needs no engine; the same on every machine with the same kit and the same sbx."""
    return f"sbx/{plan.name}:{dockerfile.digest(plan)[:12]}"


def ensure(
    engine: Engine,
    plan: Plan,
    *,
    progress: Progress = ignore,
    certificates: Sequence[Path] = (),
    no_cache: bool = False,
    pull: bool = False,
    network_mode: str | None = None,
    network: MakeNetwork | None = None,
) -> Image:
    """The plan's image; built when it is not there.

    Args:
        engine: where.
        plan: what.
        progress: told what goes on, from this thread.
        certificates: files of PEM certificates for the build; none means the host's own beyond the public ones.
        no_cache: build every step anew, even when the image is there.
        pull: ask the registry for a newer base, then build.
        network_mode: of the build's containers, such as `host` or `container:ID`; None is the engine's default.
        network: makes the network of a closed build; None leaves the build open.

    Raises:
        ImageError: a step failed (`log` holds the end of its output), or the base cannot be had. No tag is left.
        EngineError: the engine failed.
        ConfigError: a certificate file is wrong.
    """
    wanted = dockerfile.digest(plan)
    name = f"sbx/{plan.name}:{wanted[:12]}"
    fresh = no_cache or pull
    if not fresh and (found := find(engine, name, wanted)):
        return found
    with one_at_a_time(wanted, progress):
        # Another process may have built it while this one waited.
        if not fresh and (found := find(engine, name, wanted)):
            return found
        return build_plan(engine, plan, progress, certificates, no_cache, pull, network_mode, network)


def find(engine: Engine, name: str, plan_digest: str) -> Image | None:
    """The image of this tag, if it bears this plan's label; a tag that someone else moved is not taken."""
    try:
        document = engine.get(f"/images/{name}/json", doing=f"looking for {name}")
    except NotFoundError:
        return None
    labels = (document.get("Config") or {}).get("Labels") or {}
    if labels.get("dev.sbx.plan") != plan_digest:
        return None
    return Image(document["Id"], name, labels)


def labels_of(plan: Plan, plan_digest: str) -> dict[str, str]:
    """What the image says of itself."""
    return {
        "dev.sbx.plan": plan_digest,
        "dev.sbx.kit": plan.name,
        "dev.sbx.kits": " ".join(layer.kit for layer in plan.layers),
        "dev.sbx.base": plan.base.image if plan.base.context is None else "build",
        "dev.sbx.wire": str(wire.VERSION),
        "dev.sbx.version": __version__,
    }


def build_plan(
    engine: Engine,
    plan: Plan,
    progress: Progress,
    certificates: Sequence[Path],
    no_cache: bool,
    pull: bool,
    network_mode: str | None,
    network: MakeNetwork | None = None,
) -> Image:
    """`ensure` without looking for what is there, and without the lock against a second build."""
    plan_digest = dockerfile.digest(plan)
    name = tag(plan)
    began = time.monotonic()
    host = settings.read(certificates)
    start = ""
    if plan.base.context is None:
        start = bases.resolve(engine, plan.base.image, progress=progress, pull=pull)
    if network is None:
        runner = Builder(engine, plan.name, host, progress, network_mode, no_cache)
        image, labels = _run(engine, plan, start, plan_digest, runner, progress)
    else:
        with network(_helpers(engine, start, progress), host.package_proxies()) as closed:
            host = host.closed(closed.proxies)
            runner = Builder(engine, plan.name, host, progress, closed.mode, no_cache, closed.refused)
            image, labels = _run(engine, plan, start, plan_digest, runner, progress)
    set_tag(engine, image, name)
    progress(Ready(name, time.monotonic() - began))
    return Image(image, name, labels, built=True)


def _helpers(engine: Engine, start: str, progress: Progress) -> Iterator[str]:
    """What the helper of a closed build may run in: the build's own base, else the usual one."""
    if start:
        yield start
    yield bases.resolve(engine, Base().image, progress=progress)


def _run(
    engine: Engine, plan: Plan, start: str, plan_digest: str, runner: Builder, progress: Progress
) -> tuple[str, dict[str, str]]:
    if not start:
        start = f"sbx/{plan.name}-base:{plan_digest[:12]}"
        progress(Note(f"building the kit's own base, {plan.base.dockerfile}"))
        context = dockerfile.pack(dockerfile.folder_files(plan))
        own = runner.run(context, plan.base.dockerfile, dict(plan.base.args), plan.base.target)
        set_tag(engine, own, start)
    labels = {
        **labels_of(plan, plan_digest),
        # A base of the kit's own has no name and no digest that another build of it would have too.
        "dev.sbx.base.from": "" if plan.base.context else start,
        "dev.sbx.base.digest": "" if plan.base.context else base_digest(engine, start),
    }
    text = dockerfile.render(plan, start, labels)
    return runner.run(dockerfile.context(plan, text), "Dockerfile", {}, ""), labels


def base_digest(engine: Engine, reference: str) -> str:
    """What the registry calls the base's content, or its id where it came from no registry."""
    document = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")
    digests = sorted(text.rpartition("@")[2] for text in document.get("RepoDigests") or ())
    return digests[0] if digests else str(document["Id"])


def set_tag(engine: Engine, image: str, name: str) -> None:
    """Put the tag `name` on an image, taking it off whatever bears it."""
    repository, _, version = name.rpartition(":")
    with engine.call(f"tagging {name}"):
        engine.api.tag(image, repository, version)


class Builder:
    """Runs Dockerfiles on the engine's own builder, and reads what it says."""

    def __init__(
        self,
        engine: Engine,
        kit: str,
        host: settings.Settings,
        progress: Progress,
        network_mode: str | None,
        no_cache: bool,
        refused: Callable[[], list[str]] = list,
    ):
        self.refused = refused
        self.engine, self.kit, self.host, self.progress = engine, kit, host, progress
        self.network_mode, self.no_cache = network_mode, no_cache
        self.secrets = host.secrets()

    def run(self, context: bytes, file: str, arguments: Mapping[str, str], target: str) -> str:
        """Build; returns the image's id. Leaves no tag and no container, however it ends."""
        step, log, image = "", "", ""
        try:
            with closing(self._messages(context, file, arguments, target)) as messages:
                for message in messages:
                    if "error" in message:
                        raise self._failure(str(message["error"]), step, log)
                    image = message.get("aux", {}).get("ID", image)
                    text = self._masked(RED.sub(r"\1", message.get("stream", "")))
                    if match := STEP.match(text):
                        step, log = match[3].rstrip(), ""
                        self.progress(Step(int(match[1]), int(match[2]), step))
                    elif text and not _chatter(text):
                        log = (log + text)[-LOG_LIMIT:]
                        self.progress(Output(text))
        except EngineTimeout as error:
            raise ImageError(
                f"the build of {self.kit} said nothing for {BUILD_SILENCE / 60:.0f} minutes in: {_short(step)}",
                place=self.kit,
                log=log,
                hint="an install command may wait for input or for the network",
            ) from error
        except EngineError as error:
            # The engine refuses a Dockerfile before its first step with a plain error.
            if step or "dockerfile" not in error.message.lower():
                raise
            raise ImageError(f"the Dockerfile of {self.kit} is refused: {error.message}", place=self.kit) from error
        if not image:
            raise ImageError(f"the build of {self.kit} ended without an image", place=self.kit, log=log)
        return image

    def _messages(
        self, context: bytes, file: str, arguments: Mapping[str, str], target: str
    ) -> Generator[dict[str, Any]]:
        """What the engine says of a build. Closing this cancels the build: the engine ends the running step.

        Only the engine's own calls lie inside `call`: a front end that fails must not read as an engine that does.
        """
        doing = f"building the image of {self.kit}"
        with self.engine.call(doing, BUILD_SILENCE):
            stream = self.engine.api.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                dockerfile=file,
                buildargs={**arguments, **self.host.arguments()},
                target=target or None,
                network_mode=self.network_mode,
                nocache=self.no_cache,
                rm=True,
                forcerm=True,
                decode=True,
            )
        try:
            while True:
                with self.engine.call(doing, BUILD_SILENCE):
                    message = next(stream, None)
                if message is None:
                    return
                yield message
        finally:
            stream.close()

    def _failure(self, error: str, step: str, log: str) -> ImageError:
        lacks = re.search(r"^sbx: lacks: (.*)$", log, re.MULTILINE)
        if lacks:
            return ImageError(
                f"the base image of {self.kit} cannot be used, it lacks {lacks[1]}",
                place=self.kit,
                hint="start from an image with apt and Python 3.11, such as debian:bookworm-slim",
                log=log,
            )
        code = EXIT.search(error)
        what = f"ended with {code[1]}" if code else self._masked(error)
        if refused := self.refused():
            return ImageError(
                f"building the image of {self.kit} failed: {_short(step)}: {what}; the gateway had refused "
                + "; ".join(refused),
                place=self.kit,
                hint="a build reaches what its kit lists under permissions.network.install.allow",
                log=log or None,
            )
        return ImageError(
            f"building the image of {self.kit} failed: {_short(step)}: {what}",
            place=self.kit,
            log=log or None,
            hint=_hint(error + log),
        )

    def _masked(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, settings.MASK)
        return text


def _chatter(text: str) -> bool:
    """The builder's own words between steps."""
    return text.startswith((" ---> ", "Removing intermediate container ", "Successfully built ")) or text == "\n"


def _short(step: str) -> str:
    return step if len(step) <= 200 else step[:199] + "…"


def _hint(text: str) -> str | None:
    if "No space left on device" in text or "no space left on device" in text:
        return "the engine's disk is full: `sbx image prune`, `docker system df` shows what takes it"
    if re.search(r"certificate verify failed|self.signed certificate|SSL certificate problem|SELF_SIGNED", text, re.I):
        return "a proxy inspects TLS here: give its certificate with --ca-certificate FILE"
    if re.search(r"Temporary failure (in name resolution|resolving)|Could not resolve|EAI_AGAIN|ENOTFOUND", text):
        return "the build has no name resolution: see the engine's network, or set HTTPS_PROXY for a proxy"
    return None


@contextmanager
def one_at_a_time(plan_digest: str, progress: Progress) -> Iterator[None]:
    """One build of a plan at a time on this host; ends with the process, however it ends."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbx" / "builds"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        handle: Any = (cache / f"{plan_digest[:40]}.lock").open("wb")
    except OSError:
        # A home that cannot be written costs a second build at worst: the engine tags in one go.
        yield
        return
    with handle:
        limit, told = time.monotonic() + LOCK_WAIT, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    progress(Note("another build of the same image is going on, waiting for it"))
                    told = True
                if time.monotonic() > limit:
                    raise ImageError("another build of the same image does not end", place=str(cache)) from None
                time.sleep(LOCK_POLL)
        yield
