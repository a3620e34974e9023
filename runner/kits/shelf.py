"""Making a new kit and listing those that are there: `sbx kit init` and `sbx kit ls`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from runner.errors import InUseError, SbxError, UsageError
from runner.kits import rules
from runner.kits.find import Finder
from runner.kits.load import load_kit
from runner.kits.schema2 import KINDS

SANDBOX_SPEC = """\
# A sandbox kit: what the agent's sandbox is made of. Grammar: docs/reference/kits.md
schemaVersion: "2"
kind: sandbox
name: {name}
description: ""

sandbox:
  image: {image}
  resources:
    cpu: 2
    memory: 4g

# Mixins add tools. Each is a name (see `sbx kit ls`), a folder, or a pinned reference; they apply in this order.
mixins: []

# What the agent may reach. Nothing else leaves the sandbox.
permissions:
  network:
    allow: []
    # - api.example.com          one host, port 443
    # - "*.example.com"          one label below
    # - localhost:5432           another port

environment:
  variables: {{}}

setup:
  # Run once, when the image is built.
  install: []
  # - command: apt-get update && apt-get install -y --no-install-recommends jq
  #   user: "0"
  # Run at every start, as the workspace's owner.
  startup: []
  # - command: [sh, -c, "mkdir -p ~/.cache/tool"]
"""

MIXIN_SPEC = """\
# A mixin: something that any sandbox kit can add. Grammar: docs/reference/kits.md
schemaVersion: "2"
kind: mixin
name: {name}
description: ""

# What may be set by `--kit-arg {name}.version=…`, and used as ${{{{ kit.args.version }}}}.
args:
  version:
    default: "1.0"
    pattern: '[0-9]+(\\.[0-9]+)*'

permissions:
  network:
    allow: []

environment:
  variables: {{}}

setup:
  # Run once, when the image is built.
  install: []
  # - command: install-tool --version "${{{{ kit.args.version }}}}"
  #   user: "0"

agentInstructions:
  content: |
    Tell the agent in a few lines what this mixin gives it.
"""

AGENT = """\
# The agent: which model it talks to, which tools it has, what it is told. Without this file: all defaults.
provider: llmman
# model:                 without one, the first that the server lists
# baseUrl: http://127.0.0.1:17434/v1

bashTool: true
editTools: true

system: |
  You are a careful assistant. You work in the folder you were started in.
"""

README = """\
# {name}

What this kit is for, in two lines.

Check it with `sbx kit validate {name}`, look at what it does with `sbx kit inspect {name}`{run}.
"""


def init(name: str, folder: Path | str = ".", *, kind: str = "sandbox", image: str = "debian:bookworm-slim") -> Path:
    """Write the skeleton of a kit to `folder/name`.

    Returns:
        The new folder.

    Raises:
        UsageError: the name or kind is none; InUseError: the folder is there and not empty.
    """
    if fault := rules.kit_name(name):
        raise UsageError(fault)
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of kit", hint="say sandbox or mixin")
    target = Path(folder) / name
    files = {
        "spec.yaml": (SANDBOX_SPEC if kind == "sandbox" else MIXIN_SPEC).format(name=name, image=image),
        "README.md": README.format(
            name=name,
            run=f", start it with `sbx run ./{name}`" if kind == "sandbox" else f", add it with `--kit ./{name}`",
        ),
    }
    if kind == "sandbox":
        files["agent.yaml"] = AGENT
        files["playground/.gitkeep"] = ""
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise InUseError(f"{target} is there already, and not empty", place=str(target))
        for path, content in files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {os.strerror(error.errno or 0)}", place=str(target)) from None
    return target


@dataclass(frozen=True)
class Listed:
    """A kit that can be named by a bare word."""

    name: str
    kind: str
    source: str
    """`ready-made` or `user`."""
    folder: str
    version: str = ""
    description: str = ""
    error: str = ""
    """Why it cannot be read."""
    hidden: bool = False
    """Another kit of the same name and kind is found first."""

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "kind": self.kind,
            "source": self.source,
            "folder": self.folder,
            "version": self.version,
            "description": self.description,
            "error": self.error,
            "hidden": self.hidden,
        }


def ls(finder: Finder | None = None) -> tuple[Listed, ...]:
    """All kits that can be named by a bare word, sandbox kits first, each group by name."""
    finder = finder or Finder()
    found: list[Listed] = []
    seen: set[tuple[str, str]] = set()
    for name, folder, source in finder.names():
        try:
            spec = load_kit(folder, checking=True).spec
            listed = Listed(name, spec.kind, source, str(folder), spec.version, spec.description)
        except SbxError as error:
            listed = Listed(name, "", source, str(folder), error=str(error))
        key = (listed.kind, name)
        found.append(listed if key not in seen else Listed(**{**vars(listed), "hidden": True}))
        seen.add(key)
    return tuple(sorted(found, key=lambda kit: (kit.kind != "sandbox", kit.name, kit.hidden)))
