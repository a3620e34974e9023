"""`schemaVersion: "2"`: the grammar that kits are written in."""

from __future__ import annotations

from runner.kits import rules
from runner.kits.arguments import Argument
from runner.kits.blocks import (
    Places,
    network_list,
    read_build,
    read_credentials,
    read_files,
    read_install,
    read_ports,
    read_startup,
    read_volumes,
    warn_of_unreached,
)
from runner.kits.document import Listing, Mapping, Scalar
from runner.kits.plan import InitFile, Install, Startup
from runner.kits.section import Reading, Section
from runner.kits.spec import Entry, Sandbox, Spec

KINDS = ("sandbox", "mixin")

_OLD = 'is a key of schemaVersion "1"; in "2" it is '
OLD_KEYS = {
    "agent": _OLD + "'sandbox'",
    "agentContext": _OLD + "'agentInstructions.content'",
    "aiFilename": _OLD + "'agentInstructions.filename'",
    "binary": _OLD + "'sandbox.entrypoint'",
    "caps": _OLD + "'permissions'",
    "commands": _OLD + "'setup'",
    "egress": _OLD + "'credentials[].apiKey.inject'",
    "kitDir": 'is a key of schemaVersion "1" that has no successor; leave it out',
    "memory": _OLD + "'agentInstructions.content'",
    "network": _OLD + "'permissions.network'",
    "oauth": _OLD + "'credentials[].oauth'",
    "persistence": 'is a key of schemaVersion "1" that has no successor; leave it out',
    "publishedPorts": _OLD + "'ports'",
    "runOptions": _OLD + "'sandbox.entrypoint'",
    "secrets": _OLD + "'credentials'",
    "settings": 'is a key of schemaVersion "1" that has no successor; write the files under setup.files',
    "template": _OLD + "'sandbox.image'",
    "tmpfs": _OLD + "'volumes' with type: tmpfs",
}


def read_spec(reading: Reading, arguments: dict[str, Argument]) -> Spec:
    """Decode a spec of the second schema; faults go to `reading`."""
    root = reading.root(OLD_KEYS)
    places: Places = {}
    root.known.extend(("schemaVersion", "args"))
    kind = root.text("kind", rules.one_of(*KINDS), required=True)
    name = root.text("name", rules.kit_name, required=True)
    extends = _entry(root, "extends")
    sandbox = _read_sandbox(root, kind, extends)
    mixins = tuple(Entry(item.text, reading.at(item)) for item in root.scalars("mixins", rules.not_empty, unique=True))
    if kind == "mixin":
        for key in ("extends", "mixins"):
            if key in root:
                root.fail(key, "is for kind sandbox only")
    if mixins:
        reading.ours(
            root.node.get("mixins"), "mixins are applied by this program only; Docker's command reads and ignores them"
        )
    instructions_file, instructions = _read_instructions(root, kind)
    allow, deny, install_allow, install_deny = _read_permissions(root)
    credentials = read_credentials(root, "credentials", places)
    warn_of_unreached(reading, credentials, allow, places)
    install, startup, files = _read_setup(root, places)
    spec = Spec(
        schema="2",
        kind=kind,
        name=name,
        version=root.text("version"),
        display_name=root.text("displayName"),
        description=root.text("description"),
        source_url=root.text("sourceURL"),
        licenses=root.texts("licenses", rules.not_empty, unique=True),
        locked=root.texts("locked", rules.dotted_path, unique=True),
        arguments=arguments,
        sandbox=sandbox,
        extends=extends,
        mixins=mixins,
        requires_agent=_read_requires(root, kind),
        instructions_file=instructions_file,
        instructions=instructions,
        allow=allow,
        deny=deny,
        install_allow=install_allow,
        install_deny=install_deny,
        ports=read_ports(root, "ports"),
        credentials=credentials,
        variables=read_variables(root),
        install=install,
        startup=startup,
        files=files,
        volumes=read_volumes(root, "volumes", places),
        privileged=read_privileged(root),
        places=places,
    )
    root.close()
    return spec


def read_variables(root: Section) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    with root.section("environment") as environment:
        if environment is not None:
            environment.elsewhere = {"proxyManaged": _OLD + "'credentials[].apiKey.proxyManaged'"}
            for name, key, value in environment.pairs("variables", rules.own_variable):
                found[name] = Entry(value.text, environment.reading.at(key))
    return found


def read_privileged(root: Section) -> bool:
    with root.section("security") as security:
        return bool(security is not None and security.flag("privileged"))


def _entry(root: Section, key: str) -> Entry | None:
    text = root.text(key, rules.not_empty)
    return Entry(text, root.reading.at(root.node.get(key))) if text else None


def _read_sandbox(root: Section, kind: str, extends: Entry | None) -> Sandbox | None:
    reading = root.reading
    with root.section("sandbox") as section:
        if section is None:
            if kind == "sandbox" and not extends and "sandbox" not in root:
                root.missing("sandbox")
            return None
        if kind == "mixin":
            root.fail("sandbox", "is for kind sandbox only")
        image = section.text("image", rules.image)
        with section.section("build") as build_section:
            build = read_build(build_section)
        if build and image:
            reading.warn(section.node.get("build"), "sandbox.build is left aside: sandbox.image is used")
            build = None
        elif build:
            reading.ours(section.node.get("build"), "sandbox.build without sandbox.image is built by this program only")
        if not image and not build and not extends:
            reading.problem(section.node, "sandbox.image: is required, or sandbox.build")
        entrypoint = section.texts("entrypoint")
        command, interactive = _read_command(section)
        cpus, memory, gpu = _read_resources(section)
        return Sandbox(image, build, entrypoint, command, interactive, cpus, memory, gpu)


def _read_command(section: Section) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    value = section.peek("command")
    if isinstance(value, Mapping):
        with section.section("command") as forms:
            assert forms is not None
            default = forms.texts("default")
            return default, forms.texts("interactive") if "interactive" in forms else None
    if isinstance(value, Scalar):
        section.take("command")
        section.fail("command", "must be a list, or a mapping with default and interactive")
        return (), None
    return section.texts("command"), None


def _read_resources(section: Section) -> tuple[float | None, int | None, str]:
    with section.section("resources") as resources:
        if resources is None:
            return None, None, ""
        cpus = resources.number("cpu")
        if cpus is not None and not 0 <= cpus < 1e6:
            resources.fail("cpu", "must be a number of cores, 0 or more")
            cpus = None
        size = resources.text("memory", rules.size)
        memory = rules.parse_size(size) if size and not rules.size(size) else None
        return cpus or None, memory, resources.text("gpu")


def _read_instructions(root: Section, kind: str) -> tuple[str, str]:
    with root.section("agentInstructions") as section:
        if section is None:
            return "", ""
        filename = section.text("filename", rules.file_name)
        content = section.text("content")
        if filename and kind == "mixin":
            section.reading.warn(section.node.get("filename"), "agentInstructions.filename is left aside in a mixin")
            filename = ""
        return filename, content


def _read_permissions(root: Section) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    with root.section("permissions") as permissions:
        if permissions is None:
            return (), (), (), ()
        with permissions.section("network") as network:
            if network is None:
                return (), (), (), ()
            allow, deny = network_list(network, "allow"), network_list(network, "deny")
            with network.section("install") as install:
                if install is None:
                    return allow, deny, (), ()
                root.reading.ours(install.node, "permissions.network.install is read by this program only")
                return allow, deny, network_list(install, "allow"), network_list(install, "deny")


def _read_setup(root: Section, places: Places) -> tuple[tuple[Install, ...], tuple[Startup, ...], tuple[InitFile, ...]]:
    with root.section("setup") as setup:
        if setup is None:
            return (), (), ()
        setup.elsewhere = {"initFiles": _OLD + "'setup.files'"}
        return read_install(setup, "install"), read_startup(setup, "startup"), read_files(setup, "files", places)


def _read_requires(root: Section, kind: str) -> Entry | None:
    with root.section("requires") as requires:
        if requires is None:
            return None
        if kind == "sandbox":
            root.fail("requires", "is for kind mixin only")
        if isinstance(requires.peek("agent"), Listing):
            requires.take("agent")
            requires.fail("agent", "names one sandbox kit, not a list")
            return None
        name = requires.text("agent", rules.kit_name, required=True)
        return Entry(name, requires.reading.at(requires.node.get("agent"))) if name else None
