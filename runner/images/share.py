"""Images that travel: push, pull, save, load; and what of ours is in the engine: ls, rm, prune.

Who may push and pull is the Docker configuration's business (`docker login`, `credsStore`, `credHelpers`): the SDK
reads it, asks the helper programs, and sends what they say with the one request that needs it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engine import Engine
from runner.errors import (
    ConfigError,
    EngineError,
    EngineTimeout,
    EngineUnreachable,
    ImageError,
    InUseError,
    NotFoundError,
    UsageError,
)
from runner.images import content, recipe, signing
from runner.images.build import set_tag
from runner.images.events import Note, Output, Progress, ignore

SILENCE = 120.0
"""Seconds without a byte until a registry has failed."""
LOAD_SILENCE = 600.0
REFERENCE = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._:\-]*(?:/[a-z0-9][a-z0-9._-]*)*?)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?\Z"
)
LABEL_KIT = "dev.sbx.kit"
BASES = "sbx/debian"


@dataclass(frozen=True)
class Reference:
    """`NAME[:TAG][@sha256:…]`, taken apart."""

    name: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> Reference:
    """Take an image's reference apart; without tag and digest the tag is `latest`.

    Raises:
        UsageError: it is none.
    """
    match = REFERENCE.match(text)
    # A host may have a port, a name after it may not hold a colon.
    if match is None or (":" in match["name"] and "/" not in match["name"]):
        raise UsageError(f"{text!r} is not an image's reference", hint="NAME:TAG or NAME@sha256:…, in lower case")
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return Reference(match["name"], tag, match["digest"] or "")


def push(engine: Engine, reference: str, *, source: str = "", progress: Progress = ignore) -> str:
    """Push an image, and its signature if there is one.

    Args:
        reference: where to.
        source: an image in the engine that gets this name first; empty: it has it.

    Returns: `NAME@sha256:…`, what pins it.

    Raises:
        NotFoundError: it is not in the engine.
        ImageError: it carries no recipe, or the registry refuses or is not there.
    """
    wanted = parse_reference(reference)
    if wanted.digest:
        raise UsageError("a digest is what a push gives; name a tag", hint=f"{wanted.name}:TAG")
    document = _inspect(engine, source or reference)
    labels = (document.get("Config") or {}).get("Labels") or {}
    if recipe.LABEL not in labels:
        raise ImageError(
            f"{source or reference} carries no recipe and could not be run elsewhere",
            place=reference,
            hint="`sbx image build KIT` makes one that does",
        )
    if source:
        set_tag(engine, source, f"{wanted.name}:{wanted.tag}")
    digest = _push(engine, wanted.name, wanted.tag, progress)
    if signing.kept(engine, document["Id"]) is not None:
        tag = signing.tag_of(document["Id"], wanted.name)
        set_tag(engine, signing.tag_of(document["Id"]), tag)
        _push(engine, wanted.name, tag.rpartition(":")[2], progress)
        progress(Note(f"its signature is {tag}"))
    return f"{wanted.name}@{digest}" if digest else str(wanted)


def pull(engine: Engine, reference: str, *, progress: Progress = ignore) -> str:
    """Pull an image, and its signature if there is one. Returns its id.

    Raises:
        ImageError: the registry is not there, refuses, or has none; or serves other content than the digest says.
    """
    wanted = parse_reference(reference)
    progress(Note(f"pulling {wanted}"))
    _messages(
        engine, f"pulling {wanted}", lambda: _api_pull(engine, wanted.name, wanted.digest or wanted.tag), progress
    )
    document = _inspect(engine, str(wanted))
    if wanted.digest and f"{wanted.name}@{wanted.digest}" not in (document.get("RepoDigests") or ()):
        raise ImageError(f"the registry served other content than {wanted.digest}", place=reference)
    identity = str(document["Id"])
    tag = signing.tag_of(identity, wanted.name)
    # Most images have none, and a registry that does not answer now has answered already.
    with contextlib.suppress(ImageError, EngineError, NotFoundError):
        _messages(engine, f"pulling {tag}", lambda: _api_pull(engine, wanted.name, tag.rpartition(":")[2]), ignore)
        signing.adopt(engine, identity, tag)
        progress(Note("its signature came along"))
    return identity


def save(engine: Engine, file: Path, references: Sequence[str], *, progress: Progress = ignore) -> int:
    """Write images, and their signatures, to a tar. Returns its bytes. A save that is cut leaves no file.

    Raises:
        NotFoundError: one is not in the engine.
        ImageError: one carries no recipe.
        UsageError: the file cannot be written.
    """
    names = []
    for reference in references:
        document = _inspect(engine, reference)
        labels = (document.get("Config") or {}).get("Labels") or {}
        if recipe.LABEL not in labels:
            hint = "`sbx image build KIT` makes one that does"
            raise ImageError(f"{reference} carries no recipe and could not be run elsewhere", hint=hint)
        # By digest or id, the tar would name nothing to run it by.
        names.append(str(parse_reference(reference)) if "@" not in reference else str(document["Id"]))
        if signing.kept(engine, document["Id"]) is not None:
            names.append(signing.tag_of(document["Id"]))
    progress(Note(f"writing {file}"))
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    size = 0
    try:
        with aside.open("wb") as out, engine.call(f"saving {' '.join(references)}", LOAD_SILENCE):
            for chunk in _saved(engine, names):
                size += out.write(chunk)
        aside.replace(file)
    except OSError as error:
        if isinstance(error, EngineError):
            raise
        raise UsageError(f"{file} cannot be written: {error.strerror or error}", place=str(file)) from None
    finally:
        aside.unlink(missing_ok=True)
    return size


def load(engine: Engine, file: Path, *, replace: bool = False, progress: Progress = ignore) -> list[str]:
    """Load a tar of images, after all of it was read and checked here. Returns the tags, or ids of what has none.

    Args:
        replace: a tag that names another image here is moved.

    Raises:
        UsageError: the file cannot be read.
        ImageError: it is cut, hostile, no image, or would move a tag.
    """
    try:
        with file.open("rb") as source:
            found = content.read(iter(lambda: source.read(content.CHUNK), b""))
            names = _checked(engine, found, file, replace)
            source.seek(0)
            progress(Note(f"loading {', '.join(names)}"))
            # Only a generator is sent in pieces.
            pieces = (chunk for chunk in iter(lambda: source.read(content.CHUNK), b""))
            api: Any = engine.api
            _messages(engine, f"loading {file}", lambda: api.load_image(pieces), progress, LOAD_SILENCE)
    except OSError as error:
        if isinstance(error, EngineError):
            raise
        raise UsageError(f"{file} cannot be read: {error.strerror or error}", place=str(file)) from None
    return names


def _checked(engine: Engine, images: Iterable[content.Content], file: Path, replace: bool) -> list[str]:
    names: list[str] = []
    for image in images:
        if image.digests != image.claimed():
            raise ImageError("not a whole image: a layer's content is not what its name says", place=str(file))
        signature = image.labels.get(signing.LABEL, "")
        if recipe.LABEL not in image.labels and not signature:
            raise ImageError(
                f"it holds an image without a recipe ({', '.join(image.tags) or image.id})",
                place=str(file),
                hint="`docker load` takes it; `sbx run` cannot run it by itself",
            )
        for tag in image.tags:
            if tag.startswith(f"{signing.REPOSITORY}:") != bool(signature):
                raise ImageError(f"it would lay an image under the name {tag}, which is not its own", place=str(file))
            try:
                here = str(_inspect(engine, tag)["Id"])
            except NotFoundError:
                continue
            if here != image.id and not replace and not signature:
                raise ImageError(
                    f"{tag} names another image here", place=str(file), hint="`--replace` moves the name to the new one"
                )
        if not signature:
            names += image.tags or [image.id]
    if not names:
        raise ImageError("it holds no image", place=str(file))
    return names


@dataclass(frozen=True)
class Listed:
    """An image of ours in the engine."""

    id: str
    tags: tuple[str, ...]
    kit: str
    size: int
    created: int
    """Seconds since 1970."""
    shareable: bool
    """It carries its recipe."""
    version: str
    containers: int
    """How many sandboxes were made from it."""

    def to_json(self) -> dict[str, object]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def ls(engine: Engine) -> list[Listed]:
    """All images of ours, by kit, the newest first."""
    used: dict[str, int] = {}
    for container in engine.get("/containers/json?all=1", doing="listing the containers", timeout=20.0):
        used[container["ImageID"]] = used.get(container["ImageID"], 0) + 1
    found = []
    for image in engine.get("/images/json", doing="listing the images", timeout=30.0):
        labels = image.get("Labels") or {}
        if kit := labels.get(LABEL_KIT):
            tags = tuple(sorted(tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"))
            count = used.get(image["Id"], 0)
            version = labels.get("dev.sbx.version", "")
            found.append(
                Listed(image["Id"], tags, kit, image["Size"], image["Created"], recipe.LABEL in labels, version, count)
            )
    return sorted(found, key=lambda image: (image.kit, -image.created, image.id))


def rm(engine: Engine, reference: str) -> None:
    """Remove an image of ours, or one of its names.

    Raises:
        NotFoundError: there is none.
        UsageError: it is not of our making.
        InUseError: a sandbox was made from it.
    """
    document = _inspect(engine, reference)
    labels = (document.get("Config") or {}).get("Labels") or {}
    if LABEL_KIT not in labels:
        raise UsageError(f"{reference} was not made by sbx", hint="`docker image rm` removes it")
    signature = signing.tag_of(document["Id"])
    _remove(engine, reference)
    try:
        _inspect(engine, document["Id"])
    except NotFoundError:
        with contextlib.suppress(NotFoundError, EngineError):
            _remove(engine, signature)


def prune(engine: Engine, kits: Sequence[str] = (), *, everything: bool = False) -> list[Listed]:
    """Remove images of ours that no sandbox uses: all but the newest of each kit, or with `everything` these too.

    Args:
        kits: only images of these.
    """
    gone = []
    newest: set[str] = set()
    for image in ls(engine):
        if kits and image.kit not in kits:
            continue
        keep = not everything and image.kit not in newest and bool(image.tags)
        if keep:
            newest.add(image.kit)
        if keep or image.containers:
            continue
        try:
            for name in image.tags or (image.id,):
                _remove(engine, name)
        except (InUseError, NotFoundError, EngineError):
            continue  # somebody uses it, or another image stands on it
        with contextlib.suppress(NotFoundError, EngineError):
            _remove(engine, signing.tag_of(image.id))
        gone.append(image)
    return gone


def _remove(engine: Engine, name: str) -> None:
    try:
        engine.request("DELETE", f"/images/{name}", doing=f"removing {name}")
    except EngineError as error:
        if "is using" in error.message or "being used" in error.message or "in use" in error.message:
            raise InUseError(
                f"{name} is in use by a sandbox", hint="`sbx ls` lists them, `sbx rm` removes one"
            ) from None
        raise


def _inspect(engine: Engine, reference: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")
    except NotFoundError:
        raise NotFoundError(
            f"there is no image {reference} here", hint="`sbx image ls`, `sbx image pull REF`"
        ) from None
    return document


def _push(engine: Engine, name: str, tag: str, progress: Progress) -> str:
    progress(Note(f"pushing {name}:{tag}"))
    digest = ""
    doing = f"pushing {name}:{tag}"

    def start() -> Any:
        return engine.api.push(name, tag, stream=True, decode=True)

    for message in _messages(engine, doing, start, progress):
        aux = message.get("aux")
        digest = str(aux.get("Digest", digest)) if isinstance(aux, dict) else digest
    return digest


def _api_pull(engine: Engine, name: str, tag: str) -> Any:
    return engine.api.pull(name, tag, stream=True, decode=True)


def _saved(engine: Engine, names: Sequence[str]) -> Iterator[bytes]:
    """The tar of several images; the SDK's own call takes one."""
    api: Any = engine.api
    answer = api._get(api._url("/images/get"), params={"names": list(names)}, stream=True)
    api._raise_for_status(answer)
    yield from answer.iter_content(content.CHUNK)


def _messages(
    engine: Engine, doing: str, start: Callable[[], Any], progress: Progress, silence: float | None = None
) -> list[Mapping[str, Any]]:
    """What the engine says while it talks to a registry. What the registry says no to is the image's error, code 5."""
    found: list[Mapping[str, Any]] = []
    silence = silence or SILENCE
    try:
        with _credentials(doing), engine.call(doing, silence):
            for message in _decoded(start()):
                if error := message.get("error"):
                    raise EngineError(str(error))
                found.append(message)
                if text := message.get("stream"):
                    progress(Output(str(text)))
    except EngineTimeout as error:
        raise ImageError(
            f"nothing came for {silence:g} s while {doing}", hint="the registry may be slow or gone"
        ) from error
    except EngineUnreachable:
        raise
    except (EngineError, NotFoundError) as error:
        raise ImageError(f"{doing} failed: {error.message}", hint=_hint(error.message)) from error
    return found


def _decoded(answer: Any) -> Iterator[Mapping[str, Any]]:
    for message in answer or ():
        if isinstance(message, Mapping):
            yield message


@contextlib.contextmanager
def _credentials(doing: str) -> Iterator[None]:
    from docker.credentials.errors import StoreError
    from docker.errors import DockerException

    try:
        yield
    except StoreError as error:
        raise ConfigError(f"a credential helper failed while {doing}: {error}", place=_config()) from None
    except DockerException as error:
        if "redential" not in str(error):
            raise
        raise ConfigError(f"a credential helper failed while {doing}: {error}", place=_config()) from None
    except EngineError as error:
        if "redential" not in error.message or ("helper" not in error.message and "store" not in error.message):
            raise
        raise ConfigError(f"a credential helper failed while {doing}: {error.message}", place=_config()) from None


def _config() -> str:
    folder = os.environ.get("DOCKER_CONFIG") or str(Path(os.environ.get("HOME") or Path.home()) / ".docker")
    return str(Path(folder) / "config.json")


def _hint(text: str) -> str | None:
    lowered = text.lower()
    if re.search(r"unauthorized|authentication required|no basic auth|denied|401", lowered):
        return "log in: `docker login HOST`, or name a credential helper in ~/.docker/config.json"
    if re.search(r"toomanyrequests|429|rate limit", lowered):
        return "the registry counts requests; log in, or try again later"
    if re.search(r"refused|no such host|timeout|deadline|unreachable|server misbehaving|eof", lowered):
        return "is the registry there? the engine asks it, not this command"
    if "manifest unknown" in lowered or "not found" in lowered:
        return "the registry has no such name or digest"
    if "no space left" in lowered:
        return "the engine's disk is full: `sbx image prune`, `docker system df` shows what takes it"
    return None
