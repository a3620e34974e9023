"""`sbx image verify`: is the image what its kit makes?

An image can say anything of itself. What lies in it (labels, recipe, manifest) shows whether it is whole and of one
piece, and no more: whoever changes a file can make all of these fit. Proof needs something from outside the image that
names its id: the lock beside the kit, or a signature over that lock. The id is the hash of the configuration, which
names every layer by its hash; all of these are computed here, from the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.engine import Engine
from runner.errors import ImageError, SbxError
from runner.images import content, dockerfile, lock, plan_codec, recipe
from runner.images.events import Progress, ignore
from runner.images.sealed import read_image
from runner.kits.plan import Plan


@dataclass(frozen=True)
class Verdict:
    """What was found about one image."""

    reference: str
    id: str
    faults: tuple[str, ...]
    """One line each; empty: it is right, as far as `proof` goes."""
    proof: str
    """`lock`, `signature`, both joined by ` and `, or `none`: consistency only."""
    signer: str = ""
    checked: Mapping[str, int] = field(default_factory=dict)
    """How many `layers` and `files` were hashed."""

    def to_json(self) -> dict[str, object]:
        return {
            "image": self.reference,
            "id": self.id,
            "ok": not self.faults,
            "proof": self.proof,
            "signer": self.signer,
            "checked": dict(self.checked),
            "faults": list(self.faults),
        }


@dataclass(frozen=True)
class Evidence:
    """What is known from outside the image."""

    lock: Mapping[str, Any]
    source: str
    """`lock` or `signature`."""
    signer: str = ""


def verify(
    engine: Engine,
    reference: str,
    *,
    evidence: tuple[Evidence, ...] = (),
    plan: Plan | None = None,
    progress: Progress = ignore,
) -> Verdict:
    """Hash all of an image, and hold it against its recipe and against what is known from outside.

    Args:
        reference: of an image that is in the engine.
        evidence: locks that come from beside the kit, or with a signature that was checked.
        plan: the kit as it is now, held against the first lock.

    Raises:
        NotFoundError: the image is not in the engine.
        ImageError: it cannot be read at all.
    """
    document = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")
    image = read_image(engine, str(document["Id"]), progress)
    faults = _whole(image, str(document["Id"]))
    faults += _consistent(image)
    for known in evidence:
        faults += _proved(image, known)
    if plan is not None and evidence:
        drift = lock.kit_drift(evidence[0].lock, plan, dockerfile.digest(plan))
        faults += [f"the kit is not that of its lock: {line}" for line in drift]
    files, _ = image.files()
    proof = " and ".join(dict.fromkeys(known.source for known in evidence)) or "none"
    signer = next((known.signer for known in evidence if known.signer), "")
    counts = {"layers": len(image.layers), "files": len(files)}
    return Verdict(reference, image.id, tuple(dict.fromkeys(faults)), proof, signer, counts)


def _whole(image: content.Content, identity: str) -> list[str]:
    """The engine's own copy: its id and layers are the hashes that they say."""
    faults = []
    # With the containerd store, an engine's id is that of the manifest; its configuration still names the layers.
    if image.digests != image.claimed():
        for number, (is_, said) in enumerate(zip(image.digests, image.claimed(), strict=False), 1):
            if is_ != said:
                faults.append(f"layer {number}: its content hashes to {is_}, the image says {said}")
        if len(image.digests) != len(image.claimed()):
            faults.append(f"layers: there are {len(image.digests)}, the image says {len(image.claimed())}")
    if not faults and image.id != identity and not _containerd(image, identity):
        faults.append(f"id: its configuration hashes to {image.id}, the engine says {identity}")
    return faults


def _containerd(image: content.Content, identity: str) -> bool:
    return any(tag.endswith(identity) for tag in image.tags) or "io.containerd" in str(image.config.get("os.features"))


def _consistent(image: content.Content) -> list[str]:
    """The image against its own recipe."""
    files, kept = image.files()
    try:
        own = recipe.read(kept, files)
        raw = own.get("lock.json")
        if raw is None:
            return ["it carries no recipe: it was not made by `sbx image build`"]
        document = lock.parse(raw, "the recipe's lock.json")
        plan = plan_codec.decode(own.get("plan.json", b""), "plan.json")
        listed = content.parse_manifest(own.get("manifest", b""))
    except SbxError as error:
        return [f"its recipe cannot be read: {error.message}"]
    faults = []
    labels = image.labels
    runs = {path.removeprefix(f"{recipe.FOLDER}/"): bool(e.mode & 0o111) for path, e in files.items()}
    total = recipe.digest((path, runs.get(path, False), data) for path, data in own.items())
    wanted = {
        recipe.LABEL: total,
        "dev.sbx.plan": document["plan"],
        "dev.sbx.kit": document.get("name"),
        "dev.sbx.wire": str(document.get("wire")),
        "dev.sbx.version": str(document.get("sbx")),
        "dev.sbx.kits": " ".join(layer.kit for layer in plan.layers),
    }
    for name, value in wanted.items():
        if labels.get(name) != value:
            faults.append(f"label {name}: {labels.get(name)!r}, the recipe says {value!r}")
    below = list(image.digests[:-1])
    if below != document["layers"]:
        faults += _layers(document["layers"], list(image.digests), extra=1)
    else:
        above = set(image.layers[-1].entries) - {"opt", "opt/sbx"}
        faults += [f"layer {len(image.layers)}: holds {path} too" for path in above if not content.in_recipe(path)]
    listed_digest = hashlib.sha256(own.get("manifest", b"")).hexdigest()
    if listed_digest != document["files"]:
        faults.append(f"manifest: hashes to {listed_digest}, the lock says {document['files']}")
    faults += file_differences(listed, files, "the manifest")
    kits = [(kit.name, kit.digest) for kit in plan.kits]
    if kits != [(kit.get("name"), kit.get("digest")) for kit in document["kits"]]:
        faults.append("plan: its kits are not those of the lock")
    if document.get("config") != (now := lock.settings(image)):
        faults.append(f"configuration: {now}, the lock says {document.get('config')}")
    return faults


def _proved(image: content.Content, known: Evidence) -> list[str]:
    """The image against a lock from outside."""
    document, named = known.lock, "the lock" if known.source == "lock" else "the signed lock"
    if not document.get("image"):
        return [f"{named} names no image"]
    if document["image"] == image.id:
        return []
    faults = [f"id: {image.id}, {named} says {document['image']}"]
    faults += [f"{line} ({named} says the first)" for line in _layers(document["layers"], list(image.digests))]
    files, kept = image.files()
    try:
        own = lock.parse(recipe.read(kept, files).get("lock.json", b""), "lock.json")
        faults += lock.package_drift(document["packages"], own["packages"])
        if document["files"] != own["files"]:
            faults.append(f"files: another manifest than that of {named}")
    except SbxError:
        pass  # told above
    return faults


def _layers(wanted: list[Any], found: list[str], extra: int = 0) -> list[str]:
    lines = []
    if len(found) - extra != len(wanted):
        lines.append(f"layers: {len(found)}, and {len(wanted) + extra} were built")
    for number, (want, have) in enumerate(zip(wanted, found, strict=False), 1):
        if want != have:
            lines.append(f"layer {number}: {want} → {have}")
    return lines


def file_differences(
    old: Mapping[str, content.Entry], new: Mapping[str, content.Entry], than: str = "", limit: int = lock.SHOWN
) -> list[str]:
    """Files that came, went or changed, recipes aside: one line each, at most `limit` and how many more."""
    lines = []
    suffix = f" (against {than})" if than else ""
    for path in sorted(old.keys() | new.keys()):
        was, is_ = old.get(path), new.get(path)
        if was == is_ or content.in_recipe(path):
            continue
        if was is None:
            lines.append(f"file /{path}: added{suffix}")
        elif is_ is None:
            lines.append(f"file /{path}: removed{suffix}")
        else:
            what = [name for name in content.Entry._fields if getattr(was, name) != getattr(is_, name)]
            said = {"said": "content", "attributes": "extended attributes"}
            lines.append(f"file /{path}: {', '.join(said.get(name, name) for name in what)} changed{suffix}")
    if len(lines) > limit:
        lines[limit:] = [f"… and {len(lines) - limit} files more"]
    return lines


def require(verdict: Verdict) -> None:
    """Raises ImageError with the list, if there are faults."""
    if verdict.faults:
        raise ImageError(
            f"{verdict.reference} is not what it says: {verdict.faults[0]}",
            place=verdict.reference,
            log="\n".join(verdict.faults),
        )


@dataclass(frozen=True)
class Difference:
    """How two images differ."""

    packages: tuple[str, ...]
    files: tuple[str, ...]
    variables: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"packages": list(self.packages), "files": list(self.files), "variables": list(self.variables)}


def diff(engine: Engine, first: str, second: str, *, progress: Progress = ignore, limit: int = 1_000_000) -> Difference:
    """What differs between two images: packages, files, variables and the rest of the configuration.

    Raises:
        NotFoundError: one is not in the engine.
    """
    from runner.images.packages import installed

    one, two = read_image(engine, first, progress), read_image(engine, second, progress)
    files, kept = one.files()
    other_files, other_kept = two.files()
    variables = _variables(one), _variables(two)
    lines = []
    for name in sorted(variables[0].keys() | variables[1].keys()):
        was, is_ = variables[0].get(name), variables[1].get(name)
        if was != is_:
            lines.append(f"{name}: {_shown(was)} → {_shown(is_)}")
    return Difference(
        tuple(lock.package_drift(installed(kept), installed(other_kept))),
        tuple(file_differences(files, other_files, limit=limit)),
        tuple(lines),
    )


def _variables(image: content.Content) -> dict[str, str]:
    """The image's own, and those its plan gives to every tool."""
    found = {}
    for text in (image.config.get("config") or {}).get("Env") or ():
        name, _, value = str(text).partition("=")
        found[name] = value
    files, kept = image.files()
    raw = kept.get(f"{recipe.FOLDER}/plan.json")
    if raw is not None and f"{recipe.FOLDER}/plan.json" in files:
        with contextlib.suppress(ImageError):  # a broken recipe is `verify`'s to judge
            found |= {variable.name: variable.value for variable in plan_codec.decode(raw, "plan.json").environment}
    return found


def _shown(value: str | None) -> str:
    return "not there" if value is None else repr(value)
