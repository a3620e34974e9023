"""A plan told as data, for `sbx kit inspect`: what is installed, opened, mounted, published and asked for.

Nothing is run to know it. That has one use beyond showing: a startup command for user 0 runs without capabilities, and
some commands cannot work so. They are named before anybody waits for them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from runner.kits.plan import Layer, Plan, Startup

WITHOUT_CAPABILITIES: dict[str, str] = {
    "apt": "apt gives its work to the user _apt and writes system folders, which needs SETUID, CHOWN and DAC_OVERRIDE",
    "dpkg": "dpkg writes system folders, which are read-only and need CHOWN and DAC_OVERRIDE",
    "apk": "apk writes system folders, which are read-only and need CHOWN and DAC_OVERRIDE",
    "dnf": "dnf writes system folders, which are read-only and need CHOWN and DAC_OVERRIDE",
    "yum": "yum writes system folders, which are read-only and need CHOWN and DAC_OVERRIDE",
    "sshd": "sshd changes to the user that logs in and locks itself into a folder, which needs SETUID and SYS_CHROOT",
    "dockerd": "a Docker daemon mounts and makes network devices, which needs SYS_ADMIN and NET_ADMIN",
    "containerd": "containerd mounts file systems, which needs SYS_ADMIN",
    "mount": "mounting needs SYS_ADMIN",
    "umount": "mounting needs SYS_ADMIN",
    "iptables": "a packet filter needs NET_ADMIN",
    "nft": "a packet filter needs NET_ADMIN",
    "ip": "changing network devices needs NET_ADMIN",
    "sysctl": "kernel settings need SYS_ADMIN and are read-only",
    "modprobe": "kernel modules need SYS_MODULE",
    "chown": "giving files to another user needs CHOWN",
    "chroot": "it needs SYS_CHROOT",
    "su": "changing the user needs SETUID and SETGID",
    "sudo": "changing the user needs SETUID, and no-new-privileges forbids it",
    "gosu": "changing the user needs SETUID and SETGID",
    "setpriv": "changing the user needs SETUID and SETGID",
    "useradd": "user accounts lie on the read-only root",
    "adduser": "user accounts lie on the read-only root",
    "usermod": "user accounts lie on the read-only root",
    "groupadd": "user accounts lie on the read-only root",
    "systemctl": "there is no systemd in the sandbox",
    "cron": "cron changes to the user of each job, which needs SETUID",
    "nginx": "nginx starts workers as another user and listens on port 80, which needs SETUID and NET_BIND_SERVICE",
}
"""Program → why it cannot work as user 0 without capabilities on a read-only root."""

ALIASES = {
    "apt-get": "apt",
    "aptitude": "apt",
    "microdnf": "dnf",
    "dockerd-entrypoint.sh": "dockerd",
    "ip6tables": "iptables",
    "crond": "cron",
}
SERVICES = {"ssh": "sshd", "sshd": "sshd", "docker": "dockerd", "cron": "cron", "nginx": "nginx"}
"""What `service NAME start` starts."""

ROOT = frozenset(("0", "root", "0:0", "root:root"))

_WRAPPERS = frozenset(
    "exec env nohup setsid time command nice timeout tini -- if then else elif while until do ! {".split()
)
"""Words before the program's name."""
_PUNCTUATION = ";&|()<>\n`"
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_COMMENT_AT_END = re.compile(r"[ \t]#.*$", re.MULTILINE)
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*$")
_SKIPPED = frozenset("-0123456789$")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash"))


@dataclass(frozen=True)
class Hopeless:
    """A startup command for user 0 that cannot work."""

    command: tuple[str, ...]
    source: str
    program: str
    reason: str


def hopeless_startup(startup: Sequence[Startup]) -> tuple[Hopeless, ...]:
    """The startup commands of user 0 that cannot work without capabilities, and why."""
    found = []
    for entry in startup:
        if entry.user not in ROOT:
            continue
        for program in _programs(entry.command):
            if reason := WITHOUT_CAPABILITIES.get(program):
                found.append(Hopeless(entry.command, entry.source, program, reason))
                break
    return tuple(found)


def _programs(command: Sequence[str]) -> list[str]:
    """Names of the programs that an argv starts, those inside `sh -c TEXT` too; read from the text, so a guess."""
    found: list[str] = []
    for words in _simple_commands(command):
        while words and (words[0] in _WRAPPERS or _ASSIGNMENT.match(words[0]) or words[0][:1] in _SKIPPED):
            # `command -v apt-get` only asks whether it is there
            words = [] if words[:2] in (["command", "-v"], ["command", "-V"]) else words[1:]
        if not words:
            continue
        name = words[0].rpartition("/")[2]
        if name == "service" and len(words) > 1:
            name = SERVICES.get(words[1], name)
        found.append(ALIASES.get(name, name))
    return found


def _simple_commands(command: Sequence[str]) -> list[list[str]]:
    """The simple commands of an argv: itself, or those in the text that it hands to a shell."""
    words = [word for word in command if word]
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return [words] if words else []
    for word, following in pairwise(words[1:]):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return _split_script(following)
    return []


def _split_script(text: str) -> list[list[str]]:
    text = _without_here_documents(_COMMENT_LINE.sub("", text)).replace("\\\n", " ")
    try:
        return _split_commands(text)
    except ValueError:
        # an apostrophe in a comment at a line's end looks like an open quote
        try:
            return _split_commands(_COMMENT_AT_END.sub("", text))
        except ValueError:
            return []


def _without_here_documents(text: str) -> str:
    kept: list[str] = []
    end = ""
    for line in text.splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        kept.append(line)
        if "<<" in line and (match := _HERE_DOCUMENT.search(line)):
            end = match[2]
    return "\n".join(kept)


def _split_commands(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    for token in lexer:
        if token.strip(_PUNCTUATION):
            commands[-1].append(token)
        elif "<" not in token and ">" not in token:
            commands.append([])
    return [words for words in commands if words]


def inspect(plan: Plan) -> dict[str, Any]:
    """The effective plan as plain data, ready for JSON. It holds no secret: credentials are named, not read."""
    return {
        "name": plan.name,
        "base": _base(plan),
        "kits": [
            {
                "name": kit.name,
                "kind": kit.kind,
                "version": kit.version,
                "description": kit.description,
                "from": kit.path,
                "digest": kit.digest,
                "arguments": dict(kit.arguments),
            }
            for kit in plan.kits
        ],
        "installed": [_layer(layer) for layer in plan.layers if layer.install or layer.home],
        "opened": {
            "allow": [{"host": rule.text, "by": rule.source} for rule in plan.network.allow],
            "deny": [{"host": rule.text, "by": rule.source} for rule in plan.network.deny],
            "during_build": {
                "allow": [{"host": rule.text, "by": rule.source} for rule in plan.network.install_allow],
                "deny": [{"host": rule.text, "by": rule.source} for rule in plan.network.install_deny],
            },
        },
        "mounted": [
            {"path": v.path, "type": v.type or "volume", "size": v.size, "mode": v.mode, "by": v.source}
            for v in plan.volumes
        ],
        "published": [
            {"container": port.container, "protocol": port.protocol, "name": port.name, "by": port.source}
            for port in plan.ports
        ],
        "credentials": [
            {
                "service": credential.service,
                "required": credential.required,
                "description": credential.description,
                "variables": list(credential.env),
                "sent_to": [inject.domain for inject in credential.inject],
                "oauth": bool(credential.oauth),
                "by": credential.source,
            }
            for credential in plan.credentials
        ],
        "environment": {v.name: {"value": v.value, "by": v.source} for v in plan.environment},
        "files": {
            "written_at_start": [
                {"path": f.path, "mode": f"{f.mode:04o}", "only_if_missing": f.only_if_missing, "by": f.source}
                for f in plan.files
            ],
            "workspace": [file.path for file in plan.workspace],
        },
        "startup": _startup(plan),
        "instructions": [{"file": i.filename, "by": i.kit, "characters": len(i.content)} for i in plan.instructions],
        "resources": {"cpus": plan.resources.cpus, "memory": plan.resources.memory, "gpu": plan.resources.gpu},
        "privileged": list(plan.privileged),
        "left_aside": {
            "entrypoint": list(plan.entrypoint),
            "command": list(plan.command),
            "interactive": list(plan.interactive),
        },
        "warnings": list(plan.warnings),
    }


def _base(plan: Plan) -> dict[str, Any]:
    base = plan.base
    if base.context is None:
        return {"image": base.image, "pinned": "@sha256:" in base.image}
    return {"context": str(base.context), "dockerfile": base.dockerfile, "args": dict(base.args), "target": base.target}


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "kit": layer.kit,
        "digest": layer.digest,
        "commands": [{"command": i.command, "user": i.user, "description": i.description} for i in layer.install],
        "home": [file.path for file in layer.home],
    }


def _startup(plan: Plan) -> list[dict[str, Any]]:
    hopeless = {(h.command, h.source): h for h in hopeless_startup(plan.startup)}
    found = []
    for entry in plan.startup:
        told: dict[str, Any] = {
            "command": list(entry.command),
            "user": entry.user,
            "background": entry.background,
            "description": entry.description,
            "by": entry.source,
        }
        if entry.user in ROOT and (fault := hopeless.get((entry.command, entry.source))):
            told["cannot_work"] = f"{fault.program}: {fault.reason}"
        found.append(told)
    return found
