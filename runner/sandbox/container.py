"""One sandbox: created hardened, attached to before it starts, removed or stopped when its session ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.engine import Engine
from runner.errors import (
    EngineError,
    EngineUnreachable,
    InUseError,
    NotFoundError,
    SbxError,
    UsageError,
    WorkspaceError,
)
from runner.sandbox import owner, podman
from runner.sandbox.attach import Attached, attach
from runner.sandbox.labels import LABEL_KEEP as LABEL_KEEP
from runner.sandbox.labels import LABEL_KIT as LABEL_KIT
from runner.sandbox.labels import LABEL_LAUNCH as LABEL_LAUNCH
from runner.sandbox.labels import LABEL_MODE as LABEL_MODE
from runner.sandbox.labels import LABEL_PLAN as LABEL_PLAN
from runner.sandbox.labels import LABEL_PROFILE as LABEL_PROFILE
from runner.sandbox.labels import LABEL_SANDBOX as LABEL_SANDBOX
from runner.sandbox.labels import LABEL_SESSION as LABEL_SESSION
from runner.sandbox.labels import LABEL_WORKSPACE as LABEL_WORKSPACE
from runner.sandbox.profile import PRIVATE_MODES, Bind, Profile

ENTRY = ["/usr/bin/python3", "-I", "-S", "-B", "/opt/sbx/lib/runner/guest/entry.py"]
"""PID 1: prepares the container as root, then gives that up and becomes the guest."""
HOME = "/home/agent"
PRIVATE_OWNER = 1000
"""U, uid and gid, where no folder of the host's tells who it is."""
SHUTDOWN_WITHIN = 10.0
"""Seconds that a guest gets to end by itself once it is asked to, before the container is killed."""

REMOVED_WITHIN = 30.0
"""Seconds for a removal that somebody else has begun."""


@dataclass(frozen=True)
class Order:
    """What a container is to be made of."""

    name: str
    """The sandbox's name; the container's is the same with `sbx-` before it."""
    session: str
    image: str
    """Id, so that nobody can put another image under the tag between the check and the start."""
    plan: str
    """The plan's tag, to find a kept sandbox again."""
    profile: Profile
    workspace: str
    """Folder on the host."""
    target: str
    """The same in the container."""
    keep: bool = False
    hostname: str = "sandbox"
    kit: str = ""
    launch: str = field(default_factory=lambda: secrets.token_hex(8), compare=False)
    """Random; nothing else in the engine bears it."""

    @property
    def private(self) -> bool:
        """Nothing of the host's is mounted as its workspace."""
        return self.profile.workspace in PRIVATE_MODES

    @property
    def volume_folders(self) -> list[str]:
        """Folders in the container that lie on the engine's disk and have no quota there."""
        found = [HOME, *(volume.path for volume in self.profile.volumes if not volume.tmpfs)]
        return [*found, self.target] if self.private else found

    @property
    def canary_folder(self) -> Path | None:
        """Where a file is laid that the guest must see; None where nothing of the host's is mounted."""
        return None if self.private else Path(self.workspace)


class Sandbox:
    """A container of ours. Make it with `create`, or over one that is idle.

    Args:
        held: its lock (`lock`), which is this object's from now on.
        locks: where the lock's file is, which goes with a throwaway sandbox.
    """

    def __init__(self, engine: Engine, container: str, order: Order, held: int, locks: Path | None = None) -> None:
        self._engine = engine
        self._locks = locks
        self.container = container
        self.order = order
        self.ended = False
        """The engine has done what `end` asked."""
        self._held = held

    @classmethod
    async def create(cls, engine: Engine, order: Order, locks: Path) -> Sandbox:
        """Makes the container; it is not started.

        Args:
            engine: where.
            order: of what.
            locks: folder of the lock files.

        Raises:
            InUseError: the name is taken.
            EngineError: the engine refuses.
        """
        held = lock(locks, order.name)
        making = asyncio.ensure_future(asyncio.to_thread(_create, engine, order))
        try:
            container = await asyncio.shield(making)
        except asyncio.CancelledError:
            # The engine is at it and cannot be called back: what it makes is removed as soon as it is there.
            try:
                made = cls(engine, await making, order, held, locks)
            except SbxError:
                os.close(held)
            else:
                with contextlib.suppress(SbxError):
                    await made.end(None)
            raise
        except BaseException:
            os.close(held)
            raise
        return cls(engine, container, order, held, locks)

    async def start(self, on_log: Callable[[bytes], None]) -> Attached:
        """Attaches, then starts; nothing that the guest says is lost."""
        attached = await attach(self._engine.endpoint, self._engine.version, self.container, on_log)
        try:
            await asyncio.to_thread(
                self._engine.request, "POST", f"/containers/{self.container}/start", doing="starting the sandbox"
            )
        except BaseException:
            attached.close()
            raise
        return attached

    async def end(self, attached: Attached | None) -> None:
        """Ends it for good when it is throwaway, else stops it. Never raises for what is already gone."""
        if attached:
            attached.close()
        try:
            await asyncio.to_thread(self._end)
            self.ended = True
            if self._locks and not self.order.keep:
                forget_lock(self._locks, self.order.name)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Another session may have it from now on. Idempotent."""
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def _end(self) -> None:
        with contextlib.suppress(NotFoundError):
            if self.order.keep:
                self._engine.request("POST", f"/containers/{self.container}/stop?t=2", doing="stopping the sandbox")
            else:
                remove(self._engine, self.container)
                for name in volume_names(self.order):
                    remove_volume(self._engine, name)

    async def state(self) -> dict[str, Any]:
        """The engine's `State`: `Running`, `OOMKilled`, `ExitCode`, `Error`. Empty when it is gone."""
        try:
            document = await asyncio.to_thread(
                self._engine.get, f"/containers/{self.container}/json", doing="asking what became of the sandbox"
            )
        except (NotFoundError, EngineError):
            return {}
        state: dict[str, Any] = document.get("State", {})
        return state


def volume_name(sandbox: str) -> str:
    """The engine's name of a sandbox's home volume."""
    return f"sbx-{sandbox}-home"


def workspace_volume(sandbox: str) -> str:
    """The engine's name of a sandbox's private workspace."""
    return f"sbx-{sandbox}-work"


def volume_names(order: Order) -> list[str]:
    """The engine's names of all volumes of a sandbox."""
    names = [volume_name(order.name)]
    names += [f"sbx-{order.name}-vol-{_short(volume.path)}" for volume in order.profile.volumes if not volume.tmpfs]
    return [*names, workspace_volume(order.name)] if order.private else names


def _short(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:12]


def remove_volumes(engine: Engine, sandbox: str) -> None:
    """Removes every volume that bears the sandbox's name as its label."""
    query = quote(json.dumps({"label": [f"{LABEL_SANDBOX}={sandbox}"]}))
    answer = engine.get(f"/volumes?filters={query}", doing="listing the sandbox's volumes", timeout=20.0)
    for volume in answer.get("Volumes") or ():
        remove_volume(engine, str(volume["Name"]))


def stop(engine: Engine, container: str, seconds: int) -> None:
    """Asks the container to end, and kills it after `seconds`. One that does not run is left as it is."""
    path = f"/containers/{container}/stop?t={seconds}"
    engine.request("POST", path, doing="stopping the sandbox", timeout=seconds + 30.0)


def remove(engine: Engine, container: str) -> None:
    """Kills and removes a container with its anonymous volumes. One that is being removed already is waited for."""
    try:
        engine.request("DELETE", f"/containers/{container}?force=1&v=1", doing="removing the sandbox")
    except EngineError as error:
        if "already in progress" not in error.message:
            raise
        with contextlib.suppress(NotFoundError):
            path = f"/containers/{container}/wait?condition=removed"
            engine.request("POST", path, doing="waiting for the sandbox to be removed", timeout=REMOVED_WITHIN)


def remove_volume(engine: Engine, name: str) -> None:
    """Removes a volume, when it is there."""
    with contextlib.suppress(NotFoundError):
        engine.request("DELETE", f"/volumes/{quote(name, safe='')}?force=1", doing="removing the sandbox's home")


def labels(order: Order) -> dict[str, str]:
    """What everything of this sandbox bears in the engine."""
    return {
        LABEL_SESSION: order.session,
        LABEL_SANDBOX: order.name,
        LABEL_PLAN: order.plan,
        LABEL_WORKSPACE: order.workspace,
        LABEL_KEEP: "1" if order.keep else "0",
        LABEL_KIT: order.kit,
        LABEL_MODE: order.profile.workspace,
        LABEL_PROFILE: order.profile.digest(),
        LABEL_LAUNCH: order.launch,
        owner.LABEL: owner.current().label(),
    }


def check_runtime(engine: Engine, name: str) -> None:
    """Sees to it that the engine has the runtime `name`; the empty name is its default.

    Raises:
        UsageError: it has not.
    """
    if not name:
        return
    known = sorted((engine.get("/info", doing="asking for the engine's runtimes") or {}).get("Runtimes") or ())
    if name not in known:
        raise UsageError(f"--runtime {name}: the engine has no such runtime", hint=f"it has: {', '.join(known)}")


def _create(engine: Engine, order: Order) -> str:
    check_runtime(engine, order.profile.runtime)
    host = order.profile.host_config()
    if engine.podman:
        host = podman.adapted(host)
    marked = labels(order)
    profile = order.profile
    if order.private:
        work = _volume(workspace_volume(order.name), order.target, marked)
    else:
        work = _bind(Bind(order.workspace, order.target, profile.workspace == "ro"))
    volumes = [
        _volume(f"sbx-{order.name}-vol-{_short(v.path)}", v.path, marked) for v in profile.volumes if not v.tmpfs
    ]
    guarded = () if order.private else profile.guarded
    host["Mounts"] = [
        _volume(volume_name(order.name), HOME, marked),
        work,
        *volumes,
        *map(_bind, guarded),
        *map(_bind, profile.binds),
    ]
    # What the entry does as root, before it gives that up.
    given = {
        "owner": [PRIVATE_OWNER, PRIVATE_OWNER] if order.private else None,
        "give": [[v.path, v.mode] for v in profile.volumes],
    }
    document = {
        "Image": order.image,
        "Entrypoint": ENTRY,
        "Cmd": [order.target, json.dumps(given)],
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": order.hostname,
        "Labels": marked,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": host,
    }
    name = quote(f"sbx-{order.name}", safe="")
    try:
        answer = engine.request("POST", f"/containers/create?name={name}", document, doing="creating the sandbox")
    except EngineError as error:
        if "is already in use" in error.message:
            raise InUseError(
                f"there is already a sandbox named {order.name}", hint="`sbx ls` lists them, `--name` takes another"
            ) from None
        # The engine makes the volume before it refuses the container.
        with contextlib.suppress(SbxError):
            for volume in volume_names(order):
                remove_volume(engine, volume)
        if "bind source path does not exist" in error.message and not order.private:
            raise WorkspaceError(
                f"the engine does not see the workspace {order.workspace}",
                place=order.workspace,
                hint="the engine runs elsewhere; --mode clone works on a copy",
            ) from None
        raise
    return str(answer["Id"])


def _bind(bind: Bind) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.target,
        "ReadOnly": bind.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _volume(name: str, target: str, marked: Mapping[str, str]) -> dict[str, Any]:
    return {"Type": "volume", "Source": name, "Target": target, "VolumeOptions": {"Labels": dict(marked)}}


def find(engine: Engine, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """Containers of ours that bear these labels, running or not, by name."""
    wanted = [f"{key}={value}" if value else key for key, value in {LABEL_SANDBOX: "", **filters}.items()]
    query = quote(json.dumps({"label": wanted}))
    containers = engine.get(f"/containers/json?all=1&filters={query}", doing="listing the sandboxes", timeout=20.0)
    return sorted(containers, key=lambda c: c["Names"])


def lock(folder: Path, name: str) -> int:
    """Holds the name for this process. One session at a time uses a sandbox.

    Raises:
        InUseError: another process holds it.
        NotFoundError: it is no name of a sandbox; a label can be anything.
    """
    if "/" in name or name in ("", ".", "..") or len(name) > 200:
        raise NotFoundError(f"{name!r} is no name of a sandbox")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.lock"
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise InUseError(
                f"the sandbox {name} is in use by another session", hint="`--new` makes one of its own"
            ) from None
        # Its last holder may have taken the file away between our open and our lock.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)


def forget_lock(folder: Path, name: str) -> None:
    """Takes the lock's file away. Only for whom holds it, when no sandbox of that name is left."""
    (folder / f"{name}.lock").unlink(missing_ok=True)


class Janitor:
    """The program that cleans up when this process dies. It is started before anything is made in the engine.

    Args:
        engine: where.
        label: `KEY=VALUE` that everything to be cleaned up bears.
    """

    def __init__(self, engine: Engine, label: str) -> None:
        at = engine.endpoint
        tls = at.tls and {"ca": at.tls.ca, "cert": at.tls.cert, "key": at.tls.key, "verify": at.tls.verify}
        order = {
            "engine": {"path": at.path, "host": at.host, "port": at.port, "tls": tls, "version": engine.version},
            "label": label,
        }
        script = Path(__file__).with_name("janitor.py")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnreachable(f"the janitor could not be started: {error}") from None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def done(self, *, clean: bool = True) -> None:
        """The host ends.

        Args:
            clean: there is nothing to do. Else something may be left, and the janitor removes it on its own time.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            if clean:
                self._process.stdin.write(b"done\n")
            self._process.stdin.close()
        if not clean:
            self._process.returncode = 0  # it lives on; nobody waits for it
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
