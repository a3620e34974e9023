"""A run as it was asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """A run as it was asked for."""

    sandbox: str
    workspace: Path | None = None
    demo: bool = False
    network: str = "none"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    resolve: Sequence[str] = ()
    learn: bool = False
    keep: bool = False
    new: bool = False
    name: str = ""
    grants: Sequence[str] = ()
    hooks: Sequence[str] = ()
    kits: Sequence[str] = ()
    kit_args: Sequence[str] = ()
    strict: bool = False
    model: str = ""
    base_url: str = ""
    yolo: bool | None = None
    max_tokens: int | None = None
    max_tool_calls: int | None = None
    cpus: float | None = None
    memory: str = ""
    pids: int | None = None
    runtime: str = ""
    mounts: Sequence[str] = ()
    devices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    publish: Sequence[str] = ()
    startup: bool = True
    mode: str = "mount"
    untracked: str = "normal"
    protect: Sequence[str] = ()
    git_config: str = "ro"
    quiet: bool = False
    dry_run: bool = False
    certificates: Sequence[Path] = ()
    no_cache: bool = False
    pull: bool = False
    interactive: bool = False
    resume: str | None = None
    existing: bool = False
    """`name` is that of a sandbox that must be there already."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further ones of the tools' environment."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def takes_up(self) -> bool:
        """An idle sandbox may be gone on with."""
        return self.existing or (self.keep and not self.new)


OF_THE_SANDBOX = (
    "network grants kits kit_args strict cpus memory pids runtime mounts devices capabilities certificates"
    " publish startup mode untracked protect git_config"
).split()
"""Options that belong to the container, and so to a kept sandbox as long as it lives."""
