"""What a kit's plan does when its sandbox starts, as the guest is told it. What is long travels beside it, in a tar."""

from __future__ import annotations

from dataclasses import dataclass

KITS = "kits"
"""Folder of the mixins' own files under `/run/sbx`, one folder a kit."""
INSTRUCTIONS = "instructions"
"""Folder of `agentInstructions` under `/run/sbx`, one folder a kit."""
CONTENTS = "setup"
"""Folder under `/run/sbx` of the contents of `setup.files` and `files/workspace`, one numbered file each."""
FOLDERS = (KITS, INSTRUCTIONS, CONTENTS)


@dataclass(frozen=True)
class Startup:
    """One command of `setup.startup`."""

    argv: tuple[str, ...]
    user: str = "1000"
    """`1000` and `agent` mean U; `0` and `root` uid 0 without capabilities; else a user of the image."""
    background: bool = False
    source: str = ""


@dataclass(frozen=True)
class SetupFile:
    """One entry of `setup.files`."""

    path: str
    content: str
    """Name in `CONTENTS`."""
    mode: int = 0o644
    only_if_missing: bool = False
    source: str = ""


@dataclass(frozen=True)
class WorkspaceFile:
    """One file of `files/workspace`; one that the user has stays."""

    path: str
    """Relative to the workspace."""
    content: str = ""
    """Name in `CONTENTS`."""
    mode: int = 0o644
    link: str = ""


@dataclass(frozen=True)
class Instruction:
    """One kit's `agentInstructions`."""

    kit: str
    path: str
    """Under `/run/sbx`."""
    content: str


@dataclass(frozen=True)
class KitSetup:
    """All of it. `contents` is the channel of the tar (0: none)."""

    contents: int = 0
    startup: tuple[Startup, ...] = ()
    files: tuple[SetupFile, ...] = ()
    workspace: tuple[WorkspaceFile, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    clone: int = 0
    """Channel of a tar that is unpacked into the private workspace first (0: none)."""
    read_only: bool = False
    """The workspace cannot be written."""
