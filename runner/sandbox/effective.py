"""What a container may really do: read back from the engine, beside what a default sandbox may.

Not what was asked for: an engine, a wrapper around it or a hand may have changed it since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.engine import Engine
from runner.sandbox.container import HOME, LABEL_MODE, LABEL_WORKSPACE
from runner.sandbox.profile import CAPABILITIES, GIB, MODES, PRIVATE_MODES, Bind, Profile, Volume, masked
from runner.sandbox.seccomp import profile as seccomp_profile


@dataclass(frozen=True)
class Control:
    """One line of the effective profile."""

    name: str
    value: str
    default: str

    @property
    def differs(self) -> bool:
        return self.value != self.default


@dataclass(frozen=True)
class Effective:
    """A container as the engine describes it."""

    controls: tuple[Control, ...]
    state: str
    started: str
    exit_code: int
    image_id: str
    target: str
    """The workspace's path in the container."""
    document: dict[str, Any]
    """The engine's own answer."""


def effective(engine: Engine, container: str) -> Effective:
    """Asks the engine.

    Raises:
        NotFoundError: the container is gone.
        EngineError: the engine does not answer in time, or fails.
    """
    document = engine.get(f"/containers/{container}/json", doing="inspecting the sandbox", timeout=10.0)
    state, config = document.get("State") or {}, document.get("Config") or {}
    command = config.get("Cmd") or [""]
    return Effective(
        controls=tuple(controls(document)),
        state=str(state.get("Status", "")),
        started=str(state.get("StartedAt", "")),
        exit_code=int(state.get("ExitCode") or 0),
        image_id=str(document.get("Image", "")),
        target=str(command[0]),
        document=document,
    )


def mode_of(document: dict[str, Any]) -> str:
    """How a container has its workspace: one of `profile.MODES`."""
    labels = (document.get("Config") or {}).get("Labels") or {}
    mode = str(labels.get(LABEL_MODE) or "mount")
    return mode if mode in MODES else "mount"


def controls(document: dict[str, Any]) -> list[Control]:
    """The controls of a container, from the engine's description of it."""
    host = document.get("HostConfig") or {}
    workspace = ((document.get("Config") or {}).get("Labels") or {}).get(LABEL_WORKSPACE, "")
    found = {name: value for name, value, _ in _profile(host, workspace).table()}
    default = {name: value for name, value, _ in Profile().table()}
    options = list(host.get("SecurityOpt") or ())
    dropped = {str(c).upper() for c in host.get("CapDrop") or ()}
    if "ALL" not in dropped:
        found["capabilities"] = f"the engine's default and {found['capabilities']}"
    if "no-new-privileges" not in options and "no-new-privileges:true" not in options:
        found["privileges"] = "a program may gain some (setuid)"
    filters = [o.removeprefix("seccomp=") for o in options if o.startswith("seccomp=")]
    if filters != [seccomp_profile()]:
        found["system calls"] = "all" if "unconfined" in filters or not filters else "another profile"
    found["masked paths"] = masked(host.get("MaskedPaths") or (), host.get("ReadonlyPaths") or ())
    found["core dumps"] = "none" if _ulimit(host, "core") == 0 else "as the engine allows"
    more = [
        ("swap", _swap(host), "none"),
        ("user", str((document.get("Config") or {}).get("User") or "the image's"), "0:0"),
        ("process ids", str(host.get("PidMode") or "own"), "own"),
        ("shared memory", str(host.get("IpcMode") or "the engine's default"), "private"),
        ("published ports", " ".join(sorted(host.get("PortBindings") or {})) or "none", "none"),
        ("workspace", _workspace(host, workspace, mode_of(document)), "writable"),
    ]
    return [*(Control(n, v, default[n]) for n, v in found.items()), *(Control(*row) for row in more)]


def _profile(host: dict[str, Any], workspace: str) -> Profile:
    binds = [
        Bind(str(m.get("Source")), str(m.get("Target")), bool(m.get("ReadOnly")))
        for m in host.get("Mounts") or ()
        if m.get("Type") == "bind" and not _within(m, workspace)
    ]
    guarded = [
        Bind(str(m["Source"]), str(m.get("Target")), bool(m.get("ReadOnly")))
        for m in host.get("Mounts") or ()
        if m.get("Type") == "bind" and _within(m, workspace) and m.get("Source") != workspace
    ]
    volumes = [
        Volume(str(m.get("Target")))
        for m in host.get("Mounts") or ()
        if m.get("Type") == "volume" and "-vol-" in str(m.get("Source"))
    ]
    for text in host.get("Binds") or ():
        source, _, rest = str(text).partition(":")
        binds.append(Bind(source, rest.partition(":")[0], rest.endswith(":ro")))
    added = [str(c).upper().removeprefix("CAP_") for c in host.get("CapAdd") or ()]
    devices = [f"{d.get('PathOnHost')}:{d.get('PathInContainer')}" for d in host.get("Devices") or ()]
    return Profile(
        cpus=(host.get("NanoCpus") or 0) / 1e9,
        memory=int(host.get("Memory") or 0),
        pids=int(host.get("PidsLimit") or 0),
        tmp=_tmp(host, "size"),
        inodes=_tmp(host, "nr_inodes"),
        files=_ulimit(host, "nofile"),
        home=_ulimit(host, "fsize"),
        shm=int(host.get("ShmSize") or 0),
        network=str(host.get("NetworkMode") or ""),
        runtime="" if host.get("Runtime") in ("", "runc", None) else str(host["Runtime"]),
        capabilities=tuple(c for c in added if c not in CAPABILITIES),
        devices=tuple(devices),
        binds=tuple(binds),
        guarded=tuple(guarded),
        volumes=tuple(volumes),
        privileged=bool(host.get("Privileged")),
        writable_root=not host.get("ReadonlyRootfs"),
    )


def _within(mount: dict[str, Any], workspace: str) -> bool:
    """It is the workspace, or a part of it mounted over itself."""
    source = str(mount.get("Source"))
    return bool(workspace) and (source == workspace or source.startswith(workspace.rstrip("/") + "/"))


def _tmp(host: dict[str, Any], option: str) -> int:
    options = str((host.get("Tmpfs") or {}).get("/tmp", "")).split(",")  # noqa: S108 - the container's own
    value = next((o.removeprefix(f"{option}=") for o in options if o.startswith(f"{option}=")), "")
    return int(value) if value.isdecimal() else 0


def _ulimit(host: dict[str, Any], name: str) -> int:
    """The hard limit; -1 where there is none."""
    return next((int(u.get("Hard", -1)) for u in host.get("Ulimits") or () if u.get("Name") == name), -1)


def _swap(host: dict[str, Any]) -> str:
    memory, both = int(host.get("Memory") or 0), int(host.get("MemorySwap") or 0)
    if both == memory and memory:
        return "none"
    return "without limit" if both <= 0 else f"{(both - memory) / GIB:.1f} GiB"


def _workspace(host: dict[str, Any], workspace: str, mode: str) -> str:
    if mode in PRIVATE_MODES:
        return "a private copy" if mode == "clone" else "empty, private"
    for mount in host.get("Mounts") or ():
        if mount.get("Source") == workspace and mount.get("Target") != HOME:
            return "read-only" if mount.get("ReadOnly") else "writable"
    return "not mounted"
