"""`schemaVersion: "1"`: the grammar before, folded into what the second one says, with a warning for each folded block.

Its four places for one credential (`credentials.sources`, `network.serviceDomains`, `network.serviceAuth`,
`environment.proxyManaged`) and a fifth for OAuth become one credential a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runner.kits import document as yaml
from runner.kits import rules
from runner.kits.blocks import (
    TMPFS,
    Places,
    network_list,
    read_build,
    read_credentials,
    read_files,
    read_install,
    read_oauth,
    read_ports,
    read_startup,
    read_volumes,
    warn_of_unreached,
)
from runner.kits.document import Listing, Node, Scalar
from runner.kits.plan import Credential, InitFile, Inject, Install, Port, Startup, Volume
from runner.kits.schema2 import read_privileged
from runner.kits.section import Reading, Section
from runner.kits.spec import Entry, Sandbox, Spec

KINDS = ("agent", "sandbox", "mixin")

_NEW = 'is a key of schemaVersion "2"; in "1" it is '
NEW_KEYS = {
    "agentInstructions": _NEW + "'agentContext'",
    "args": 'is a key of schemaVersion "2"; schema 1 has no arguments',
    "permissions": _NEW + "'network'",
    "ports": _NEW + "'publishedPorts'",
    "requires": 'is a key of schemaVersion "2"; schema 1 has nothing like it',
    "setup": _NEW + "'commands'",
    "template": "is read only as 'sandbox.image'",
    "binary": "is read only as 'sandbox.entrypoint.run'",
    "runOptions": "is read only as 'sandbox.entrypoint.args'",
    "aiFilename": "is read only as 'sandbox.aiFilename'",
}

WELL_KNOWN = {
    "anthropic": ("x-api-key", "%s"),
    "google": ("x-goog-api-key", "%s"),
    "github": ("Authorization", "token %s"),
    **dict.fromkeys(
        ("openai", "xai", "nebius", "mistral", "groq", "cursor", "factory"), ("Authorization", "Bearer %s")
    ),
}
"""Header and format of services that `egress` names without saying more."""
SERVICE_OF = {"GH_TOKEN": "github", "GITHUB_TOKEN": "github"}
SUFFIXES = ("_api_key", "_token", "_key", "_secret")
MIB = 1024 * 1024


def read_spec(reading: Reading) -> Spec:
    """Decode a spec of the first schema; faults and folds go to `reading`."""
    root = reading.root(NEW_KEYS)
    root.known.append("schemaVersion")
    places: Places = {}
    kind = root.text("kind", rules.one_of(*KINDS), required=True)
    if kind == "agent":
        _folded(root, "kind", "kind: agent is now kind: sandbox")
        kind = "sandbox"
    name = root.text("name", rules.kit_name, required=True)
    for key in ("settings", "kitDir", "persistence"):
        _dropped(root, key)
    extends = root.text("extends", rules.not_empty)
    sandbox, ai_filename = _read_sandbox(root, kind, bool(extends))
    network = _read_network(root)
    variables, proxy_managed = _read_environment(root)
    credentials = _read_credentials(root, network, proxy_managed, places)
    allow, deny = _read_caps(root)
    allow += network.allow
    deny += network.deny
    warn_of_unreached(reading, credentials, allow, places)
    install, startup, files = _read_commands(root, places)
    spec = Spec(
        schema="1",
        kind=kind,
        name=name,
        version=root.text("version"),
        display_name=root.text("displayName"),
        description=root.text("description"),
        source_url=root.text("sourceURL"),
        licenses=root.texts("licenses", rules.not_empty, unique=True),
        locked=root.texts("locked", rules.dotted_path, unique=True),
        sandbox=sandbox,
        extends=Entry(extends, reading.at(root.node.get("extends"))) if extends else None,
        mixins=tuple(Entry(i.text, reading.at(i)) for i in root.scalars("mixins", rules.not_empty, unique=True)),
        instructions_file=ai_filename,
        instructions=_read_instructions(root),
        allow=tuple(dict.fromkeys(allow)),
        deny=tuple(dict.fromkeys(deny)),
        ports=_read_ports(root, network),
        credentials=credentials,
        variables=variables,
        install=install,
        startup=startup,
        files=files,
        volumes=_read_volumes(root, places),
        privileged=read_privileged(root),
        places=places,
    )
    if kind == "mixin":
        for key in ("extends", "mixins"):
            if key in root:
                root.fail(key, "is for kind sandbox only")
    root.close()
    return spec


def _folded(section: Section, key: str, what: str) -> None:
    section.reading.warn(section.key_node(key), f"schema 1: {what}")


def _dropped(section: Section, key: str) -> None:
    if section.take(key) is not None:
        section.reading.warn(section.key_node(key), f"schema 1: {section.where(key)} has no effect and is left aside")


def _read_sandbox(root: Section, kind: str, extends: bool) -> tuple[Sandbox | None, str]:
    reading = root.reading
    old, new = "agent" in root, "sandbox" in root
    if old:
        _folded(root, "agent", "the block agent is now sandbox")
    if old and new:
        root.fail("agent", "agent and sandbox are the same block; keep one")
        root.take("sandbox")
    with root.section("agent" if old else "sandbox") as section:
        if section is None:
            if kind == "sandbox" and not extends:
                root.missing("agent")
            return None, ""
        if kind == "mixin":
            reading.problem(section.node, f"{section.where()}: is for kind agent only")
        image = section.text("image", rules.image)
        with section.section("build") as build_section:
            build = read_build(build_section)
        if build and image:
            reading.warn(section.node.get("build"), f"{section.where('build')} is left aside: the image is used")
            build = None
        if not image and not build and not extends:
            reading.problem(section.node, f"{section.where('image')}: is required")
        filename = section.text("aiFilename", rules.file_name)
        _dropped(section, "persistence")
        entrypoint, command, interactive = _read_entrypoint(section)
        cpus, memory, gpu = _read_resources(section)
        return Sandbox(image, build, entrypoint, command, interactive, cpus, memory, gpu), filename


def _read_entrypoint(section: Section) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    with section.section("entrypoint") as entrypoint:
        if entrypoint is None:
            return (), (), None
        _folded(section, "entrypoint", "entrypoint {run, args, ttyArgs} is now sandbox.entrypoint and sandbox.command")
        run, args = entrypoint.texts("run"), entrypoint.texts("args")
        tty = entrypoint.texts("ttyArgs") if "ttyArgs" in entrypoint else None
        entrypoint.known.append("ttyArgs")
        _dropped(entrypoint, "pipeMode")
        return run, args, tty


def _read_resources(section: Section) -> tuple[float | None, int | None, str]:
    with section.section("resources") as resources:
        if resources is None:
            return None, None, ""
        cpus = resources.number("cpu")
        if cpus is not None and not 0 <= cpus < 1e6:
            resources.fail("cpu", "must be a number of cores, 0 or more")
            cpus = None
        memory = resources.integer("memoryMB", least=0, most=2**40)
        return cpus or None, memory * MIB if memory else None, resources.text("gpu")


@dataclass
class _Network:
    """The block `network`, and `egress`, which is short for two of its parts."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    domains: dict[str, str] = field(default_factory=dict)
    """Domain → service."""
    headers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Service → header and format."""
    ports: tuple[Port, ...] = ()
    place: str = ""


def _read_network(root: Section) -> _Network:
    found = _Network()
    with root.section("network") as section:
        if section is not None:
            found.place = root.reading.at(section.node)
            found.allow = network_list(section, "allowedDomains")
            found.deny = network_list(section, "deniedDomains")
            for domain, key, service in section.pairs("serviceDomains", rules.network):
                if not service.text:
                    section.reading.problem(key, f"network.serviceDomains.{domain}: must name a service")
                found.domains[domain] = service.text
            for service_name, auth in section.named_sections("serviceAuth"):
                header = auth.text("headerName", rules.not_empty, required=True)
                form = auth.text("valueFormat", rules.format_text, required=True)
                found.headers[service_name.text] = (header, form)
            found.ports = read_ports(section, "publishedPorts")
            for old, successor in (
                ("allowedDomains", "permissions.network.allow"),
                ("deniedDomains", "permissions.network.deny"),
                ("serviceDomains", "credentials[].apiKey.inject[].domain"),
                ("serviceAuth", "credentials[].apiKey.inject[].header and format"),
                ("publishedPorts", "ports"),
            ):
                if old in section:
                    _folded(section, old, f"network.{old} is now {successor}")
    if "egress" in root:
        _folded(root, "egress", "egress is now credentials[].apiKey.inject")
    for domain, key, service in root.pairs("egress", rules.network):
        found.place = found.place or root.reading.at(key)
        if domain in found.domains:
            root.reading.problem(key, f"egress.{domain}: network.serviceDomains names this domain too")
        found.domains[domain] = service.text
        if service.text in WELL_KNOWN:
            found.headers.setdefault(service.text, WELL_KNOWN[service.text])
    return found


def _read_environment(root: Section) -> tuple[dict[str, Entry], list[Scalar]]:
    variables: dict[str, Entry] = {}
    with root.section("environment") as environment:
        if environment is None:
            return {}, []
        for name, key, value in environment.pairs("variables", rules.own_variable):
            variables[name] = Entry(value.text, environment.reading.at(key))
        managed = environment.scalars("proxyManaged", rules.variable_name)
        if managed:
            _folded(environment, "proxyManaged", "environment.proxyManaged is now credentials[].apiKey")
        return variables, managed


def _read_caps(root: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    with root.section("caps") as caps:
        if caps is None:
            return (), ()
        _folded(root, "caps", "caps.network is now permissions.network")
        with caps.section("network") as network:
            return ((), ()) if network is None else (network_list(network, "allow"), network_list(network, "deny"))


def _service_of(variable: str) -> str:
    """The service that a variable's name tells: `ACME_API_KEY` → `acme`."""
    if variable in SERVICE_OF:
        return SERVICE_OF[variable]
    name = variable.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


@dataclass
class _Pending:
    required: bool = False
    variable: str = ""
    inject: list[Inject] = field(default_factory=list)
    place: str = ""


def _read_credentials(
    root: Section, network: _Network, managed: list[Scalar], places: Places
) -> tuple[Credential, ...]:
    reading = root.reading
    listed: tuple[Credential, ...] = ()
    pending: dict[str, _Pending] = {}
    service_of: dict[str, str] = {}
    if isinstance(root.peek("credentials"), Listing):
        listed = read_credentials(root, "credentials", places)
    else:
        _read_sources(root, pending, service_of)
    _read_secrets(root, pending, service_of)
    settled = {credential.service for credential in listed}
    for domain in sorted(network.domains):
        service = network.domains[domain]
        header, form = network.headers.get(service, ("", "%s"))
        pending.setdefault(service, _Pending(place=network.place)).inject.append(Inject(domain, header, form))
    for variable in managed:
        service = service_of.get(variable.text) or _service_of(variable.text)
        entry = pending.setdefault(service, _Pending(place=reading.at(variable)))
        entry.variable = entry.variable or variable.text
    found = {credential.service: credential for credential in listed}
    for service in sorted(pending.keys() - settled):
        entry = pending[service]
        places["credentials", service] = entry.place
        found[service] = Credential(
            service,
            source="",
            required=entry.required,
            variable=entry.variable,
            env=(entry.variable,) if entry.variable else (),
            inject=tuple(entry.inject),
        )
    _fold_oauth(root, found, places)
    return tuple(found.values())


def _read_sources(root: Section, pending: dict[str, _Pending], service_of: dict[str, str]) -> None:
    with root.section("credentials") as block:
        if block is None:
            return
        if "sources" in block:
            _folded(block, "sources", "credentials.sources is now the list credentials")
        for service, source in block.named_sections("sources"):
            env = source.texts("env", rules.variable_name)
            with source.section("file") as file:
                if file is not None:
                    file.text("path", rules.not_empty, required=True)
                    file.text("parser")
            if not env and file is None:
                root.reading.problem(service, f"{source.where()}: needs env or file")
            source.text("priority", rules.one_of("env-first", "file-first"))
            required = bool(source.flag("required"))
            pending[service.text] = _Pending(required, env[0] if env else "", place=root.reading.at(service))
            service_of.update(dict.fromkeys(env, service.text))


def _read_secrets(root: Section, pending: dict[str, _Pending], service_of: dict[str, str]) -> None:
    secrets = root.scalars("secrets", rules.variable_name)
    if secrets:
        _folded(root, "secrets", "secrets is now the list credentials")
    for secret in secrets:
        service = _service_of(secret.text)
        if service in pending:
            root.reading.problem(
                secret, f"secrets: {secret.text!r} is the credential {service!r}, which is there already"
            )
        pending[service] = _Pending(True, secret.text, place=root.reading.at(secret))
        service_of[secret.text] = service


def _fold_oauth(root: Section, found: dict[str, Credential], places: Places) -> None:
    with root.section("oauth") as section:
        if section is None:
            return
        _folded(root, "oauth", "oauth is now credentials[].oauth")
        service = section.text("service", rules.not_empty, required=True)
        oauth = read_oauth(section, passthrough_key="passthroughResponse")
        credential = found.get(service)
        if credential is None:
            places["credentials", service] = root.reading.at(section.node)
            found[service] = Credential(service, source="", oauth=oauth)
            return
        if not credential.variable and not any(inject.header for inject in credential.inject):
            # domains without a header only say where the token goes
            endpoint = oauth.get("tokenEndpoint")
            own = endpoint.get("host") if isinstance(endpoint, Mapping) else ""
            hosts = [inject.domain for inject in credential.inject if inject.domain != own]
            credential = replace(credential, inject=())
            if hosts:
                oauth["resourceHosts"] = hosts
        found[service] = replace(credential, oauth=credential.oauth or oauth)


def _read_commands(
    root: Section, places: Places
) -> tuple[tuple[Install, ...], tuple[Startup, ...], tuple[InitFile, ...]]:
    with root.section("commands") as commands:
        if commands is None:
            return (), (), ()
        _folded(root, "commands", "commands is now setup, and initFiles setup.files")
        return (
            read_install(commands, "install"),
            read_startup(commands, "startup"),
            read_files(commands, "initFiles", places),
        )


def _read_instructions(root: Section) -> str:
    memory, context = root.text("memory"), root.text("agentContext")
    for key, text in (("memory", memory), ("agentContext", context)):
        if text:
            _folded(root, key, f"{key} is now agentInstructions.content")
    return context or memory


def _read_ports(root: Section, network: _Network) -> tuple[Port, ...]:
    ports = read_ports(root, "publishedPorts")
    if ports:
        _folded(root, "publishedPorts", "publishedPorts is now ports")
    return ports + network.ports


def _read_volumes(root: Section, places: Places) -> tuple[Volume, ...]:
    found = {volume.path: volume for volume in _volumes_of(root, "volumes", "", places)}
    for volume in _volumes_of(root, "tmpfs", TMPFS, places):
        if volume.path in found:
            root.fail("tmpfs", f"{volume.path} is a volume too")
        found[volume.path] = volume
    if "tmpfs" in root:
        _folded(root, "tmpfs", "tmpfs is now volumes with type: tmpfs")
    if isinstance(root.peek("volumes"), yaml.Mapping):
        _folded(root, "volumes", "volumes is now a list")
    return tuple(found.values())


def _volumes_of(root: Section, key: str, kind: str, places: Places) -> tuple[Volume, ...]:
    """A list of volumes, or the older mapping from a path to its size or mount options."""
    value: Node | None = root.peek(key)
    if not isinstance(value, yaml.Mapping):
        return read_volumes(root, key, places, of_type=kind)
    found = []
    for path, key_node, options in root.pairs(key, rules.absolute_path):
        size = mode = ""
        for option in options.text.split(","):
            name, equals, setting = option.strip().rpartition("=")
            if name == "mode":
                mode = setting
                fault = rules.mode(mode)
            elif setting and (not equals or name == "size"):
                size = setting
                fault = rules.size(size)
            else:
                fault = f"{option!r} is not a mount option that is read" if option.strip() else ""
            if fault:
                root.reading.problem(options, f"{root.where(key)}.{path}: {fault}")
        places["volumes", path] = root.reading.at(key_node)
        found.append(Volume(path, kind, size, mode))
    return tuple(found)
