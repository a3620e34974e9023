"""A shared image becomes a kit again: `sbx run REF` with nothing but `sbx` and an engine.

The recipe is taken out of the image through a container that is never started, and laid in the cache under the image's
id. It is as trusted as any kit from elsewhere: it is read by the same reader, and what it wants is granted or refused.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import __version__, wire
from runner.engine import Engine
from runner.errors import ImageError, NotFoundError, WireVersionError
from runner.images import content, lock, plan_codec, recipe, share
from runner.images.build import Image
from runner.images.events import Progress, ignore
from runner.kits.plan import Plan

MAX_RECIPE = 160 * 1024 * 1024
"""Bytes of a recipe: the kits' folders, the plan that holds their files again, and the manifest."""
CONTAINER_LABELS = {"dev.sbx.recipe-reader": "1"}


@dataclass(frozen=True)
class Shared:
    """A shared image, opened."""

    image: Image
    plan: Plan
    folder: Path
    """The sandbox kit's folder, in the cache."""
    lock: Mapping[str, Any]


def open_shared(
    engine: Engine,
    reference: str,
    environ: Mapping[str, str] = os.environ,
    *,
    pull: bool = False,
    progress: Progress = ignore,
    labels: Mapping[str, str] | None = None,
) -> Shared:
    """The image, pulled when it is not here, and its recipe.

    Args:
        reference: `NAME:TAG`, or `NAME@sha256:…`, which pins.
        environ: where the cache is.
        pull: ask the registry for what the tag names now.
        labels: of the container that the recipe is read through.

    Raises:
        ImageError: it cannot be had, or carries no recipe.
        WireVersionError: it speaks another version of the wire.
    """
    reference = reference.removeprefix("oci://")
    wanted = share.parse_reference(reference)
    document = _inspect(engine, str(wanted))
    if document is None or (pull and not wanted.digest):
        share.pull(engine, str(wanted), progress=progress)
        document = _inspect(engine, str(wanted))
    if document is None:
        raise ImageError(f"{reference} is not there after pulling it", place=reference)
    marked = dict((document.get("Config") or {}).get("Labels") or {})
    if recipe.LABEL not in marked:
        raise ImageError(
            f"{reference} carries no recipe", place=reference, hint="it was not made by `sbx image build KIT`"
        )
    version = marked.get("dev.sbx.wire", "")
    if version != str(wire.VERSION):
        raise WireVersionError(
            f"the image's program (sbx {marked.get('dev.sbx.version', '?')}) speaks wire version {version or '?'}, "
            f"this sbx ({__version__}) speaks {wire.VERSION}",
            place=reference,
            hint="build the image again with this version of sbx, or take that version",
        )
    identity = str(document["Id"])
    folder = _unpacked(engine, identity, marked[recipe.LABEL], reference, environ, labels or {})
    plan = plan_codec.decode((folder / "plan.json").read_bytes(), reference)
    kits = tuple(
        replace(kit, path=str(folder / kit.path)) if kit.path == f"kits/{kit.name}" else kit for kit in plan.kits
    )
    return Shared(
        Image(identity, str(wanted), marked),
        replace(plan, kits=kits),
        folder / "kits" / plan.name,
        lock.load(folder / "lock.json"),
    )


def _inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")
    except NotFoundError:
        return None
    return document


def _unpacked(
    engine: Engine,
    identity: str,
    digest: str,
    reference: str,
    environ: Mapping[str, str],
    labels: Mapping[str, str],
) -> Path:
    """The recipe's folder in the cache; its content is that of the image's label."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    shelf = Path(cache) / "sbx" / "recipes"
    target = shelf / identity.removeprefix("sha256:")
    if target.is_dir():
        return target
    shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=shelf))
    try:
        files = _lay(_archive(engine, identity, labels), aside, reference)
        if recipe.digest(files) != digest:
            raise ImageError("the recipe in the image is not the one that its label names", place=reference)
        try:
            aside.rename(target)
        except OSError:
            if not target.is_dir():  # another run was quicker, with the same content
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _archive(engine: Engine, identity: str, labels: Mapping[str, str]) -> bytes:
    document = {
        "Image": identity,
        "Entrypoint": ["/nothing"],
        "Cmd": [],
        "NetworkDisabled": True,
        "HostConfig": {"NetworkMode": "none"},
        "Labels": {**CONTAINER_LABELS, **labels},
    }
    container = engine.request("POST", "/containers/create", document, doing="opening the image")["Id"]
    try:
        with engine.call("reading the recipe"):
            chunks, _ = engine.api.get_archive(container, f"/{recipe.FOLDER}")
            data = bytearray()
            for chunk in chunks:
                data += chunk
                if len(data) > MAX_RECIPE:
                    raise ImageError(f"the recipe is over {MAX_RECIPE >> 20} MiB")
    except NotFoundError:
        raise ImageError("the image carries no recipe, though its label says so") from None
    finally:
        with contextlib.suppress(NotFoundError):
            engine.request("DELETE", f"/containers/{container}?force=1&v=1", doing="closing the image")
    return bytes(data)


def _lay(archive: bytes, folder: Path, reference: str) -> Iterator[tuple[str, bool, bytes]]:
    """Unpack plain files with names that stay inside; anything else is an attack or a mistake."""
    found = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = content.checked_name(member.name)
                relative = name.removeprefix("recipe").lstrip("/")
                if member.isdir():
                    continue
                source = tar.extractfile(member) if member.isfile() else None
                if source is None or not name.startswith("recipe/"):
                    raise ImageError(f"the recipe holds {name!r}, which is no plain file", place=reference)
                data = source.read()
                runs = bool(member.mode & 0o111)
                path = folder / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(0o755 if runs else 0o644)
                found.append((relative, runs, data))
    except tarfile.TarError as error:
        raise ImageError(f"the recipe cannot be read: {error}", place=reference) from None
    except OSError as error:
        raise ImageError(f"the recipe cannot be laid in the cache: {error.strerror}", place=str(folder)) from None
    return iter(found)
