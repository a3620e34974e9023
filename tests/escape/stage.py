"""The sandboxes that attacks run in: one with every control on, and for each control one without it.

What is switched off is either a value of the profile or one line of the guest's program: then a changed copy of the
program is mounted over the image's. Nothing of the product knows of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import launch
from runner.engine import Engine, connect
from runner.gateway.model import ModelRelay
from runner.images.events import ignore
from runner.sandbox.container import LABEL_SESSION, Janitor, Order, Sandbox
from runner.sandbox.profile import GIB, MIB, Bind, Profile
from runner.scripted.answers import Answer, Say
from runner.scripted.request import Call, Request
from runner.scripted.server import ScriptedServer
from runner.session.record import Record
from runner.session.session import Session, Setup, snapshot
from runner.session.state import Folders
from runner.wire.agent import Agent, Hook
from runner.wire.messages import Event
from tests.escape.attack import HARDENED, HARDENED_ROOT, PRELUDE

REPO = Path(__file__).resolve().parents[2]
SECONDS = 60.0
"""Longest time of one attack."""
OUTPUT = 256 * 1024

SMALL = Profile(memory=384 * MIB, pids=160, tmp=32 * MIB, inodes=10_000, home=256 * MIB, files=1024)
"""The default profile with numbers that are quickly reached."""

Patch = tuple[str, str, str]
"""A file below `runner/`, what stands there once, and what is to stand there."""

IDENTITY: tuple[Patch, ...] = (
    ("guest/entry.py", "    _become(GUEST_UID)\n", ""),
    ("guest/entry.py", "set_dumpable(owner.uid == 0)", "set_dumpable(True)"),
    ("guest/spawn/child.py", '        drop(order["uid"], order["gid"])\n', ""),
    ("guest/spawn/child.py", "        privileges.drop_from_bounding_set(bounding)\n", ""),
)
"""The tool is what the guest is, which is what the container started as."""

NEW_PRIVILEGES: tuple[Patch, ...] = (
    ("guest/entry.py", "    privileges.forbid_new_privileges()\n", ""),
    ("guest/spawn/child.py", "    privileges.forbid_new_privileges()\n", ""),
)
CORES: tuple[Patch, ...] = (("guest/spawn/child.py", "        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n", ""),)
ENDING: tuple[Patch, ...] = (
    ("guest/spawn/tree.py", "    done = Ended()\n    frozen", "    return Ended()\n    frozen"),
)
"""What a call leaves is not ended."""
GUARDS_HOME: tuple[Patch, ...] = (
    ("guest/hooks/process.py", '"HOME": self.home,', '"HOME": "/home/agent",'),
    ("guest/hooks/process.py", '            "PYTHONNOUSERSITE": "1",\n', ""),
    ("guest/hooks/process.py", 'SYSTEM_PATH = "', 'SYSTEM_PATH = "/home/agent/bin:'),
    ("guest/hooks/process.py", 'environment["PYTHONSAFEPATH"] = "1"', "pass"),
)
"""Hooks have the tool's home, its search path, and Python's usual ways to find a module."""
DIRECT_MODEL: tuple[Patch, ...] = (
    (
        "guest/model/transport.py",
        "direct = self._has_network and not is_loopback(request.url.host)",
        "direct = True",
    ),
)
"""The guest connects to the model itself, as if its port were in the container."""


@dataclass(frozen=True)
class Loosened(Profile):
    """A profile with keys of the engine's own put over it."""

    over: Mapping[str, Any] = field(default_factory=dict)

    def host_config(self) -> dict[str, Any]:
        return {**super().host_config(), **self.over}


@dataclass(frozen=True)
class Variant:
    """One sandbox."""

    profile: Profile = SMALL
    patches: tuple[Patch, ...] = ()
    owner: int = 1000
    joined: bool = False
    """It shares the network of the helper, which has one."""
    guards: str = "hook"
    """Whom the guards run as."""
    guard_file: str = '"$MM_CONFIG_DIR/guard.py"'
    environment: Mapping[str, str] = field(default_factory=dict)
    engine_socket: bool = False


def _seccomp_off(**over: Any) -> Loosened:
    return Loosened(**{**SMALL.__dict__, "over": {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"], **over}})


_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE"
    " NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN"
    " SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP"
    " MAC_OVERRIDE MAC_ADMIN SYSLOG"
).split()


def _held_here() -> list[str]:
    """Every capability that an engine on this machine can give."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("CapBnd"))
    held = int(line.split()[1], 16)
    return [name for bit, name in enumerate(_CAPABILITIES) if held >> bit & 1]


VARIANTS: dict[str, Variant] = {
    HARDENED: Variant(),
    HARDENED_ROOT: Variant(owner=0),
    "seccomp": Variant(_seccomp_off()),
    "identity": Variant(patches=IDENTITY),
    "privileges": Variant(
        Loosened(**{**SMALL.__dict__, "over": {"SecurityOpt": []}}),
        patches=NEW_PRIVILEGES,
    ),
    # Not `privileged`: an engine that itself runs in a container often lacks a capability, and then cannot.
    "all": Variant(
        Loosened(
            **{
                **SMALL.__dict__,
                "writable_root": True,
                "over": {
                    "CapAdd": _held_here(),
                    "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"],
                    "MaskedPaths": [],
                    "ReadonlyPaths": [],
                    "Devices": [{"PathOnHost": "/dev/kmsg", "PathInContainer": "/dev/kmsg", "CgroupPermissions": "r"}],
                    "DeviceCgroupRules": ["b *:* rwm"],
                    "CgroupnsMode": "host",
                },
            }
        ),
        patches=IDENTITY,
    ),
    "ending": Variant(patches=ENDING),
    "network": Variant(Loosened(**SMALL.__dict__), joined=True),
    "host network": Variant(Loosened(**{**SMALL.__dict__, "over": {"NetworkMode": "host"}})),
    "limits": Variant(
        Loosened(
            **{
                **SMALL.__dict__,
                **{"memory": 2 * GIB, "pids": 2000, "tmp": 512 * MIB, "home": 512 * MIB, "inodes": 1_000_000},
                "over": {
                    "Ulimits": [
                        {"Name": "core", "Soft": 0, "Hard": 1 << 20},
                        {"Name": "nofile", "Soft": 1024, "Hard": 4096},
                    ]
                },
            }
        ),
        patches=CORES,
    ),
    "large /dev/shm": Variant(Loosened(**{**SMALL.__dict__, "over": {"ShmSize": 256 * MIB}})),
    "secrets": Variant(environment={"LEAKED": "canary-of-the-host"}),
    "mounts": Variant(engine_socket=True, owner=0),
    "guards as U": Variant(guards="owner"),
    "guards at home": Variant(patches=GUARDS_HOME),
    "guard in the workspace": Variant(guard_file="kit/guard.py"),
    "direct model": Variant(patches=DIRECT_MODEL),
}

HELPER = """
import ctypes, fcntl, os, socket, struct, threading
def add4(name, address, mask):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for code, value in ((0x8916, address), (0x891C, mask)):
        fcntl.ioctl(s, code, struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(value)))
    flags = struct.unpack("16sh14x", fcntl.ioctl(s, 0x8913, struct.pack("16s16x", name)))[1]
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", name, flags | 1))
def add6(address):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    fcntl.ioctl(s, 0x8916, socket.inet_pton(socket.AF_INET6, address) + struct.pack("Ii", 128, 1))
add4(b"lo:1", "169.254.169.254", "255.255.255.255")
add6("fd00:5b::1")
def listening(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 80)); s.listen(16)
    return s
def web(s):
    while True:
        c, _ = s.accept()
        c.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nout"); c.close()
def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 53))
    while True:
        q, who = s.recvfrom(2000)
        kind = q[-4:-2]
        answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4\\x0a\\1\\2\\3" if kind == b"\\0\\1" else b""
        s.sendto(q[:2] + b"\\x81\\x80\\0\\1" + (b"\\0\\1" if answer else b"\\0\\0") + b"\\0" * 4 + q[12:] + answer, who)
for f, a in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "fd00:5b::1")):
    threading.Thread(target=web, args=(listening(f, a),)).start()
threading.Thread(target=names).start()
print("up", flush=True)
"""

GUARD = """
import json, sys
if "FORBID-FILE" in json.dumps(json.load(sys.stdin)):
    print("forbidden", file=sys.stderr)
    sys.exit(2)
"""
GUARD_INLINE = (
    'python3 -c \'import json, sys; sys.exit(2 if "FORBID-" "INLINE" in json.dumps(json.load(sys.stdin)) else 0)\''
)
GUARD_RC = 'if [ -r "$HOME/.guardrc" ]; then . "$HOME/.guardrc"; fi; if grep -q FORBID-RC; then exit 2; fi'
GUARD_WAITS = (
    "python3 -u -c 'import sys\n"
    'for line in sys.stdin: print("{\\"permission\\":\\"deny\\"}" if "FORBID-" "WAITS" in line else "{}")\' waits'
)


def answer(request: Request) -> Answer:
    """The model: the question is the list of its calls, one a round."""
    steps = json.loads(request.question)
    if request.round > len(steps):
        return Say(text="done")
    step = steps[request.round - 1]
    if isinstance(step, str):
        return Say(text=step)
    return Say(calls=[Call(step.pop("tool", "bash"), step)])


class Box:
    """A running sandbox with a guest that takes orders."""

    def __init__(self, stage: Stage, name: str, variant: Variant) -> None:
        self._stage = stage
        self.name = name
        self.variant = variant
        self.workspace = stage.root / "".join(c if c.isalnum() else "-" for c in name)
        self.session: Session | None = None

    async def open(self) -> None:
        stage, variant = self._stage, self.variant
        kit = self.workspace / "kit"
        kit.mkdir(parents=True)
        (kit / "guard.py").write_text(GUARD)
        setuid = self.workspace / "setuid-id"
        shutil.copy("/usr/bin/id", setuid)
        for path in (self.workspace, kit, kit / "guard.py"):
            os.chown(path, variant.owner, variant.owner)
        setuid.chmod(0o4755)
        profile = variant.profile
        binds = [*profile.binds]
        if variant.patches:
            binds.append(Bind(str(stage.program(self.name, variant.patches)), "/opt/sbx/lib/runner", read_only=True))
        if variant.engine_socket:
            binds += [
                Bind(stage.engine.endpoint.path, "/var/run/docker.sock"),
                Bind(str(stage.root / "outside"), str(stage.root / "outside")),
            ]
        changed = {**profile.__dict__, "binds": tuple(binds)}
        if variant.joined:
            changed["over"] = {"NetworkMode": f"container:{stage.helper()}"}
        order = Order(
            name=f"escape-{os.getpid()}-{len(stage.boxes)}",
            session=stage.label,
            image=stage.image,
            plan="escape",
            profile=type(profile)(**changed),
            workspace=str(self.workspace),
            target=str(self.workspace),
            hostname="" if variant.joined or "host" in self.name else "sandbox",
        )
        agent = Agent(
            "demo",
            "scripted",
            (stage.model.url,),
            tools=("bash", "jobs", "output", "stop", "read"),
            hooks=tuple(
                Hook("preToolCall", command, name, on_error="fail", user=variant.guards, persistent=persistent)
                for name, command, persistent in (
                    ("file", f"python3 {variant.guard_file}", False),
                    ("inline", GUARD_INLINE, False),
                    ("rc", GUARD_RC, False),
                    ("waits", GUARD_WAITS, True),
                )
            ),
        )
        record = Record.create(stage.folders, redact=lambda text: text)
        sandbox = await Sandbox.create(stage.engine, order, stage.root / "locks")
        setup = Setup(agent, snapshot(kit), dict(variant.environment), network="none")
        self.session = Session(sandbox, setup, record, ModelRelay(agent.urls))
        await self.session.__aenter__()

    async def close(self) -> None:
        if self.session:
            await self.session.close()
            self.session.record.close()

    def run(self, script: str) -> str:
        """A script as the tool: what it printed."""
        facts = {**self._stage.facts, "workspace": str(self.workspace)}

        async def work() -> str:
            assert self.session
            argv = ["env", f"FACTS={json.dumps(facts)}", "python3", "-I", "-c", PRELUDE + script]
            ended = await self.session.run(argv, seconds=SECONDS, limit=OUTPUT)
            text = (ended.stdout + ended.stderr).decode("utf-8", "replace")
            return text if text.strip() else f"ended: {ended.code} {ended.signal} {ended.error}"

        return self._stage.do(work())

    def start(self, script: str) -> Any:
        """A script as the tool that goes on beside what follows; call what is returned to wait for its end."""

        async def begin() -> Any:
            assert self.session
            facts = json.dumps({**self._stage.facts, "workspace": str(self.workspace)})
            argv = ["env", f"FACTS={facts}", "python3", "-I", "-c", PRELUDE + script]
            return self.session.exec(argv, timeout=SECONDS)[1]

        async def end(future: Any) -> None:
            await future

        future = self._stage.do(begin())
        return lambda: self._stage.do(end(future))

    def ask(self, steps: Sequence[Mapping[str, Any] | str]) -> list[Event]:
        """A turn in which the model makes these calls."""

        async def work() -> list[Event]:
            assert self.session
            return [event async for event in self.session.ask(json.dumps(list(steps)))]

        return self._stage.do(work())


class Stage:
    """All boxes, made when they are first needed. Use as a context manager."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sbx-escape-"))
        self.root.chmod(0o755)
        self.label = f"escape-{os.getpid()}"
        self.boxes: dict[str, Box] = {}
        self.engine: Engine = connect()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = contextlib.ExitStack()
        self._helper = ""
        self._network = ""

    def __enter__(self) -> Stage:
        self._thread.start()
        try:
            self._set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _set_up(self) -> None:
        self._janitor = Janitor(self.engine, f"{LABEL_SESSION}={self.label}")
        environ = {**os.environ, "XDG_STATE_HOME": str(self.root / "state"), "HOME": str(self.root)}
        environ["SBX_HOST_SECRET"] = "canary-of-the-host"
        self.folders = Folders.of(environ)
        kit = self.root / "plain"
        kit.mkdir()
        (kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        outside = self.root / "outside"
        outside.mkdir()
        (outside / "secret.txt").write_text("canary-of-the-host")
        self.options = launch.Options(sandbox=str(kit), workspace=outside, demo=True, environ=environ)
        prepared = launch.prepare(self.options)
        self.image = launch.find_image(self.engine, prepared, ignore).id
        self.model = self._stack.enter_context(ScriptedServer(answer))
        self._abstract = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._abstract.bind(f"\0{self.label}")
        self._abstract.listen(8)
        self._open = self._stack.enter_context(socket.socket())
        self._open.bind(("0.0.0.0", 0))
        self._open.listen(8)
        self.facts: dict[str, Any] = {}
        self.helper()
        self.facts |= {
            "model_port": self.model.port,
            "host_port": self._open.getsockname()[1],
            "abstract": self.label,
            "outside": str(outside / "secret.txt"),
            "secret": "canary-of-the-" + "host",
        }

    def __exit__(self, *exc: object) -> None:
        try:
            for box in self.boxes.values():
                self.do(box.close())
        finally:
            if self._helper:
                self.engine.request("DELETE", f"/containers/{self._helper}?force=1&v=1", doing="removing the helper")
            if self._network:
                self.engine.request("DELETE", f"/networks/{self._network}", doing="removing the helper's network")
            self._janitor.done()
            self._stack.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs it in the stage's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS * 3)

    def box(self, name: str) -> Box:
        if name not in self.boxes:
            box = Box(self, name, VARIANTS[name])
            self.boxes[name] = box
            self.do(box.open())
        return self.boxes[name]

    def program(self, name: str, patches: Sequence[Patch]) -> Path:
        """A copy of the program, changed."""
        folder = self.root / f"program-{len(self.boxes)}"
        shutil.copytree(REPO / "runner", folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file, old, new in patches:
            path = folder / file
            text = path.read_text()
            assert text.count(old) == 1, f"{file} no longer says {old!r} once: the control cannot be switched off"
            path.write_text(text.replace(old, new))
        return folder

    def helper(self) -> str:
        """A container with a network: the world outside, for sandboxes that join it."""
        if not self._helper:
            network = {"Name": f"sbx-{self.label}", "Labels": {LABEL_SESSION: self.label}}
            answer = self.engine.request("POST", "/networks/create", network, doing="creating the helper's network")
            self._network = str(answer["Id"])
            document = {
                "Image": self.image,
                "Cmd": ["python3", "-c", HELPER],
                "User": "0:0",
                "Labels": {LABEL_SESSION: self.label},
                "HostConfig": {
                    "CapAdd": ["NET_ADMIN"],
                    "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"],
                    "NetworkMode": self._network,
                    "Dns": ["127.0.0.1"],
                    "Sysctls": {"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.lo.disable_ipv6": "0"},
                },
            }
            made = self.engine.request("POST", "/containers/create", document, doing="creating the helper")
            self._helper = str(made["Id"])
            self.engine.request("POST", f"/containers/{self._helper}/start", doing="starting the helper")
            with subprocess.Popen(["docker", "logs", "-f", self._helper], stdout=subprocess.PIPE) as log:
                assert log.stdout is not None
                assert any(b"up" in line for line in log.stdout)
                log.terminate()
            state = self.engine.get(f"/containers/{self._helper}/json", doing="looking at the helper")
            (joined,) = state["NetworkSettings"]["Networks"].values()
            self.facts["outside_address"], self.facts["gateway"] = joined["IPAddress"], joined["Gateway"]
        return self._helper
