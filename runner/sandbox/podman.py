"""What podman means otherwise when it is asked in Docker's words.

seccomp     a path of a file, where Docker takes the profile itself
tmpfs       no `nr_inodes`; the size bounds what the files hold
ulimits     it always sets one for processes, 1048576, which an engine under narrower limits may not; so a high
            one that it may is named. How many processes a sandbox has is the cgroup's business.
"""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROCESSES = 32768
"""What the kernel counts processes up to by default, and what podman gives itself: nobody comes near it."""
NOT_KNOWN = ("nr_inodes=",)
"""Options of a tmpfs that podman refuses."""


def adapted(host: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """A `HostConfig` that podman takes and that closes the same."""
    options = [_option(text, environ) for text in host.get("SecurityOpt") or ()]
    tmpfs = {
        path: ",".join(option for option in text.split(",") if not option.startswith(NOT_KNOWN))
        for path, text in (host.get("Tmpfs") or {}).items()
    }
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if processes in (resource.RLIM_INFINITY, -1) or processes > PROCESSES:
        processes = PROCESSES
    ulimits = [*(host.get("Ulimits") or ()), {"Name": "nproc", "Soft": processes, "Hard": processes}]
    return {**host, "SecurityOpt": options, "Tmpfs": tmpfs, "Ulimits": ulimits}


def _option(text: str, environ: Mapping[str, str]) -> str:
    name, _, value = text.partition("=")
    return f"seccomp={_file(value, environ)}" if name == "seccomp" and value.startswith("{") else text


def _file(profile: str, environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    path = Path(cache) / "sbx" / f"seccomp-{hashlib.sha256(profile.encode()).hexdigest()[:16]}.json"
    try:
        if path.read_text() == profile:
            return path
    except OSError:
        pass
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(profile)
    aside.replace(path)
    return path
