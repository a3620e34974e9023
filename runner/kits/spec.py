"""What one `spec.yaml` says, typed, after its grammar was checked. Both schemas end here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.kits.arguments import Argument
from runner.kits.plan import Credential, InitFile, Install, Port, Startup, Volume


@dataclass(frozen=True)
class Build:
    """`sandbox.build`."""

    context: str = "."
    """Folder, relative to the kit's."""
    dockerfile: str = "Dockerfile"
    """File, relative to `context`."""
    args: tuple[tuple[str, str], ...] = ()
    target: str = ""


@dataclass(frozen=True)
class Sandbox:
    """The `sandbox` block; what is absent is inherited by `extends`, or a default."""

    image: str = ""
    build: Build | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    interactive: tuple[str, ...] | None = None
    """Tail of the command for a terminal; `None`: as `command`."""
    cpus: float | None = None
    memory: int | None = None
    """Bytes."""
    gpu: str = ""


@dataclass(frozen=True)
class Entry:
    """A text of a list or a variable's value, and where it stands (`FILE:LINE:COLUMN`)."""

    text: str
    place: str


@dataclass(frozen=True)
class Spec:
    schema: str
    kind: str
    """`sandbox` or `mixin`."""
    name: str
    version: str = ""
    display_name: str = ""
    description: str = ""
    source_url: str = ""
    licenses: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    extends: Entry | None = None
    mixins: tuple[Entry, ...] = ()
    requires_agent: Entry | None = None
    instructions_file: str = ""
    instructions: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    install_allow: tuple[str, ...] = ()
    install_deny: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    credentials: tuple[Credential, ...] = ()
    variables: Mapping[str, Entry] = field(default_factory=dict)
    install: tuple[Install, ...] = ()
    startup: tuple[Startup, ...] = ()
    files: tuple[InitFile, ...] = ()
    volumes: tuple[Volume, ...] = ()
    privileged: bool = False
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where an entry stands, by block and identity, such as `("credentials", "github")`; for clashes."""
