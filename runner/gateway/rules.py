"""Where a policy's rules come from: presets, policy files, kits, the command line, and groups.

A group is a name for where the host's own package client gets its packages. No host name is written here: the clients
are asked, so a company's mirror works without editing a kit. pip's index may hand out files from another host, which
only the index knows; pip is asked to plan one download and the host of that file is taken.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runner.errors import ConfigError
from runner.gateway.names import HOST_ALIAS, Address, BadName, normalise
from runner.gateway.policy import PRESETS, Bound, Pattern, Policy, parse
from runner.kits.plan import Network

SYSTEM_FILE = Path("/etc/sbx/policy.yaml")
CLIENT_TIMEOUT = 20.0
"""Seconds that a package client has for an answer."""
MAX_POLICY_FILE = 1024 * 1024

GROUPS = ("@python-packages", "@node-packages", "@debian-packages")


@dataclass(frozen=True)
class PolicyFile:
    """One policy file. `None` means that the file says nothing about it."""

    path: str
    network_allow: tuple[str, ...] | None = None
    network_deny: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What a group means on this machine, where the client cannot be asked."""
    grants_allow: tuple[str, ...] | None = None
    grants_deny: tuple[str, ...] = ()
    hooks_required: tuple[Mapping[str, Any], ...] = ()
    """Entries as in `agent.yaml`'s hooks, each with its `event`."""
    images_signers: tuple[str, ...] | None = None
    models_allow: tuple[str, ...] | None = None


def policy_paths(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The system's policy file and the user's, whether they exist or not."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return (SYSTEM_FILE, Path(home) / "sbx" / "policy.yaml")


def load(paths: Iterable[Path]) -> tuple[PolicyFile, ...]:
    """The policy files that exist.

    Raises:
        ConfigError: one cannot be read or is wrong; `place` is `FILE: KEY`. A policy that cannot be read is never
            taken as none.
    """
    files = []
    for path in paths:
        try:
            if path.stat().st_size > MAX_POLICY_FILE:
                raise ConfigError(f"the file is over {MAX_POLICY_FILE} bytes", place=str(path))
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the policy cannot be read: {error}", place=str(path)) from None
        files.append(read(text, str(path)))
    return tuple(files)


def read(text: str, path: str) -> PolicyFile:
    """A policy file's text, checked. Raises ConfigError."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        raise ConfigError(f"not YAML: {getattr(error, 'problem', error)}", place=place) from None
    top = _mapping(document or {}, path, "", ("network", "grants", "hooks", "images", "models"))
    network = _mapping(top.get("network", {}), path, "network", ("allow", "deny", "groups"))
    grants = _mapping(top.get("grants", {}), path, "grants", ("allow", "deny"))
    hooks = _mapping(top.get("hooks", {}), path, "hooks", ("required",))
    images = _mapping(top.get("images", {}), path, "images", ("signers",))
    models = _mapping(top.get("models", {}), path, "models", ("allow",))
    groups = network.get("groups", {})
    if not isinstance(groups, dict):
        raise ConfigError("must be a mapping of @group to hosts", place=f"{path}: network.groups")
    for name in groups:
        if not isinstance(name, str) or not name.startswith("@"):
            raise ConfigError(f"{name!r} is not a group: it begins with @", place=f"{path}: network.groups")
    required = hooks.get("required", [])
    if not isinstance(required, list) or not all(isinstance(hook, dict) for hook in required):
        raise ConfigError("must be a list of hooks", place=f"{path}: hooks.required")
    for number, hook in enumerate(required):
        for key in ("event", "command"):
            if not isinstance(hook.get(key), str) or not hook[key]:
                raise ConfigError(f"a required hook needs {key!r}", place=f"{path}: hooks.required[{number}].{key}")
    file = PolicyFile(
        path,
        _texts(network, path, "network", "allow"),
        _texts(network, path, "network", "deny") or (),
        {name: _texts(groups, path, "network.groups", name) or () for name in groups},
        _texts(grants, path, "grants", "allow"),
        _texts(grants, path, "grants", "deny") or (),
        tuple(required),
        _texts(images, path, "images", "signers"),
        _texts(models, path, "models", "allow"),
    )
    from runner.gateway.grants import NAMES  # checked here so that a misspelt grant is found when the file is read

    for key, names in (("allow", file.grants_allow or ()), ("deny", file.grants_deny)):
        for name in names:
            if name not in NAMES:
                raise ConfigError(
                    f"{name!r} is not a grant; there are {', '.join(NAMES)}", place=f"{path}: grants.{key}"
                )
    for key, rules in (("allow", file.network_allow or ()), ("deny", file.network_deny)):
        for rule in rules:
            if not rule.startswith("@"):
                parse(rule, f"{path}: network.{key}")
    return file


def build(
    preset: str = "none",
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    kits: Network | None = None,
    kits_granted: bool = False,
    install: bool = False,
    files: Sequence[PolicyFile] = (),
    environ: Mapping[str, str] | None = None,
    groups: Groups | None = None,
    resolve: Sequence[str] = (),
) -> Policy:
    """The policy of one run.

    Args:
        preset: `none`, `packages` or `open`.
        allow, deny: the command line's `--allow` and `--deny`.
        kits: the plan's lists. Their deny rules always count, their allow rules only when `kits_granted`.
        kits_granted: the grant `network` was given.
        install: the policy of a build: the kits' `install` lists count too.
        files: the policy files.
        environ: the host's environment, for asking package clients.
        groups: what the groups mean; made of `files` and `environ` when there is none.
        resolve: `NAME=ADDRESS` of the command line: addresses that names are taken to have.

    Raises:
        ConfigError: a rule is none, a preset or group does not exist, or a group's client is not installed.
    """
    if preset not in PRESETS:
        raise ConfigError(f"there is no network preset {preset!r}; there are {', '.join(PRESETS)}", place="--network")
    groups = groups or Groups(environ or {}, files)
    kits = kits or Network()
    allowed: list[Pattern] = []
    if preset == "packages":
        allowed += groups.installed()
    for text in allow:
        allowed += groups.expand(text, "--allow")
    # Asking a package client takes a second; what opens nothing is not worth it.
    wanted = [rule for rule in kits.allow if kits_granted or not rule.text.startswith("@")]
    asked = [p for rule in wanted for p in groups.expand(rule.text, rule.source)]
    if install:
        asked += [p for rule in kits.install_allow for p in groups.expand(rule.text, rule.source)]
    denied = [p for text in deny for p in groups.expand(text, "--deny")]
    for rule in (*kits.deny, *(kits.install_deny if install else ())):
        denied += groups.expand(rule.text, rule.source)
    for file in files:
        denied += [p for text in file.network_deny for p in groups.expand(text, file.path)]
    bounds = tuple(
        Bound(file.path, tuple(p for text in file.network_allow for p in groups.expand(text, file.path)))
        for file in files
        if file.network_allow is not None
    )
    if kits_granted:
        allowed += asked
    if preset == "open":
        allowed.append(Pattern("open", "preset open", "any", first=1, last=65535))
    return Policy(preset, tuple(allowed), tuple(denied), bounds, () if kits_granted else tuple(asked), _known(resolve))


def _known(entries: Sequence[str]) -> dict[str, tuple[Address, ...]]:
    """The addresses of `NAME=ADDRESS` entries. Raises ConfigError."""
    found: dict[str, tuple[Address, ...]] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        try:
            place, address = normalise(name), normalise(text)
            if not equals or not isinstance(place, str) or isinstance(address, str) or place == HOST_ALIAS:
                raise BadName
        except BadName:
            raise ConfigError(f"{entry!r} is not NAME=ADDRESS", place="--resolve") from None
        found[place] = (*found.get(place, ()), address)
    return found


class Groups:
    """What each `@group` means on this host. Each client is asked once.

    Args:
        environ: the host's environment; its PATH finds the clients.
        files: policy files; their `network.groups` go before the clients, the first file's first.
    """

    def __init__(self, environ: Mapping[str, str], files: Sequence[PolicyFile] = ()) -> None:
        self._environ = environ
        self._files = files
        self._known: dict[str, tuple[tuple[str, ...], str]] = {}

    def expand(self, text: str, source: str, *, quiet: bool = False) -> list[Pattern]:
        """A rule as patterns; more than one when it is a group.

        Args:
            quiet: a group that cannot be resolved is nothing instead of an error.
        """
        if not text.startswith("@"):
            return [parse(text, source)]
        try:
            hosts, origin = self.resolve(text, source)
        except ConfigError:
            if quiet:
                return []
            raise
        return [parse(host, f"{source}, {origin}", group=text) for host in hosts]

    def installed(self) -> list[Pattern]:
        """The hosts of every group whose client is there; the preset `packages`.

        Raises:
            ConfigError: there is none at all.
        """
        found: list[Pattern] = []
        for name in GROUPS:
            found += self.expand(name, "preset packages", quiet=True)
        if not found:
            raise ConfigError(
                "no package client is installed here, so the preset `packages` knows no host",
                place="--network packages",
                hint="set network.groups in ~/.config/sbx/policy.yaml, or use --allow HOST",
            )
        return found

    def resolve(self, name: str, source: str = "") -> tuple[tuple[str, ...], str]:
        """A group's `HOST:PORT` entries, and who said so. Raises ConfigError."""
        for file in self._files:
            if name in file.groups:
                return file.groups[name], file.path
        if name not in GROUPS:
            defined = sorted({*GROUPS, *(g for f in self._files for g in f.groups)})
            raise ConfigError(f"there is no group {name!r}; there are {', '.join(defined)}", place=source or None)
        if name not in self._known:
            ask, client = {
                "@python-packages": (self._python, "pip"),
                "@node-packages": (self._node, "npm"),
                "@debian-packages": (self._debian, "apt-get"),
            }[name]
            urls = ask()
            entries = tuple(dict.fromkeys(entry for url in urls or () for entry in _entry(url)))
            if not entries:
                state = "is not installed" if urls is None else "names no server"
                raise ConfigError(
                    f"{name} is where {client} gets its packages, and {client} {state} on this host",
                    place=source or None,
                    hint=f"set network.groups.'{name}' in ~/.config/sbx/policy.yaml to a list of HOST[:PORT]",
                )
            self._known[name] = entries, f"{client}'s configuration"
        return self._known[name]

    def _run(self, *command: str) -> str | None:
        """A client's answer; empty when it failed, None when it is not installed."""
        program = shutil.which(command[0], path=self._environ.get("PATH", ""))
        if program is None:
            return None
        try:
            done = subprocess.run(
                [program, *command[1:]],
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CLIENT_TIMEOUT,
                cwd="/",  # a project's own configuration in the current folder is not the host's
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""

    def _python(self) -> list[str] | None:
        pip = "pip" if shutil.which("pip", path=self._environ.get("PATH", "")) else "pip3"
        settings = self._run(pip, "config", "list")
        if settings is None:
            return None
        urls: list[str] = []
        has_index = False
        for key, value in re.findall(r"^(\S+?)='(.*)'$", settings, re.MULTILINE):
            option = key.rpartition(".")[2]
            if option in ("index-url", "extra-index-url", "find-links"):
                urls += value.replace("\\n", " ").split()
                has_index |= option == "index-url"
        if not has_index:  # pip's help tells the index that it uses by itself
            shown = re.search(
                r"--index-url <url>.*?default\s+(\S+?)\)", self._run(pip, "install", "--help") or "", re.S
            )
            urls += [shown.group(1)] if shown else []
        report = self._run(
            pip, "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-", "pip"
        )
        try:
            planned = json.loads(report or "{}").get("install", [])
            urls += [item["download_info"]["url"] for item in planned]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # an old pip, or no network: the index's own host is known all the same
        return urls

    def _node(self) -> list[str] | None:
        settings = self._run("npm", "config", "list", "--json")
        if settings is None:
            return None
        try:
            document = json.loads(settings or "{}")
        except ValueError:
            return []
        pairs = document.items() if isinstance(document, dict) else ()
        return [v for k, v in pairs if isinstance(v, str) and (k == "registry" or k.endswith(":registry"))]

    def _debian(self) -> list[str] | None:
        sites = self._run("apt-get", "indextargets", "--format", "$(SITE)")
        return None if sites is None else sites.split()


def _entry(url: str) -> list[str]:
    """`HOST:PORT` of a URL; nothing for a local path."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return []
    if not parts.hostname or port is None or parts.scheme not in ("http", "https"):
        return []
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return [f"{host}:{port}"]


def _mapping(value: object, path: str, key: str, known: Sequence[str]) -> dict[str, Any]:
    place = f"{path}: {key}" if key else path
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError("must be a mapping", place=place)
    for name in value:
        if name not in known:
            raise ConfigError(f"unknown key {name!r}; there are {', '.join(known)}", place=place)
    return value


def _texts(mapping: Mapping[str, Any], path: str, key: str, name: str) -> tuple[str, ...] | None:
    """A list of texts; None when the key is not there. An empty list is a list: it allows nothing."""
    if name not in mapping:
        return None
    value = mapping[name]
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ConfigError("must be a list of texts", place=f"{path}: {key}.{name}")
    return tuple(value)
