"""The Dockerfile of a plan, as a person would read it, and the files it copies.

The order is by how seldom a part changes: the base, what every guest needs, one group a kit in merge order, the
program. A changed mixin so builds itself and what follows it; a new version of sbx builds the program's layer only.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping

from runner.images import program
from runner.images.program import ContextFile
from runner.kits.data import data_folder
from runner.kits.plan import Install, Layer, Plan

RUN = "/opt/sbx/build/run"
HEADER = "# Made by sbx from the kits named below. Edit those: this file is written anew at each build."
PRECOMPILE = "python3 -m compileall -q --invalidation-mode unchecked-hash -j 0 /opt/sbx/lib"
"""The root is read-only in a sandbox: without this, each start compiles the guest and its libraries again."""


def render(plan: Plan, base: str, labels: Mapping[str, str]) -> str:
    """The Dockerfile.

    Args:
        plan: what to build.
        base: the reference to start from, as `base.resolve` found it.
        labels: of the image.
    """
    lines = [HEADER, f"FROM {base}", "USER 0", "COPY build/ /opt/sbx/build/", f'SHELL ["{RUN}"]']
    lines += ["", "# What every sandbox needs: Python, setpriv, git, curl, certificates, the user agent."]
    lines += ["RUN /opt/sbx/build/guest-needs", "WORKDIR /home/agent"]
    for number, layer in enumerate(plan.layers, 1):
        lines += _group(number, layer)
    lines += ["", "# The program: the guest, its libraries, the ready-made hooks."]
    lines += ["COPY program/ /opt/sbx/", f"RUN {PRECOMPILE}", 'SHELL ["/bin/sh", "-c"]']
    # An image's own way to start is another agent's; the sandbox says at its creation what is started.
    lines += ["ENTRYPOINT []", 'CMD ["bash"]', ""]
    if labels:
        lines.append("LABEL " + " \\\n    ".join(f"{name}={_quoted(value)}" for name, value in sorted(labels.items())))
    return "\n".join(lines) + "\n"


def context(plan: Plan, dockerfile: str) -> bytes:
    """The build's context as a tar: sorted, without times and owners, so that the builder's cache hits."""
    found = [ContextFile("Dockerfile", dockerfile.encode())]
    found += recipe()
    for number, layer in enumerate(plan.layers, 1):
        found += [
            ContextFile(f"{_folder(number, layer)}/home/{file.path}", file.content, file.mode, file.link)
            for file in layer.home
        ]
    found += [ContextFile(f"program/{file.path}", file.content, file.mode, file.link) for file in program.files()]
    return pack(found)


def recipe() -> list[ContextFile]:
    """The scripts that run in a build."""
    folder = data_folder("images") / "build"
    return [
        ContextFile(f"build/{path.name}", path.read_bytes(), 0o755)
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.endswith("~")
    ]


def digest(plan: Plan) -> str:
    """Hex SHA-256 over all that shapes the image and is known without an engine.

    The host's index, proxy and certificates do not count: they say where packages come from, not which.
    """
    total = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            content = part if isinstance(part, bytes) else str(part).encode()
            total.update(len(content).to_bytes(8, "big") + content)

    base = plan.base
    add(render(plan, base.image, {}), base.digest, base.image, base.dockerfile, base.target, repr(base.args))
    # `kits` has hashed the files of a kit's own base already; a plan made by hand has not.
    if base.context is not None and not base.digest:
        for file in folder_files(plan):
            add(file.path, file.mode, file.link, file.content)
    for file in recipe():
        add(file.path, file.content)
    for layer in plan.layers:
        add(layer.kit, layer.digest)
        for copied in layer.home:
            add(copied.path, copied.mode, copied.link, copied.content)
    add(program.digest())
    return total.hexdigest()


def folder_files(plan: Plan) -> list[ContextFile]:
    """The files of a kit's own build context; links are kept as links, `.git` is left out."""
    root = plan.base.context
    found: list[ContextFile] = []
    if root is None:
        return found
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if ".git" in relative.parts:
            continue
        if path.is_symlink():
            found.append(ContextFile(relative.as_posix(), b"", 0o777, str(path.readlink())))
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found.append(ContextFile(relative.as_posix(), path.read_bytes(), mode))
    return found


def pack(files: Iterable[ContextFile]) -> bytes:
    """A tar of `files` and the folders above them, the same bytes for the same files."""
    raw = io.BytesIO()
    folders: set[str] = set()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(files, key=lambda file: file.path):
            parts = file.path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in folders:
                    folders.add(folder)
                    member = tarfile.TarInfo(folder)
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
            member = tarfile.TarInfo(file.path)
            member.mode = file.mode & 0o7777
            if file.link:
                member.type, member.linkname = tarfile.SYMTYPE, file.link
                tar.addfile(member)
            else:
                member.size = len(file.content)
                tar.addfile(member, io.BytesIO(file.content))
    return raw.getvalue()


def _group(number: int, layer: Layer) -> list[str]:
    lines = ["", f"# {layer.kind} {layer.kit}, {layer.digest[:12]}"]
    user = "0"
    for install in layer.install:
        wanted = "agent" if install.user == "1000" else install.user
        if wanted != user:
            lines.append(f"USER {wanted}")
            user = wanted
        lines += _run(install)
    if user != "0":
        lines.append("USER 0")
    if layer.home:
        lines.append(f"COPY --chown=1000:1000 {_folder(number, layer)}/home/ /home/agent/")
    return lines if len(lines) > 2 else [*lines, "# (nothing to install)"]


def _run(install: Install) -> list[str]:
    comment = [f"# {line}" for line in install.description.splitlines()]
    command = install.command.strip()
    # The plain form where a Dockerfile reads it as it stands; not a flag, a list, a heredoc or a continued line.
    if "\n" not in command and "<<" not in command and re.match(r"[A-Za-z0-9_./:(]", command) and command[-1] != "\\":
        return [*comment, f"RUN {command}"]
    shown = [f"#   {line}".rstrip().removesuffix("\\") for line in command.splitlines()]
    return [*comment, *shown, f"RUN {json.dumps([RUN, install.command], ensure_ascii=False)}"]


def _folder(number: int, layer: Layer) -> str:
    return f"layers/{number:02}-{layer.kit}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("\n", " ")
    return f'"{escaped}"'
