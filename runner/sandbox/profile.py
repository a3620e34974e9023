"""What a sandbox may do. One value: created from it, shown from it, checked against it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.errors import UsageError
from runner.sandbox.seccomp import profile as seccomp_profile

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID", "KILL", "SETPCAP")
"""What the entry needs to give the home to its owner and to take its other identities. It drops the first two for
good before anything of the user's runs; no tool and no hook ever has one."""

MASKED = (
    "/proc/acpi /proc/asound /proc/interrupts /proc/kallsyms /proc/kcore /proc/keys /proc/latency_stats"
    " /proc/sched_debug /proc/scsi /proc/timer_list /proc/timer_stats /sys/devices/virtual/powercap /sys/firmware"
    " /sys/fs/bpf /sys/kernel/debug /sys/kernel/security /sys/kernel/tracing"
).split()
"""What tells of the machine or of others on it, and no tool needs: empty in a sandbox."""
READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_UNITS = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}


def parse_size(text: str) -> int:
    """Bytes of `512m`, `4g`, `1GiB`, `1048576`. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"not a size: {text!r}", hint="for example 512m or 4g")
    return int(float(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True)
class Bind:
    """A folder of the host's in the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Volume:
    """A folder of the sandbox's own, given to U."""

    path: str
    tmpfs: bool = False
    """In memory, gone when the sandbox stops; else a volume of the engine's, kept and removed with the sandbox."""
    size: int = 0
    """Bytes, of a tmpfs; 0: as `/tmp`."""
    mode: int = 0o755


MODES = ("mount", "clone", "ro", "none")
"""How a sandbox gets its workspace: the folder itself, a private copy, the folder to read only, an empty folder."""
PRIVATE_MODES = ("clone", "none")
"""Those in which nothing of the host's is mounted."""


@dataclass(frozen=True)
class Relaxation:
    """A control that was loosened, and who asked for it."""

    control: str
    value: str
    by: str


@dataclass(frozen=True)
class Profile:
    """The controls of one sandbox."""

    cpus: float = 2.0
    memory: int = 4 * GIB
    """Bytes; swap is not given on top."""
    pids: int = 512
    tmp: int = 1 * GIB
    """Bytes of `/tmp`, and of `/var/tmp`; counts as memory."""
    inodes: int = 200_000
    """Files in each of them: an empty file costs the kernel a kilobyte."""
    shm: int = 64 * MIB
    """Bytes of `/dev/shm`; counts as memory."""
    home: int = 10 * GIB
    """Bytes that the home may hold, and the largest file anywhere. The engine's usual storage knows no quota for a
    volume, so the guest watches, and ends the run that is over."""
    home_files: int = 1_000_000
    """Files that the home may hold."""
    network: str = "none"
    """`none`, or `bridge`."""
    files: int = 4096
    """Most open files of one process; an engine cannot give more than it was started with, and few were with less."""
    runtime: str = ""
    """Name of an engine's runtime; empty for its default."""
    capabilities: tuple[str, ...] = ()
    """Further ones."""
    devices: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    volumes: tuple[Volume, ...] = ()
    workspace: str = "mount"
    """One of `MODES`."""
    guarded: tuple[Bind, ...] = ()
    """Parts of the workspace, mounted over themselves: so that they cannot be moved, and some to read only."""
    privileged: bool = False
    writable_root: bool = False
    relaxations: tuple[Relaxation, ...] = field(default=())

    def host_config(self) -> dict[str, Any]:
        """The engine's `HostConfig`, mounts of the workspace and the home aside."""
        config: dict[str, Any] = {
            "CapDrop": ["ALL"],
            "CapAdd": [*CAPABILITIES, *self.capabilities],
            "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
            "ReadonlyRootfs": not self.writable_root,
            "NetworkMode": self.network,
            "NanoCpus": int(self.cpus * 1e9),
            "Memory": self.memory,
            "MemorySwap": self.memory,
            "PidsLimit": self.pids,
            "OomScoreAdj": 200,
            "IpcMode": "private",
            "ShmSize": self.shm,
            "MaskedPaths": list(MASKED),
            "ReadonlyPaths": list(READ_ONLY),
            "Init": False,
            "LogConfig": {"Type": "none", "Config": {}},
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "fsize", "Soft": self.home, "Hard": self.home},
                {"Name": "nofile", "Soft": min(self.files, 1024), "Hard": self.files},
            ],
            "Tmpfs": {
                "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={self.tmp},nr_inodes={self.inodes}",  # noqa: S108 — the container's own
                "/run": "rw,noexec,nosuid,nodev,mode=755,size=16m",
                "/run/sbx": "rw,exec,nosuid,nodev,mode=755,size=128m",
                "/var/lib/extrausers": "rw,noexec,nosuid,nodev,mode=755,size=64k",
                "/var/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={self.tmp},nr_inodes={self.inodes}",  # noqa: S108
            },
        }
        for volume in self.volumes:
            if volume.tmpfs:
                size = volume.size or self.tmp
                options = f"rw,exec,nosuid,nodev,mode={volume.mode:o},size={size},nr_inodes={self.inodes}"
                config["Tmpfs"][volume.path] = options
        if self.network == "bridge":
            config["ExtraHosts"] = ["host.docker.internal:host-gateway"]
        if self.runtime:
            config["Runtime"] = self.runtime
        if self.devices:
            config["Devices"] = [_device(text) for text in self.devices]
        if self.privileged:
            config |= {"Privileged": True, "SecurityOpt": [], "MaskedPaths": [], "ReadonlyPaths": []}
        return config

    def digest(self) -> str:
        """Short name of everything that the container may do; who asked for it aside."""
        document = [
            self.host_config(),
            [[b.source, b.target, b.read_only] for b in (*self.binds, *self.guarded)],
            [self.workspace, [[v.path, v.mode] for v in self.volumes]],
        ]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]

    def table(self) -> list[tuple[str, str, str]]:
        """Each control, its value, and who asked for a relaxation (empty: nobody)."""
        asked = {relaxation.control: relaxation.by for relaxation in self.relaxations}
        rows = [
            ("privileged", "yes" if self.privileged else "no"),
            ("capabilities", " ".join([*CAPABILITIES, *self.capabilities]) + " (tools and hooks: none)"),
            ("privileges", "as the image has them" if self.privileged else "no-new-privileges"),
            ("system calls", "all" if self.privileged else "allow list without io_uring, keys, namespaces"),
            ("root filesystem", "writable" if self.writable_root else "read-only"),
            ("masked paths", "none" if self.privileged else masked(MASKED, READ_ONLY)),
            ("network", self.network),
            ("cpus", f"{self.cpus:g}"),
            ("memory", f"{self.memory // MIB} MiB, no swap"),
            ("processes", str(self.pids)),
            ("open files", f"{self.files} a process"),
            ("core dumps", "none"),
            (
                "temporary files",
                f"{self.tmp // MIB} MiB and {self.inodes} files, in memory, for /tmp and /var/tmp each",
            ),
            ("/dev/shm", f"{self.shm // MIB} MiB in memory"),  # noqa: S108 - the container's own
            ("home", f"at most {self.home // MIB} MiB, {self.home_files} files; more ends the run"),
            ("devices", "the host's" if self.privileged else " ".join(self.devices) or "none"),
            ("mounts", " ".join(f"{b.source}:{b.target}{':ro' if b.read_only else ''}" for b in self.binds) or "none"),
            ("volumes", " ".join(f"{v.path}{' (in memory)' if v.tmpfs else ''}" for v in self.volumes) or "none"),
            ("protected", " ".join(b.target for b in self.guarded if b.read_only) or "nothing"),
            ("runtime", self.runtime or "the engine's default"),
        ]
        return [(control, value, asked.get(control, "")) for control, value in rows]


def masked(hidden: Sequence[str], read_only: Sequence[str]) -> str:
    """How the table says which paths are."""
    if not hidden and not read_only:
        return "none"
    return f"{len(hidden)} empty, {len(read_only)} read-only, of /proc and /sys"


def _device(text: str) -> dict[str, str]:
    source, _, rest = text.partition(":")
    target, _, rights = rest.partition(":")
    return {"PathOnHost": source, "PathInContainer": target or source, "CgroupPermissions": rights or "rwm"}
