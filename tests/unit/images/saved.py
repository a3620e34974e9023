"""Tars as engines write them, made by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence


def tar(members: Mapping[str, bytes | str | None], *, links: Mapping[str, str] | None = None) -> bytes:
    """A tar: bytes are files, a text is a symbolic link's target, None is a folder; `links` are hard links."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, target
            archive.addfile(member)
    return raw.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(
    layers: Sequence[bytes],
    *,
    tags: Sequence[str] = ("sbx/x:1",),
    labels: Mapping[str, str] | None = None,
    claimed: Sequence[str] | None = None,
    packed: bool = False,
) -> bytes:
    """An image's tar: in Docker's own form, or with `packed` as the OCI layout of newer engines."""
    config = json.dumps(
        {
            "config": {"Labels": dict(labels or {}), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": list(claimed or map(digest, layers))},
        }
    ).encode()
    members: dict[str, bytes | str | None] = {}
    paths = []
    for number, layer in enumerate(layers):
        data = gzip.compress(layer) if packed else layer
        path = f"blobs/sha256/{digest(data)[7:]}" if packed else f"{number:064x}/layer.tar"
        members[path] = data
        paths.append(path)
    name = f"blobs/sha256/{digest(config)[7:]}" if packed else f"{digest(config)[7:]}.json"
    members[name] = config
    members["manifest.json"] = json.dumps([{"Config": name, "RepoTags": list(tags), "Layers": paths}]).encode()
    return tar(members)
