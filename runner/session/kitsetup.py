"""What a plan does at its sandbox's start, made ready for the guest: a message, and a tar of all that is long."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import ConfigError
from runner.kits.plan import Plan
from runner.wire import setup as wire
from runner.wire.agent import Hook

HOOKS_FILE = "hooks.yaml"
MAX_CONTENTS = 64 * 1024 * 1024
"""Most bytes of all of it; it is laid in memory in the sandbox."""


@dataclass(frozen=True)
class KitFolder:
    """A kit that brings hooks, and so its own files, into the sandbox."""

    name: str
    folder: Path


@dataclass(frozen=True)
class Prepared:
    """A setup and the tar that goes with it."""

    setup: wire.KitSetup = field(default_factory=wire.KitSetup)
    contents: bytes = b""


def config_dir(kit: str) -> str:
    """Where a kit's own files lie in the sandbox."""
    return f"/run/sbx/{wire.KITS}/{kit}"


def kit_hooks(folders: Sequence[KitFolder]) -> tuple[Hook, ...]:
    """The hooks of the kits' `hooks.yaml`, in the order of the kits.

    Raises:
        ConfigError: one is wrong.
    """
    from runner.kits.hooks import load_hooks

    return tuple(
        hook
        for kit in folders
        for hook in load_hooks(kit.folder / HOOKS_FILE, kit=kit.name, config_dir=config_dir(kit.name))
    )


def prepare(
    plan: Plan, *, workspace: str, folders: Sequence[KitFolder] = (), startup: bool = True, read_only: bool = False
) -> Prepared:
    """The plan's setup.

    Args:
        workspace: its path in the container, for `${WORKDIR}`.
        folders: kits whose files go along.
        startup: whether startup commands run.
        read_only: the workspace cannot be written.

    Raises:
        ConfigError: it is over `MAX_CONTENTS`, or a kit's folder cannot be packed.
    """
    archive = _Archive()
    files = []
    for file in plan.files:
        content = archive.content(file.content.replace("${WORKDIR}", workspace).encode("utf-8", "surrogateescape"))
        path = file.path.replace("${WORKDIR}", workspace)
        files.append(wire.SetupFile(path, content, file.mode, file.only_if_missing, file.source))
    copied = [
        wire.WorkspaceFile(f.path, "" if f.link else archive.content(f.content), f.mode, f.link) for f in plan.workspace
    ]
    instructions = []
    for instruction in plan.instructions:
        path = f"{wire.INSTRUCTIONS}/{instruction.kit}/{instruction.filename}"
        archive.add(path, instruction.content.encode("utf-8", "surrogateescape"), 0o644)
        instructions.append(wire.Instruction(instruction.kit, path, instruction.content))
    for kit in folders:
        archive.kit(kit)
    return Prepared(
        wire.KitSetup(
            startup=tuple(wire.Startup(e.command, e.user, e.background, e.source) for e in plan.startup)
            if startup
            else (),
            files=tuple(files),
            workspace=tuple(copied),
            instructions=tuple(instructions),
            read_only=read_only,
        ),
        archive.done(),
    )


class _Archive:
    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._out, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `done` closes
        self._contents = 0
        self._members = 0

    def add(self, name: str, data: bytes, mode: int) -> None:
        if self._out.tell() + len(data) > MAX_CONTENTS:
            raise ConfigError(f"what the kits lay in the sandbox at start is over {MAX_CONTENTS // 1024**2} MiB")
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), mode
        self._tar.addfile(member, io.BytesIO(data))
        self._members += 1

    def content(self, data: bytes) -> str:
        """Adds a numbered content. Returns its name."""
        name = str(self._contents)
        self._contents += 1
        self.add(f"{wire.CONTENTS}/{name}", data, 0o644)
        return name

    def kit(self, kit: KitFolder) -> None:
        """Adds a kit's own files, as the agent's are taken along."""
        from runner.session.session import snapshot

        with tarfile.open(fileobj=io.BytesIO(snapshot(kit.folder)), mode="r:") as source:
            for member in source:
                content = source.extractfile(member)
                self.add(f"{wire.KITS}/{kit.name}/{member.name}", content.read() if content else b"", member.mode)

    def done(self) -> bytes:
        self._tar.close()
        return self._out.getvalue() if self._members else b""
