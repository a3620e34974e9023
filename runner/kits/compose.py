"""Several kits become one plan: the sandbox kit with what it extends, its mixins, then the mixins of the command line.

Order is meaning here. Install, startup and files run in the order of the kits; where two kits say different things
about the same name, the later one wins, and the user is told with both places. What cannot be told from an accident
(one credential declared twice, one kit twice) is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.errors import ConfigError
from runner.kits.arguments import GivenArguments
from runner.kits.base import plan_base
from runner.kits.document import Listing, Mapping, Node, Scalar
from runner.kits.find import Finder, Location
from runner.kits.load import Kit, load_kit
from runner.kits.plan import (
    Base,
    CopiedFile,
    Credential,
    InitFile,
    Instruction,
    KitRef,
    Layer,
    Network,
    Plan,
    Port,
    Resources,
    Rule,
    Startup,
    Variable,
    Volume,
)

MAX_PARENTS = 5
"""Longest chain of `extends`."""
DEFAULT_INSTRUCTIONS = "AGENTS.md"


def compose(
    sandbox: str | Path,
    kits: Sequence[str] = (),
    *,
    arguments: GivenArguments | None = None,
    finder: Finder | None = None,
    strict: bool = False,
    checking: bool = False,
) -> Plan:
    """Compose the sandbox kit `sandbox` and the mixins `kits` into a plan.

    Args:
        sandbox: name, folder or pinned reference of a kit of kind sandbox.
        kits: the same for mixins, in the order of the command line's `--kit`.
        arguments: values for the kits' arguments.
        strict: a clash is an error.
        checking: required arguments may lack their value.

    Raises:
        NotFoundError: a kit is not there.
        ConfigError: a kit is wrong, or the kits do not fit together.
        UsageError: an argument lacks a value, is unknown, or its value does not fit.
    """
    loader = _Loader(finder or Finder(), arguments or GivenArguments(), checking)
    chain = loader.chain(str(sandbox.absolute() if isinstance(sandbox, Path) else sandbox))
    base = chain[-1]
    mixins = [mixin for kit in chain for mixin in loader.mixins_of(kit)]
    mixins += [loader.mixin(reference, None) for reference in kits]
    for kit in mixins:
        if kit.spec.requires_agent and kit.spec.requires_agent.text not in {parent.name for parent in chain}:
            raise ConfigError(
                f"the mixin {kit.name} is for the sandbox kit {kit.spec.requires_agent.text!r}, not for {base.name!r}",
                place=kit.spec.requires_agent.place,
            )
    loader.arguments.check_all_used()
    merge = _Merge()
    for kit in chain:
        merge.add(kit, inherits=True)
    for kit in mixins:
        merge.add(kit)
    if strict and merge.clashes:
        first, *others = merge.clashes
        raise ConfigError(
            f"kits clash: {first}", log="\n".join(others) or None, hint="without --strict the later kit wins"
        )
    return merge.plan(chain)


class _Loader:
    def __init__(self, finder: Finder, arguments: GivenArguments, checking: bool):
        self.finder = finder
        self.arguments = arguments
        self.checking = checking
        self.names: dict[str, Kit] = {}

    def load(self, location: Location, asked_at: str = "") -> Kit:
        kit = load_kit(
            location.folder,
            self.arguments.for_kit,
            origin=location.origin,
            root=location.root,
            checking=self.checking,
        )
        if first := self.names.get(kit.name):
            raise ConfigError(
                f"the kit {kit.name!r} takes part twice: {first.origin} and {kit.origin}", place=asked_at or kit.origin
            )
        self.names[kit.name] = kit
        return kit

    def chain(self, reference: str) -> list[Kit]:
        """The sandbox kit and its parents, the eldest first."""
        location = self.finder.locate(reference, "sandbox")
        kit = self.load(location)
        if kit.spec.kind != "sandbox":
            raise ConfigError(f"{kit.name} is a mixin; a sandbox kit is wanted here", place=kit.origin)
        chain = [kit]
        seen = {_identity(location)}
        while extends := chain[0].spec.extends:
            child = chain[0]
            with blaming(extends.place):
                location = self.finder.locate(extends.text, "sandbox", beside=location_of(child))
            if _identity(location) in seen:
                names = " → ".join([k.name for k in reversed(chain)] + [extends.text])
                raise ConfigError(f"extends runs in a circle: {names}", place=extends.place)
            seen.add(_identity(location))
            if len(chain) > MAX_PARENTS:
                raise ConfigError(f"extends is deeper than {MAX_PARENTS} levels", place=extends.place)
            parent = self.load(location, extends.place)
            if parent.spec.kind != "sandbox":
                raise ConfigError(f"extends names {parent.name!r}, a mixin", place=extends.place)
            chain.insert(0, parent)
        _check_locked(chain)
        return chain

    def mixins_of(self, kit: Kit) -> list[Kit]:
        found = []
        for entry in kit.spec.mixins:
            with blaming(entry.place):
                found.append(self.mixin(entry.text, kit, entry.place))
        return found

    def mixin(self, reference: str, asking: Kit | None, place: str = "") -> Kit:
        location = self.finder.locate(reference, "mixin", beside=location_of(asking) if asking else None)
        kit = self.load(location, place)
        if kit.spec.kind == "sandbox":
            raise ConfigError(
                f"{kit.name} is a second sandbox kit; only mixins can be added", place=place or kit.origin
            )
        return kit


class blaming:
    """Gives an error without a place the place of the reference that led to it."""

    def __init__(self, place: str):
        self.place = place

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from runner.errors import SbxError

        if isinstance(error, SbxError) and error.place is None:
            error.place = self.place


def location_of(kit: Kit) -> Location:
    return Location(kit.folder, kit.origin, kit.root)


def _identity(location: Location) -> str:
    return str(location.folder.resolve())


def _check_locked(chain: Sequence[Kit]) -> None:
    """A path that a parent locks must not be set by its children."""
    for index, parent in enumerate(chain):
        for path in parent.spec.locked:
            for child in chain[index + 1 :]:
                node: Node | None = child.document.root if child.document else None
                for step in path.split("."):
                    entry = node.entries.get(step) if isinstance(node, Mapping) else None
                    node = entry[1] if entry else None
                empty = (isinstance(node, Scalar) and node.value is None) or (
                    isinstance(node, Listing) and not node.items
                )
                if node is not None and not empty and child.document:
                    raise ConfigError(f"{path} is locked by {parent.name}", place=child.document.at(node))


@dataclass
class _Merge:
    """The plan in the making. `add` takes the kits in order."""

    layers: list[Layer] = field(default_factory=list)
    kits: list[KitRef] = field(default_factory=list)
    allow: list[Rule] = field(default_factory=list)
    deny: list[Rule] = field(default_factory=list)
    install_allow: list[Rule] = field(default_factory=list)
    install_deny: list[Rule] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    startup: list[Startup] = field(default_factory=list)
    files: dict[str, InitFile] = field(default_factory=dict)
    home: dict[str, tuple[CopiedFile, str]] = field(default_factory=dict)
    workspace: dict[str, tuple[CopiedFile, str]] = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    volumes: dict[str, Volume] = field(default_factory=dict)
    credentials: dict[str, Credential] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    privileged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    places: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, kit: Kit, *, inherits: bool = False) -> None:
        """Merge a kit in. With `inherits` it is of a chain of `extends`, whose children change it on purpose."""
        spec = kit.spec
        name = kit.name
        self.kits.append(
            KitRef(name, spec.kind, kit.digest(), kit.origin, kit.arguments, spec.version, spec.description)
        )
        self.layers.append(Layer(name, spec.kind, kit.layer_digest(), spec.install, kit.home, kit.install_network))
        self.warnings += kit.warnings
        self.allow += [Rule(text, name) for text in spec.allow]
        self.deny += [Rule(text, name) for text in spec.deny]
        self.install_allow += [Rule(text, name) for text in spec.install_allow]
        self.install_deny += [Rule(text, name) for text in spec.install_deny]
        for variable, entry in spec.variables.items():
            old = self.variables.pop(variable, None)
            if old and old.value != entry.text and not inherits:
                self.clash(f"the variable {variable}", ("variables", variable), entry.place)
            self.places["variables", variable] = entry.place
            self.variables[variable] = Variable(variable, entry.text, name)
        self.startup += [replace(entry, source=name) for entry in spec.startup]
        self._add_files(kit, inherits)
        self.ports += [replace(port, source=name) for port in spec.ports]
        for volume in spec.volumes:
            place = spec.places["volumes", volume.path]
            mine = replace(volume, source=name)
            old_volume = self.volumes.pop(volume.path, None)
            if old_volume and replace(old_volume, source="") != volume and not inherits:
                self.clash(f"the volume {volume.path}", ("volumes", volume.path), place)
            self.places["volumes", volume.path] = place
            self.volumes[volume.path] = mine
        for credential in spec.credentials:
            self._add_credential(replace(credential, source=name), spec.places["credentials", credential.service])
        if spec.instructions:
            filename = spec.instructions_file or DEFAULT_INSTRUCTIONS if spec.kind == "sandbox" else f"{name}.md"
            self.instructions.append(Instruction(name, filename, spec.instructions))
        if spec.privileged:
            self.privileged.append(name)

    def clash(self, what: str, key: tuple[str, str], place: str) -> None:
        line = f"{what} is set by two kits: {self.places[key]}, and {place}, which wins"
        self.clashes.append(line)
        self.warnings.append(line)

    def _add_files(self, kit: Kit, inherits: bool) -> None:
        for file in kit.spec.files:
            place = kit.spec.places["files", file.path]
            old = self.files.pop(file.path, None)
            if old and (old.content, old.mode) != (file.content, file.mode) and not inherits:
                self.clash(f"the file {file.path}", ("files", file.path), place)
            self.places["files", file.path] = place
            self.files[file.path] = replace(file, source=kit.name)
        for target, copies, mine in (("home", self.home, kit.home), ("workspace", self.workspace, kit.workspace)):
            for copied in mine:
                place = str(kit.folder / "files" / target / copied.path)
                before = copies.pop(copied.path, None)
                if before and before[0] != copied and not inherits:
                    self.clash(f"the file files/{target}/{copied.path}", (target, copied.path), place)
                self.places[target, copied.path] = place
                copies[copied.path] = (copied, kit.name)

    def _add_credential(self, credential: Credential, place: str) -> None:
        service = credential.service
        first = self.credentials.get(service)
        if first is None:
            self.places["credentials", service] = place
            self.credentials[service] = credential
            return
        routes_only = bool(credential.inject) and not (credential.required or credential.oauth or credential.provider)
        if not routes_only or credential.variable not in ("", first.variable):
            raise ConfigError(
                f"the credential {service!r} is declared twice; first at {self.places['credentials', service]}",
                place=place,
                hint="a later kit may only add inject rules to it",
            )
        together = tuple(dict.fromkeys(first.inject + credential.inject))
        self.credentials[service] = replace(first, inject=together)

    def plan(self, chain: Sequence[Kit]) -> Plan:
        """The plan; `chain` is the sandbox kit with its parents, the eldest first."""
        kit = chain[-1]
        base, resources, entrypoint, command, interactive = _sandbox(chain)
        warnings = list(self.warnings)
        if entrypoint or command or interactive:
            warnings.append(
                f"{kit.origin}: sandbox.entrypoint and command start another agent and are left aside; "
                "sbx shell --entrypoint starts them"
            )
        return Plan(
            name=kit.name,
            base=base,
            layers=tuple(self.layers),
            kits=tuple(self.kits),
            network=Network(
                *(_unique(rules) for rules in (self.allow, self.deny, self.install_allow, self.install_deny))
            ),
            environment=tuple(self.variables.values()),
            startup=tuple(self.startup),
            files=tuple(self.files.values()),
            workspace=tuple(file for file, _ in self.workspace.values()),
            ports=tuple(self.ports),
            volumes=tuple(self.volumes.values()),
            credentials=tuple(self.credentials.values()),
            instructions=tuple(self.instructions),
            resources=resources,
            privileged=tuple(self.privileged),
            entrypoint=entrypoint,
            command=command,
            interactive=interactive,
            warnings=tuple(dict.fromkeys(warnings)),
        )


def _unique(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules without repetitions; the first source of a text is kept."""
    first: dict[str, Rule] = {}
    for rule in rules:
        first.setdefault(rule.text, rule)
    return tuple(first.values())


def _sandbox(chain: Sequence[Kit]) -> tuple[Base, Resources, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What the `sandbox` blocks say together: the youngest kit that says something decides it."""
    base: Base | None = None
    resources = Resources()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    interactive: tuple[str, ...] | None = None
    for kit in chain:
        sandbox = kit.spec.sandbox
        if sandbox is None:
            continue
        base = plan_base(kit) or base
        resources = Resources(
            sandbox.cpus or resources.cpus, sandbox.memory or resources.memory, sandbox.gpu or resources.gpu
        )
        entrypoint = sandbox.entrypoint or entrypoint
        if sandbox.command or sandbox.interactive is not None:
            command, interactive = sandbox.command, sandbox.interactive
    if base is None:
        kit = chain[-1]
        raise ConfigError("sandbox.image: neither this kit nor any that it extends names one", place=kit.origin)
    return base, resources, entrypoint, command, command if interactive is None else interactive
