"""What `sbx doctor` finds: one check a line, each with what to do.

A check that cannot be made because an earlier one failed is not made: ten lines that say "no engine" help nobody.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.engine.client import Engine, connect
from runner.engine.endpoint import endpoint
from runner.errors import NotFoundError, SbxError

Status = Literal["ok", "warning", "failed"]

DISK_WANTED = 5 * 1000**3
"""Bytes; a demo image with a Go compiler takes 0.9 GB, and a build needs room beside it."""
DISK_NEEDED = 1 * 1000**3
MODEL_TIMEOUT = 2.0
"""Seconds for each model URL."""
ENGINE_TIMEOUT = 20.0
"""Seconds for `/info`, slow on engines with many containers."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Status
    text: str
    """What was seen."""
    hint: str = ""
    """What to do; empty when it is well."""

    def to_json(self) -> dict[str, str]:
        """As `sbx doctor --json` lists it."""
        document = {"name": self.name, "status": self.status, "text": self.text}
        return document | {"hint": self.hint} if self.hint else document


def examine(
    environ: Mapping[str, str] = os.environ,
    *,
    base_images: Sequence[str] = ("debian:bookworm-slim",),
    model_urls: Sequence[str] = (),
) -> list[Check]:
    """All checks, in the order in which they matter. Never raises for what it finds.

    Args:
        environ: where the engine is looked for.
        base_images: any of them will do as a base.
        model_urls: base URLs of an OpenAI-compatible server; the first that answers will do.
    """
    checks, engine = _engine(environ)
    if engine is not None:
        with_engine: list[Callable[[], list[Check]]] = [
            lambda: _info(engine),
            lambda: [_base(engine, base_images)],
        ]
        for check in with_engine:
            try:
                checks += check()
            except SbxError as error:
                checks.append(Check("engine", "failed", error.message, error.hint or "see the engine's log"))
        engine.close()
    if model_urls:
        checks.append(_model(model_urls))
    return checks


def passed(checks: Sequence[Check]) -> bool:
    """Whether a sandbox can be run: warnings do not count."""
    return all(check.status != "failed" for check in checks)


def _engine(environ: Mapping[str, str]) -> tuple[list[Check], Engine | None]:
    try:
        at = endpoint(environ)
    except SbxError as error:
        return [Check("engine", "failed", str(error), error.hint or "correct it")], None
    began = time.monotonic()
    try:
        engine = connect(environ)
    except SbxError as error:
        name = "permission" if isinstance(error.__cause__, PermissionError) else "engine"
        return [Check(name, "failed", error.message, error.hint or "see the engine's log")], None
    milliseconds = (time.monotonic() - began) * 1000
    return [
        Check("engine", "ok", f"answers at {at.address} ({at.source}) in {milliseconds:.0f} ms"),
        Check("api", "ok", f"version {engine.version} is spoken"),
        Check("permission", "ok", "this user may ask it"),
    ], engine


def _info(engine: Engine) -> list[Check]:
    info = engine.get("/info", doing="asking what the engine is", timeout=ENGINE_TIMEOUT)
    version = f"{info.get('ServerVersion', 'unknown')}, {info.get('OperatingSystem', 'unknown system')}"
    checks = [Check("version", "ok", version)]
    if info.get("OSType") not in (None, "", "linux"):
        checks.append(
            Check("containers", "failed", f"it runs {info['OSType']} containers", "switch it to Linux containers")
        )
    if not info.get("PidsLimit", True) or not info.get("MemoryLimit", True):
        missing = "processes" if not info.get("PidsLimit", True) else "memory"
        checks.append(
            Check("limits", "warning", f"it cannot limit {missing}", "delegate the cgroup controllers to the engine")
        )
    checks.append(_disk(str(info.get("DockerRootDir", ""))))
    return checks


def _disk(root: str) -> Check:
    """Free space where the engine keeps images. An engine elsewhere keeps them where this host cannot look."""
    if not root or not Path(root).exists():
        return Check("disk", "ok", "the engine's disk is not on this machine, or not to be looked at by this user")
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:
        return Check("disk", "warning", f"free space under {root} is unknown: {error.strerror}", f"see `df -h {root}`")
    text = f"{free / 1000**3:.1f} GB free under {root}"
    todo = "free some: `sbx image prune`, `docker system prune`"
    if free < DISK_NEEDED:
        return Check("disk", "failed", text, todo)
    return Check("disk", "warning" if free < DISK_WANTED else "ok", text, todo if free < DISK_WANTED else "")


def _base(engine: Engine, images: Sequence[str]) -> Check:
    for image in images:
        try:
            engine.get(f"/images/{image}/json", doing=f"looking for {image}")
        except NotFoundError:
            continue
        return Check("base image", "ok", f"{image} is here")
    if os.geteuid() == 0 and shutil.which("debootstrap"):
        how = "the first build pulls it, or makes it with debootstrap where no registry answers"
        return Check("base image", "ok", f"{images[0]} is not here yet; {how}")
    return Check(
        "base image",
        "warning",
        f"{images[0]} is not here yet",
        f"the first build pulls it; where no registry answers: as root `apt-get install debootstrap`, "
        f"or `docker load` one made elsewhere ({images[0]})",
    )


def _model(urls: Sequence[str]) -> Check:
    reasons = []
    # No proxy: the model server is on this machine, or named by the user for this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in urls:
        if not url.startswith(("http://", "https://")):
            reasons.append(f"{url}: not an http URL")
            continue
        try:
            with opener.open(f"{url.rstrip('/')}/models", timeout=MODEL_TIMEOUT) as answer:
                return Check("model server", "ok", f"{url} answers with {answer.status}")
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (401, 403, 503):
                    # It is there; the key, or the patience, is the run's own matter.
                    return Check("model server", "ok", f"{url} answers with {error.code}")
                reasons.append(f"{url}: {error.code}")
        except (OSError, ValueError) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', error)}")
    return Check(
        "model server",
        "warning",
        "; ".join(reasons),
        "start it, name another in agent.yaml (baseUrl), or try `--demo`, which needs none",
    )
