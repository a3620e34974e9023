"""What an image holds, read from the tar that an engine writes of it: every layer hashed, every file with its hash.

Nothing in the image is run to know it. A tar from a registry or a colleague is as hostile as it likes, so the reader
takes names as names only, keeps the content of few small files, and bounds how much of anything it takes.

Two forms are read: that of Docker's `save`, and the OCI layout that newer engines write, whose layers may be packed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from runner.errors import ImageError

CHUNK = 1024 * 1024
MAX_DOCUMENT = 16 * 1024 * 1024
"""Bytes of one JSON document of an image, and of one file whose content is kept."""
MAX_ENTRIES = 3_000_000
"""Files of one image."""
MAX_KEPT = 256 * 1024 * 1024
"""Bytes of file content that are kept of one image."""
RECIPE = "opt/sbx/recipe"
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"

KEPT = re.compile(
    r"^(?:var/lib/dpkg/status(?:\.d/[^/]+)?|(?:.*/)?[^/]+\.(?:dist|egg)-info/(?:METADATA|PKG-INFO)"
    rf"|(?:.*/)?node_modules/(?:@[^/]+/)?[^/]+/package\.json|{RECIPE}/.*)$"
)
"""Files whose content is kept: those that name package versions, and the recipe."""


class Entry(NamedTuple):
    """One file of an image, as far as it can be told from another."""

    kind: str
    """`file`, `dir`, `link`, `device`, `fifo`."""
    mode: int
    owner: str
    """`UID:GID`."""
    said: str
    """Hex SHA-256 of a file's content, a link's target, a device's numbers."""
    attributes: str = ""
    """Hex SHA-256 over extended attributes, such as file capabilities; empty without."""

    def line(self, path: str) -> str:
        return json.dumps([path, self.kind, f"{self.mode:04o}", self.owner, self.said, self.attributes])


@dataclass
class Layer:
    """One layer, as its tar says."""

    digest: str = ""
    """`sha256:…` of the unpacked tar: what Docker calls its diff id."""
    entries: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    kept: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """An image as it was read."""

    id: str
    """`sha256:…` of its configuration, which names the layers."""
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    tags: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return dict((self.config.get("config") or {}).get("Labels") or {})

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(layer.digest for layer in self.layers)

    def claimed(self) -> tuple[str, ...]:
        """The layers as the configuration names them."""
        return tuple((self.config.get("rootfs") or {}).get("diff_ids") or ())

    def files(self, count: int | None = None) -> tuple[dict[str, Entry], dict[str, bytes]]:
        """All files after the first `count` layers, and the content of those that are kept."""
        files: dict[str, Entry] = {}
        kept: dict[str, bytes] = {}
        for layer in self.layers[:count]:
            gone = layer.removed | {f"{folder}/" for folder in layer.emptied}
            if gone:
                for path in [path for path in files if _is_gone(path, gone)]:
                    del files[path]
                    kept.pop(path, None)
            for path, entry in layer.entries.items():
                files[path] = entry
                if path not in layer.kept:
                    kept.pop(path, None)
            kept |= layer.kept
        return files, kept


def read(chunks: Iterable[bytes]) -> tuple[Content, ...]:
    """The images in the tar that `chunks` come to.

    Raises:
        ImageError: it is cut, no image, or beyond a bound.
    """
    documents: dict[str, bytes] = {}
    layers: dict[str, Layer] = {}
    aliases: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=_Stream(iter(chunks)), mode="r|") as tar:
            for member in tar:
                name = checked_name(member.name)
                if member.issym() or member.islnk():
                    target = member.linkname
                    aliases[name] = posixpath.normpath(
                        posixpath.join(posixpath.dirname(name), target) if member.issym() else target
                    )
                elif member.isfile():
                    source = tar.extractfile(member)
                    assert source is not None
                    _member(name, member.size, source, documents, layers)
                elif not member.isdir():
                    raise ImageError(f"not an image: {name} is neither a file nor a folder")
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, OSError) as error:
        raise ImageError(f"not a whole image: {error}", hint="the file may be cut, or is no tar of an image") from None
    if "manifest.json" not in documents:
        raise ImageError("not an image: it has no manifest.json", hint="`docker save` and `sbx image save` write one")
    return tuple(_images(documents, layers, aliases))


def checked_name(name: str) -> str:
    """A member's name, normalised; one that walks out is refused."""
    clean = posixpath.normpath(name)
    if clean.startswith(("/", "..")) or "\0" in clean:
        raise ImageError(f"a hostile tar: it holds the name {name!r}")
    return clean


def manifest(files: Mapping[str, Entry]) -> bytes:
    """One line of JSON a file, sorted; the recipe itself aside, since it holds this."""
    lines = [entry.line(path) for path, entry in sorted(files.items()) if not in_recipe(path)]
    return ("\n".join(lines) + "\n").encode()


def parse_manifest(text: bytes) -> dict[str, Entry]:
    """What `manifest` wrote.

    Raises:
        ImageError: it is not of that form.
    """
    found = {}
    try:
        for line in text.decode("utf-8").splitlines():
            path, kind, mode, owner, said, attributes = json.loads(line)
            found[str(path)] = Entry(str(kind), int(mode, 8), str(owner), str(said), str(attributes))
    except (ValueError, TypeError) as error:
        raise ImageError(f"the image's manifest of files cannot be read: {error}") from None
    return found


def in_recipe(path: str) -> bool:
    return path == RECIPE or path.startswith(f"{RECIPE}/")


def _is_gone(path: str, gone: set[str]) -> bool:
    if path in gone:
        return True
    at = path.find("/")
    while at != -1:
        if path[:at] in gone or path[: at + 1] in gone:
            return True
        at = path.find("/", at + 1)
    return False


def _member(name: str, size: int, source: IO[bytes], documents: dict[str, bytes], layers: dict[str, Layer]) -> None:
    """A document or a layer; which one, its first bytes say, since newer engines name all alike."""
    head = source.read(512)
    if name.endswith(("VERSION", "/repositories")) or name in ("repositories", "oci-layout"):
        return
    if head[:1] in (b"{", b"["):
        if size > MAX_DOCUMENT:
            raise ImageError(f"not an image: {name} is {size} bytes of JSON")
        documents[name] = head + source.read()
        return
    again: Any = _Joined(head, source)
    unpacked: Any = gzip.GzipFile(fileobj=again) if head[:2] == b"\x1f\x8b" else again
    layers[name] = _layer(unpacked)


def _layer(source: Any) -> Layer:
    hashed: Any = _Hashing(source)
    layer = Layer()
    links: dict[str, str] = {}
    size = 0
    with tarfile.open(fileobj=hashed, mode="r|", errorlevel=2) as tar:
        for member in tar:
            if len(layer.entries) > MAX_ENTRIES:
                raise ImageError(f"a layer of over {MAX_ENTRIES} files")
            path = checked_name(member.name)
            folder, _, base = path.rpartition("/")
            if base == OPAQUE:
                layer.emptied.add(folder)
            elif base.startswith(WHITEOUT):
                layer.removed.add(f"{folder}/{base.removeprefix(WHITEOUT)}".lstrip("/"))
            elif member.islnk():
                links[path] = checked_name(member.linkname)
            elif path != ".":
                keep = KEPT.match(path) is not None and member.size <= MAX_DOCUMENT and size < MAX_KEPT
                layer.entries[path], content = _entry(tar, member, keep)
                if content is not None:
                    layer.kept[path] = content
                    size += len(content)
    while hashed.read(CHUNK):
        pass  # what follows the tar's end counts for the hash
    for path, target in links.items():
        # A hard link is the same file under a second name.
        layer.entries[path] = layer.entries.get(target) or Entry("file", 0, "", f"hard link to {target}")
        if target in layer.kept and KEPT.match(path):
            layer.kept[path] = layer.kept[target]
    layer.digest = f"sha256:{hashed.digest.hexdigest()}"
    return layer


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo, keep: bool) -> tuple[Entry, bytes | None]:
    content = None
    if member.isfile():
        kind = "file"
        digest = hashlib.sha256()
        source = tar.extractfile(member)
        assert source is not None
        pieces = []
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            if keep:
                pieces.append(chunk)
        said = digest.hexdigest()
        content = b"".join(pieces) if keep else None
    elif member.isdir():
        kind, said = "dir", ""
    elif member.issym():
        kind, said = "link", member.linkname
    elif member.isfifo():
        kind, said = "fifo", ""
    else:
        kind, said = "device", f"{member.type!r} {member.devmajor}:{member.devminor}"
    extended = sorted((k, v) for k, v in member.pax_headers.items() if k.startswith("SCHILY.xattr."))
    attributes = hashlib.sha256(repr(extended).encode()).hexdigest() if extended else ""
    return Entry(kind, member.mode & 0o7777, f"{member.uid}:{member.gid}", said, attributes), content


def _images(
    documents: Mapping[str, bytes], layers: Mapping[str, Layer], aliases: Mapping[str, str]
) -> Iterator[Content]:
    for image in _json(documents["manifest.json"], list):
        if not isinstance(image, dict):
            raise ImageError("not an image: manifest.json is not a list of images")
        name = checked_name(str(image.get("Config")))
        raw = documents.get(name)
        if raw is None:
            raise ImageError(f"not a whole image: {name} is not in it")
        found = []
        for path in image.get("Layers") or ():
            path = checked_name(str(path))
            for _ in range(8):
                path = aliases.get(path, path)
            if path not in layers:
                raise ImageError(f"not a whole image: the layer {path} is not in it")
            found.append(layers[path])
        tags = tuple(str(tag) for tag in image.get("RepoTags") or ())
        yield Content(f"sha256:{hashlib.sha256(raw).hexdigest()}", _json(raw, dict), tuple(found), tags)


def _json(raw: bytes, kind: Callable[..., Any]) -> Any:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise ImageError(f"not an image: {error}") from None
    if type(document) is not kind:
        raise ImageError("not an image: a document of it is of another form")
    return document


class _Stream(io.RawIOBase):
    """A file of chunks that arrive."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        pieces, wanted = [], size
        while wanted > 0:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    break
            pieces.append(self._rest[:wanted])
            wanted -= len(pieces[-1])
            self._rest = self._rest[len(pieces[-1]) :]
        return b"".join(pieces)


class _Joined:
    """What was read ahead, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]):
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        if size < 0:
            head, self._head = self._head, b""
            return head + self._rest.read()
        head, self._head = self._head[:size], self._head[size:]
        return head + self._rest.read(size - len(head)) if len(head) < size else head


class _Hashing:
    def __init__(self, source: Any):
        self._source = source
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._source.read(size)
        self.digest.update(chunk)
        return chunk
