"""One kit read from its folder: the spec decoded by its schema, arguments filled in, files collected, digests taken."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits.arguments import fill, protect, read_arguments, resolve
from runner.kits.copied import read_copied_files
from runner.kits.document import Document, Scalar, load_mapping, read_text
from runner.kits.document import Mapping as YamlMapping
from runner.kits.plan import Base, CopiedFile, Rule
from runner.kits.section import Reading
from runner.kits.spec import Sandbox, Spec

SPEC_NAMES = ("spec.yaml", "spec.yml")
AGENT_NAME = "agent.yaml"

Values = Callable[[str, Iterable[str]], Mapping[str, str]]
"""From a kit's name and its declared arguments to the values given for them."""


@dataclass(frozen=True)
class Kit:
    """A kit, read and checked by itself."""

    spec: Spec
    folder: Path
    origin: str
    """How it was named: a folder, or a pinned reference."""
    home: tuple[CopiedFile, ...] = ()
    workspace: tuple[CopiedFile, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    """Where it goes beyond Docker's grammar."""
    document: Document | None = field(default=None, compare=False, repr=False)
    root: Path | None = None
    """Folder that relative references of this kit must not leave; set for kits from elsewhere."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def install_network(self) -> tuple[Rule, ...]:
        return tuple(Rule(text, self.name) for text in self.spec.install_allow)

    def layer_digest(self) -> str:
        """Hex SHA-256 over what shapes this kit's layer of the image."""
        return _digest(
            [
                "layer",
                self.spec.kind,
                self.name,
                [(entry.command, entry.user) for entry in self.spec.install],
                [_file_digest(file) for file in self.home],
                list(self.spec.install_allow),
                list(self.spec.install_deny),
            ]
        )

    def digest(self) -> str:
        """Hex SHA-256 over everything the kit says, arguments filled in. Comments and the order of keys say nothing."""
        said = self.document.data if self.document else {"name": self.name}
        return _digest(
            [
                "kit",
                {key: value for key, value in said.items() if key != "args"},
                list(self.arguments),
                [_file_digest(file) for file in self.home],
                [_file_digest(file) for file in self.workspace],
            ]
        )


def load_kit(
    folder: Path | str,
    values: Values | None = None,
    *,
    origin: str | None = None,
    root: Path | None = None,
    checking: bool = False,
) -> Kit:
    """Read the kit in `folder`.

    Args:
        folder: the kit's folder, or its `spec.yaml`.
        values: gives the values of its arguments; without it only defaults count.
        origin: how it was named, when not by its folder.
        root: folder that its relative references must not leave.
        checking: required arguments may lack a value; whatever uses them is then not held against its rules.

    Raises:
        NotFoundError: there is no such folder.
        ConfigError: the spec or a file is wrong: the first fault, the others in its `log`.
        UsageError: an argument lacks its value, or breaks its enum or pattern.
    """
    path = find_spec(Path(folder))
    if path is None:
        return _agent_only(Path(folder), origin, root)
    text, names = protect(read_text(path), path)
    document = load_mapping(path, source=text)
    reading = Reading(document)
    schema = _schema(reading)
    if schema == "2":
        declared = read_arguments(reading)
        reading.finish()
        given = values(_name(document), declared) if values else {}
        filled = resolve(declared, given)
        missing = [name for name in declared if name not in filled]
        if missing and not checking:
            kit = _name(document)
            raise UsageError(
                f"the kit {kit} needs the argument {missing[0]!r}",
                place=declared[missing[0]].place,
                hint=f"say --kit-arg {kit}.{missing[0]}=VALUE",
            )
        fill(reading, names, declared, filled)
        from runner.kits.schema2 import read_spec

        spec = read_spec(reading, declared)
        files = read_copied_files(path.parent, filled, waiting=checking)
    else:
        from runner.kits.schema1 import read_spec as read_first_spec

        filled = {}
        spec = read_first_spec(reading)
        files = read_copied_files(path.parent, None)
    reading.finish()
    return Kit(
        spec,
        path.parent,
        origin or str(path.parent),
        files.home,
        files.workspace,
        tuple(sorted(filled.items())),
        (*reading.warnings, *files.warnings),
        tuple(reading.beyond),
        document,
        root,
    )


def find_spec(path: Path) -> Path | None:
    """The spec file of a kit's folder; `None` when it has an `agent.yaml` alone.

    Raises:
        NotFoundError: there is no such folder.
        ConfigError: it holds neither.
    """
    if path.name in SPEC_NAMES and not path.is_dir():
        return path
    for name in SPEC_NAMES:
        if (path / name).exists():
            return path / name
    if not path.is_dir():
        raise NotFoundError(f"no such folder: {path}", place=str(path))
    if (path / AGENT_NAME).exists():
        return None
    raise ConfigError(
        "holds neither spec.yaml nor agent.yaml", place=str(path), hint="sbx kit init NAME makes a kit to start from"
    )


def _agent_only(folder: Path, origin: str | None, root: Path | None) -> Kit:
    """The kit of a folder that has no spec: an agent on the base image."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:64].strip("-") or "agent"
    spec = Spec(schema="2", kind="sandbox", name=name, sandbox=Sandbox(image=Base().image))
    return Kit(spec, folder, origin or str(folder), root=root)


def _schema(reading: Reading) -> str:
    """`schemaVersion`, which decides the grammar before anything else is looked at."""
    root = reading.document.root
    node = root.get("schemaVersion")
    if node is None:
        near = "" if "schemaVersion" in root.entries else _near_schema(root)
        reading.problem(root, f"schemaVersion: is required{near}")
    elif not isinstance(node, Scalar) or node.text not in ("1", "2"):
        shown = repr(node.text) if isinstance(node, Scalar) else "that"
        reading.problem(node, f'schemaVersion: {shown} is not read here, only "1" and "2"')
    else:
        return node.text
    reading.finish()
    raise AssertionError


def _near_schema(root: YamlMapping) -> str:
    from runner.kits.document import nearest

    for name in root.entries:
        if nearest(name, ("schemaVersion",)):
            return f"; there is {name!r}"
    return ""


def _name(document: Document) -> str:
    node = document.root.get("name")
    return node.text if isinstance(node, Scalar) else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode()).hexdigest()


def _file_digest(file: CopiedFile) -> list[object]:
    return [file.path, file.mode, file.link, hashlib.sha256(file.content).hexdigest()]
