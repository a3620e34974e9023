"""`sbx.lock`: what a build came to, so that drift has a name.

Two things are called equal that differ in their bytes: a file that was only written at another time, and the traces a
package manager leaves (logs, caches, compiled Python, the day a user was made). Without that, no build could ever be
compared with an earlier one. `layers` still holds each layer's exact digest; `contents` is what a build is held to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import __version__, wire
from runner.errors import ConfigError, ImageError
from runner.images import packages
from runner.images.content import Content, Layer, in_recipe, manifest
from runner.kits.plan import Plan

VERSION = 1
NAME = "sbx.lock"
MAX_LOCK = 32 * 1024 * 1024
SHOWN = 40
"""Most lines that a list of differences has."""
TRACES = re.compile(
    r"(^|/)__pycache__/|\.pyc$|^var/(log|cache|tmp)(/|$)|^(tmp|run|dev|proc|sys)(/|$)|^etc/g?shadow-?$"
    r"|^etc/(passwd|group|subuid|subgid)-$|^etc/\.pwd\.lock$|^etc/ld\.so\.cache$"
    r"|^var/lib/(apt|dpkg)(/|$)|^var/lib/systemd/|/\.npm/_(logs|cacache)/"
    r"|^etc/(hosts|hostname|resolv\.conf|mtab|machine-id)$|^\.dockerenv$"
)
"""Files that differ between two builds of the same thing."""


def make(plan: Plan, plan_digest: str, base: Mapping[str, str], built: Content) -> dict[str, Any]:
    """The lock of a built image, without the image's id.

    Args:
        plan: what was built.
        plan_digest: its hash.
        base: `image` as written, `from` as found, `digest`.
        built: what is in the image.
    """
    files, kept = built.files()
    return {
        "lock": VERSION,
        "name": plan.name,
        "sbx": __version__,
        "wire": wire.VERSION,
        "plan": plan_digest,
        "base": dict(base),
        "kits": [
            {
                "name": kit.name,
                "kind": kit.kind,
                "digest": kit.digest,
                "layer": layer.digest,
                "arguments": dict(kit.arguments),
            }
            for kit, layer in zip(plan.kits, plan.layers, strict=False)
        ],
        "packages": packages.installed(kept),
        "layers": list(built.digests),
        "contents": [contents(layer) for layer in built.layers],
        "files": hashlib.sha256(manifest(files)).hexdigest(),
        "config": settings(built),
    }


def contents(layer: Layer) -> str:
    """Hex SHA-256 over a layer's files without what differs between two builds of the same thing."""
    total = hashlib.sha256()
    for path, entry in sorted(layer.entries.items()):
        # A folder stands in a layer already when something in it changed, such as a trace that was removed.
        if entry.kind != "dir" and not TRACES.search(path) and not in_recipe(path):
            total.update(entry.line(path).encode() + b"\n")
    for path in sorted(layer.removed):
        if not TRACES.search(path):
            total.update(b"-" + path.encode() + b"\n")
    return total.hexdigest()


def settings(image: Content) -> dict[str, Any]:
    """What the image's configuration does to every program in it."""
    config = image.config.get("config") or {}
    names = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Volumes", "ExposedPorts", "Shell", "OnBuild")
    return {name: config[name] for name in names if config.get(name)}


def render(lock: Mapping[str, Any]) -> bytes:
    """The file: JSON, sorted, one package a line, the same bytes for the same lock."""
    return (json.dumps(lock, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def parse(raw: bytes, place: str) -> dict[str, Any]:
    """A lock's file.

    Raises:
        ConfigError: it is none, or of another version.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}", place=place, hint="`sbx image build KIT` writes it anew") from None
    if not isinstance(document, dict) or document.get("lock") != VERSION:
        raise ConfigError(f"is no lock of version {VERSION}", place=place, hint="`sbx image build KIT` writes it anew")
    shape = {"packages": dict, "layers": list, "contents": list, "kits": list, "base": dict, "plan": str, "files": str}
    for key, kind in shape.items():
        if not isinstance(document.get(key), kind):
            raise ConfigError(f"{key} is missing, or of another type", place=place)
    return document


def load(path: Path) -> dict[str, Any]:
    """The lock in a file.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_LOCK + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from None
    if len(raw) > MAX_LOCK:
        raise ConfigError(f"is over {MAX_LOCK // 1024**2} MiB", place=str(path))
    return parse(raw, str(path))


def kit_drift(lock: Mapping[str, Any], plan: Plan, plan_digest: str) -> list[str]:
    """How the kit differs from its lock, as far as is known without a build. Empty: it does not."""
    found = []
    if lock.get("name") != plan.name:
        found.append(f"the lock is of the kit {lock.get('name')}, this is {plan.name}")
    if lock["base"].get("image") != (base := base_name(plan)):
        found.append(f"base: {lock['base'].get('image')} in the lock, {base} in the kit")
    layers = dict(zip((kit.name for kit in plan.kits), (layer.digest for layer in plan.layers), strict=False))
    now = {kit.name: kit for kit in plan.kits}
    then = {str(kit.get("name")): kit for kit in lock["kits"] if isinstance(kit, dict)}
    found += [f"kit {name}: in the lock, no longer in the kit" for name in sorted(then.keys() - now.keys())]
    for name, kit in now.items():
        old = then.get(name)
        if old is None:
            found.append(f"kit {name}: not in the lock")
            continue
        arguments = dict(kit.arguments)
        for key in sorted(arguments.keys() | old.get("arguments", {}).keys()):
            was, is_ = old.get("arguments", {}).get(key), arguments.get(key)
            if was != is_:
                found.append(f"kit {name}: argument {key}: {was!r} in the lock, now {is_!r}")
        if old.get("digest") != kit.digest or old.get("layer") != layers.get(name):
            found.append(f"kit {name}: its content changed ({str(old.get('digest'))[:12]} → {kit.digest[:12]})")
    if [*then] != [*now] and then.keys() == now.keys():
        found.append(f"kits: order {' '.join(then)} in the lock, now {' '.join(now)}")
    if not found and lock["plan"] != plan_digest:
        found.append(f"sbx: version {lock.get('sbx')} in the lock, this is {__version__} with another program")
    return found


def base_name(plan: Plan) -> str:
    """The base as the lock names it: a reference, or the hash of the kit's own build."""
    return plan.base.image if plan.base.context is None and plan.base.image else f"build:{plan.base.digest}"


def drift(old: Mapping[str, Any], new: Mapping[str, Any], *, exact: bool = False) -> list[str]:
    """How a built image's lock differs from an earlier one, one line each; empty: it does not.

    Args:
        exact: layers must be the same bytes, not only the same files.
    """
    found = []
    if old["base"] != new["base"]:
        found.append(f"base: {_base(old)} → {_base(new)}")
    found += package_drift(old["packages"], new["packages"])
    key = "layers" if exact else "contents"
    if old[key] != new[key]:
        if len(old[key]) != len(new[key]):
            found.append(f"layers: {len(old[key])} → {len(new[key])}")
        for number, (was, is_) in enumerate(zip(old[key], new[key], strict=False), 1):
            if was != is_:
                found.append(f"layer {number}: {_short(was)} → {_short(is_)}")
    if old.get("config") != new.get("config"):
        found.append(f"configuration: {old.get('config')} → {new.get('config')}")
    if exact and old["files"] != new["files"]:
        found.append(f"files: manifest {_short(old['files'])} → {_short(new['files'])}")
    return found


def package_drift(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Packages that came, went or changed their version."""
    found = []
    for manager in sorted(old.keys() | new.keys()):
        before, after = old.get(manager, {}), new.get(manager, {})
        for name in sorted(before.keys() | after.keys()):
            was, is_ = before.get(name), after.get(name)
            if was != is_:
                found.append(f"{manager} {name}: {was or 'not there'} → {is_ or 'not there'}")
    return found


def check(lines: Sequence[str], what: str, place: str) -> None:
    """Raises ImageError with the lines as its log, if there are any."""
    if lines:
        more = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        raise ImageError(f"{what}: {lines[0]}", place=place, log="\n".join([*lines[:SHOWN], *more]))


def _base(lock: Mapping[str, Any]) -> str:
    base = lock["base"]
    return f"{base.get('image')} ({base.get('from')}, {_short(str(base.get('digest')))})"


def _short(digest: object) -> str:
    return str(digest).removeprefix("sha256:")[:12]
