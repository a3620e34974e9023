"""Real processes under real identities, started by the guest's own spawner. Needs root, and no engine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runner.guest.hooks import HookChain, ToolCall
from runner.guest.spawn import server
from runner.guest.spawn.command import HOOK, Identity
from runner.guest.spawn.spawner import Spawner
from runner.kits.hooks import default_user
from runner.wire.agent import Hook

OWNER = Identity(1000, 1000, "agent")


@dataclass
class Bench:
    """A workspace, a configuration folder, and chains over them."""

    root: Path
    spawner: Spawner
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    chains: list[HookChain] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def hook_events(self) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == "hook"]

    @property
    def verdicts(self) -> list[str]:
        return [data["verdict"] for data in self.hook_events]

    def hook(self, event: str, command: str, **keys: Any) -> Hook:
        keys.setdefault("name", f"h{len(self.chains)}")
        keys.setdefault("user", default_user(event, persistent=keys.get("persistent", False)))
        return Hook(event, command, **keys)

    def chain(self, *hooks: Hook) -> HookChain:
        made = HookChain(
            [Hook(**{**h.__dict__, "name": f"{h.name}-{i}"}) if len(hooks) > 1 else h for i, h in enumerate(hooks)],
            self.spawner,
            workspace=str(self.workspace),
            config_dir=str(self.config),
            hooks_dir=str(self.root / "hooks"),
            owner=OWNER,
            emit=lambda name, data: self.events.append((name, data)),
            session="s1",
            model="m1",
            home=str(self.root / "empty"),
            guard_tmp=str(self.root / "guard-tmp"),
        )
        self.chains.append(made)
        return made

    def one(self, event: str, command: str, **keys: Any) -> HookChain:
        """A chain of one hook."""
        return self.chain(self.hook(event, command, **keys))

    def seen(self) -> dict[str, Any]:
        """What a hook wrote to `seen.json` in the guard's own folder or the workspace."""
        for folder in (self.root / "guard-tmp", self.workspace):
            if (file := folder / "seen.json").exists():
                return json.loads(file.read_bytes())
        raise AssertionError("no hook wrote seen.json")

    def script(self, name: str, text: str, mode: int = 0o755) -> Path:
        """A file beside `agent.yaml`."""
        file = self.config / name
        file.write_text(text)
        file.chmod(mode)
        return file


@pytest.fixture
def root() -> Iterator[Path]:
    """Not pytest's own folder: that one is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="sbx-hooks-"))
    folder.chmod(0o755)
    for name, mode, uid in (
        ("workspace", 0o755, OWNER.uid),
        ("config", 0o755, 0),
        ("hooks", 0o755, 0),
        ("empty", 0o555, 0),
        ("guard-tmp", 0o700, HOOK.uid),
    ):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
        os.chown(folder / name, uid, uid)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(*server.launch())
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(root: Path, spawner: Spawner) -> AsyncIterator[Bench]:
    made = Bench(root, spawner)
    yield made
    for chain in made.chains:
        await chain.close()


@pytest.fixture
def call() -> Callable[..., ToolCall]:
    def make(name: str = "bash", *, id: str = "c1", **given: Any) -> ToolCall:
        return ToolCall(id, name, given or {"command": "ls"})

    return make
