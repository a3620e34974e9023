"""`sbx image build`: the plan's image, its lock, and the recipe laid on top, so that it can be shared.

A run needs none of that, and reading an image back costs seconds for each gigabyte; so `sbx run` builds without it.
What an image of a given id holds never changes: it is read once and remembered in the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engine import Engine
from runner.errors import ImageError, NotFoundError
from runner.images import build, content, dockerfile, lock, recipe, settings
from runner.images.events import Note, Progress, ignore
from runner.images.program import ContextFile
from runner.kits.plan import Plan

READ_SILENCE = 600.0
"""Seconds without a byte while an engine writes an image; it packs all of it before the first."""
READ_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Sealed:
    """An image that can be shared, and its lock."""

    image: build.Image
    lock: Mapping[str, Any]
    """With the image's id: what belongs beside the kit."""


def seal(
    engine: Engine,
    plan: Plan,
    folders: Mapping[str, Path],
    *,
    locked: Mapping[str, Any] | None = None,
    progress: Progress = ignore,
    certificates: Sequence[Path] = (),
    no_cache: bool = False,
    pull: bool = False,
    network_mode: str | None = None,
    network: build.MakeNetwork | None = None,
) -> Sealed:
    """Build the plan's image and lay its recipe on it; what is there already is taken.

    Args:
        engine: where.
        plan: what.
        folders: of each kit that took part, by name.
        locked: the lock that the result is held to.
        progress: told what goes on.
        certificates: for the build; see `build.ensure`.
        no_cache: build every step anew.
        pull: ask the registry for a newer base.
        network_mode: of the build's containers.
        network: makes the network of a closed build.

    Raises:
        ImageError: a step failed, or `locked` and what was built differ (`log` holds the list). Then no tag moves.
    """
    wanted = dockerfile.digest(plan)
    name = build.tag(plan)
    if locked is not None:
        lock.check(lock.kit_drift(locked, plan, wanted), "the kit drifted from its lock", plan.name)
    with build.one_at_a_time(f"seal-{wanted}", progress):
        previous = _inspect(engine, name)
        below = _below(
            engine, plan, wanted, name, previous, progress, certificates, no_cache, pull, network_mode, network
        )
        built = read_below(engine, below["Id"], progress)
        base = {
            "image": lock.base_name(plan),
            "from": _label(below, "dev.sbx.base.from"),
            "digest": _label(below, "dev.sbx.base.digest"),
        }
        document = lock.make(plan, wanted, base, built)
        if locked is not None:
            _hold(engine, locked, document, plan, name, previous)
        files, _ = built.files()
        made = recipe.make(plan, folders, document, content.manifest(files))
        total = made.digest()
        image = _inspect(engine, name)
        labels = _labels(image)
        if labels.get(recipe.LABEL) != total or labels.get(recipe.LABEL_BELOW) != below["Id"]:
            progress(Note("laying the recipe on the image"))
            context = [ContextFile(f"recipe/{f.path}", f.content, f.mode) for f in made.files]
            text = recipe.render(below["Id"], total, below["Id"])
            context.append(ContextFile("Dockerfile", text.encode()))
            builder = build.Builder(engine, plan.name, settings.Settings(), ignore, "none", no_cache=False)
            own = builder.run(dockerfile.pack(context), "Dockerfile", {}, "")
            build.set_tag(engine, own, name)
            image = _inspect(engine, name)
        assert image is not None
        labels = _labels(image)
        full = {
            **document,
            "recipe": total,
            "image": image["Id"],
            "layers": list((image.get("RootFS") or {}).get("Layers") or ()),
        }
        return Sealed(build.Image(image["Id"], name, labels, built=True), full)


def read_image(engine: Engine, reference: str, progress: Progress = ignore) -> content.Content:
    """Everything in an image, each byte of it hashed here.

    Raises:
        NotFoundError: it is not in the engine.
        ImageError: what the engine wrote is no whole image.
    """
    identity = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")["Id"]
    progress(Note(f"reading {reference} back"))
    with engine.call(f"reading {reference} back", READ_SILENCE):
        chunks = engine.api.get_image(identity, chunk_size=READ_CHUNK)
        images = content.read(chunks)
    if len(images) != 1:
        raise ImageError(f"the engine wrote {len(images)} images for {reference}", place=reference)
    return images[0]


def read_below(engine: Engine, identity: str, progress: Progress) -> content.Content:
    """`read_image` of one of our own builds, remembered by its id."""
    cache = _cache_folder() / f"{identity.removeprefix('sha256:')}.json"
    try:
        return _remembered(cache.read_bytes(), identity)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    found = read_image(engine, identity, progress)
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = cache.with_name(f".{cache.name}.{os.getpid()}")
        aside.write_bytes(_remember(found))
        aside.replace(cache)
    except OSError:
        pass  # a full disk costs reading it again
    return found


def _below(
    engine: Engine,
    plan: Plan,
    wanted: str,
    name: str,
    previous: dict[str, Any] | None,
    progress: Progress,
    certificates: Sequence[Path],
    no_cache: bool,
    pull: bool,
    network_mode: str | None,
    network: build.MakeNetwork | None,
) -> dict[str, Any]:
    """The plan's image without a recipe."""
    if previous and not (no_cache or pull):
        labels = _labels(previous)
        if labels.get("dev.sbx.plan") == wanted:
            below = labels.get(recipe.LABEL_BELOW, "")
            if not below:
                return previous
            found = _inspect(engine, below)
            if found and _labels(found).get("dev.sbx.plan") == wanted and recipe.LABEL not in _labels(found):
                return found
    made = build.build_plan(engine, plan, progress, certificates, no_cache, pull, network_mode, network)
    found = _inspect(engine, made.id)
    if found is None:
        raise ImageError("the image that was just built is gone: somebody removed it", place=name)
    return found


def _hold(
    engine: Engine,
    locked: Mapping[str, Any],
    document: Mapping[str, Any],
    plan: Plan,
    name: str,
    previous: Mapping[str, Any] | None,
) -> None:
    """Refuses what differs from the lock, and takes its tag away, so that no run takes it."""
    lines = lock.drift(locked, document)
    if not lines:
        return
    if previous:
        build.set_tag(engine, previous["Id"], name)
    else:
        with contextlib.suppress(NotFoundError):
            engine.request("DELETE", f"/images/{name}?noprune=1", doing="taking the tag away")
    lock.check(lines, "the build drifted from the lock", plan.name)


def _inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")
    except NotFoundError:
        return None
    return document


def _labels(document: Mapping[str, Any] | None) -> dict[str, str]:
    return dict(((document or {}).get("Config") or {}).get("Labels") or {})


def _label(document: Mapping[str, Any], name: str) -> str:
    return _labels(document).get(name, "")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbx" / "contents"


def _remember(found: content.Content) -> bytes:
    layers = [
        {
            "digest": layer.digest,
            "entries": {path: list(entry) for path, entry in layer.entries.items()},
            "removed": sorted(layer.removed),
            "emptied": sorted(layer.emptied),
            "kept": {path: data.decode("latin-1") for path, data in layer.kept.items()},
        }
        for layer in found.layers
    ]
    return json.dumps({"id": found.id, "config": found.config, "layers": layers}).encode()


def _remembered(raw: bytes, identity: str) -> content.Content:
    document = json.loads(raw)
    layers = tuple(
        content.Layer(
            layer["digest"],
            {path: content.Entry(*entry) for path, entry in layer["entries"].items()},
            set(layer["removed"]),
            set(layer["emptied"]),
            {path: text.encode("latin-1") for path, text in layer["kept"].items()},
        )
        for layer in document["layers"]
    )
    found = content.Content(document["id"], document["config"], layers)
    if found.id != identity:
        raise ValueError("another image")
    return found
