"""The plan: what a sandbox is to be, with every decision made and every entry knowing who asked for it.

Made by `runner.kits.compose`; read by `images` (what to build), `sandbox` (how to start), `gateway` (what may
leave) and `cli` (what to show). Immutable, and free of engine and host state, so that two machines with the same
kit make the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Base:
    """What the image starts from: a reference, or a build of the kit's own."""

    image: str = "debian:bookworm-slim"
    """Reference; `NAME@sha256:…` pins."""
    context: Path | None = None
    """Folder of `sandbox.build.context`, when the kit builds its own base."""
    dockerfile: str = "Dockerfile"
    """Relative to `context`."""
    args: tuple[tuple[str, str], ...] = ()
    target: str = ""
    digest: str = ""
    """Hex SHA-256 over all of the above, and over the files of `context`."""


@dataclass(frozen=True)
class Install:
    """One command of `setup.install`."""

    command: str
    user: str = "0"
    """`0`, `1000`, `agent` or a name; as written."""
    description: str = ""


@dataclass(frozen=True)
class CopiedFile:
    """One file under `files/home` or `files/workspace`, arguments already filled in."""

    path: str
    """Relative, `/`-separated, no `..`."""
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    """Target, when it is a symbolic link; it stays inside."""


@dataclass(frozen=True)
class Layer:
    """What one kit adds to the image. One layer group each, in merge order."""

    kit: str
    kind: str
    """`sandbox` or `mixin`."""
    digest: str
    """Hex SHA-256 over everything of this kit that shapes the image, arguments included."""
    install: tuple[Install, ...] = ()
    home: tuple[CopiedFile, ...] = ()
    install_network: tuple[Rule, ...] = ()
    """Hosts for the build of this layer only."""


@dataclass(frozen=True)
class Rule:
    """One entry of a network list, as written, and who wrote it."""

    text: str
    source: str


@dataclass(frozen=True)
class Network:
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    install_allow: tuple[Rule, ...] = ()
    install_deny: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Startup:
    """One entry of `setup.startup`, run at every start."""

    command: tuple[str, ...]
    user: str = "1000"
    background: bool = False
    description: str = ""
    source: str = ""


@dataclass(frozen=True)
class InitFile:
    """One entry of `setup.files`."""

    path: str
    content: str
    mode: int = 0o644
    only_if_missing: bool = False
    source: str = ""


@dataclass(frozen=True)
class Port:
    container: int
    protocol: str = "tcp"
    name: str = ""
    source: str = ""


@dataclass(frozen=True)
class Volume:
    path: str
    type: str = ""
    """Empty (a volume of the engine's) or `tmpfs`."""
    size: str = ""
    mode: str = ""
    source: str = ""


@dataclass(frozen=True)
class Inject:
    """Where a credential's value is set on requests."""

    domain: str
    header: str
    format: str = ""
    """Holds exactly one `%s`."""
    scheme: str = ""
    """`bearer` or `basic`, when there is no format."""
    username: str = ""


@dataclass(frozen=True)
class Credential:
    service: str
    source: str
    description: str = ""
    required: bool = False
    provider: str = ""
    variable: str = ""
    """`apiKey.name`: the variable that programs look for the value in."""
    env: tuple[str, ...] = ()
    """Variables that read `proxy-managed` in the container."""
    inject: tuple[Inject, ...] = ()
    oauth: dict[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Instruction:
    """`agentInstructions`: the file is written in the sandbox, the system prompt names it."""

    kit: str
    filename: str
    content: str


@dataclass(frozen=True)
class Resources:
    cpus: float = 2.0
    memory: int = 4 * 1024**3
    """Bytes."""
    gpu: str = ""


@dataclass(frozen=True)
class KitRef:
    """A kit that took part."""

    name: str
    kind: str
    digest: str
    path: str
    """Folder on the host, or the pinned reference."""
    arguments: tuple[tuple[str, str], ...] = ()
    """Name and value, sorted."""
    version: str = ""
    description: str = ""


@dataclass(frozen=True)
class Plan:
    """Everything about a sandbox that its kits decide."""

    name: str
    """The sandbox kit's name; the image is `sbx/NAME:HASH`."""
    base: Base
    layers: tuple[Layer, ...]
    kits: tuple[KitRef, ...] = ()
    network: Network = Network()
    environment: tuple[Variable, ...] = ()
    startup: tuple[Startup, ...] = ()
    files: tuple[InitFile, ...] = ()
    workspace: tuple[CopiedFile, ...] = ()
    """`files/workspace` of all kits."""
    ports: tuple[Port, ...] = ()
    volumes: tuple[Volume, ...] = ()
    credentials: tuple[Credential, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    resources: Resources = Resources()
    privileged: tuple[str, ...] = ()
    """Names of the kits that ask for `security.privileged`."""
    entrypoint: tuple[str, ...] = ()
    """Of the agent that a public kit was written for; only `sbx shell --entrypoint` starts it."""
    command: tuple[str, ...] = ()
    """What follows `entrypoint` without a terminal."""
    interactive: tuple[str, ...] = ()
    """What follows `entrypoint` on a terminal."""
    warnings: tuple[str, ...] = ()
    """Folded v1 blocks, clashes, keys left aside: each one line for the user."""
