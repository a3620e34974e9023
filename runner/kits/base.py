"""What the image starts from: a reference, or the kit's own build, whose files then count for the plan's hash."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

from runner.errors import ConfigError
from runner.kits.load import Kit
from runner.kits.plan import Base

MAX_CONTEXT_FILES = 20_000
MAX_CONTEXT_BYTES = 512 * 1024 * 1024
CHUNK = 1024 * 1024


def plan_base(kit: Kit) -> Base | None:
    """The base that a kit's `sandbox` block names; `None` when it leaves that to its parent.

    Raises:
        ConfigError: the build's folder or Dockerfile is not there, leads out of the kit, or is too large.
    """
    sandbox = kit.spec.sandbox
    if sandbox is None or not (sandbox.image or sandbox.build):
        return None
    if sandbox.build is None:
        return Base(sandbox.image, digest=_hash(["image", sandbox.image]))
    build = sandbox.build
    context = Path(os.path.normpath(kit.folder / build.context))
    real, top = Path(os.path.realpath(context)), Path(os.path.realpath(kit.folder))
    if not real.is_relative_to(top):
        raise ConfigError("sandbox.build.context leads out of the kit's folder", place=kit.origin)
    if not context.is_dir():
        raise ConfigError(f"sandbox.build.context: no such folder: {context}", place=kit.origin)
    dockerfile = context / build.dockerfile
    if not Path(os.path.realpath(dockerfile)).is_relative_to(real):
        raise ConfigError("sandbox.build.dockerfile leads out of its context", place=kit.origin)
    if not dockerfile.is_file():
        raise ConfigError(f"sandbox.build.dockerfile: no such file: {dockerfile}", place=kit.origin)
    digest = _hash(["build", build.dockerfile, build.args, build.target, _context_digest(context)])
    return Base("", context, build.dockerfile, build.args, build.target, digest)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _context_digest(context: Path) -> str:
    """Hex SHA-256 over names, modes, links and contents below a folder, `.git` aside."""
    total = hashlib.sha256()
    files = size = 0
    for folder, folders, names in os.walk(context):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted([*names, *(f for f in folders if (Path(folder) / f).is_symlink())]):
            path = Path(folder) / name
            status = path.lstat()
            files += 1
            size += status.st_size
            if files > MAX_CONTEXT_FILES or size > MAX_CONTEXT_BYTES:
                raise ConfigError(
                    f"sandbox.build.context is too large: more than {MAX_CONTEXT_FILES:,} files or "
                    f"{MAX_CONTEXT_BYTES >> 20} MiB",
                    place=str(context),
                )
            relative = path.relative_to(context).as_posix()
            header = [relative, bool(status.st_mode & stat.S_IXUSR)]
            if stat.S_ISLNK(status.st_mode):
                total.update(json.dumps([*header, str(path.readlink())]).encode())
            elif stat.S_ISREG(status.st_mode):
                total.update(json.dumps([*header, _file_digest(path)]).encode())
            else:
                raise ConfigError("is neither a file, a folder nor a link", place=str(path))
    return total.hexdigest()


def _file_digest(path: Path) -> str:
    content = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            content.update(chunk)
    return content.hexdigest()
