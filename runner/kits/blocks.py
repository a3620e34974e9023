"""Blocks that both schemas write alike: credentials and OAuth, setup, ports, volumes, build."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.kits import rules
from runner.kits.document import Listing, Mapping, plain_data
from runner.kits.plan import Credential, InitFile, Inject, Install, Port, Startup, Volume
from runner.kits.section import Reading, Section
from runner.kits.spec import Build

Places = dict[tuple[str, str], str]

TMPFS = "tmpfs"
DEFAULT_MODE = "0644"
PORT_MOST = 65535


def read_build(section: Section | None) -> Build | None:
    if section is None:
        return None
    context = section.text("context", rules.inner_path, default=".")
    dockerfile = section.text("dockerfile", rules.inner_path, default="Dockerfile")
    args = tuple((name, value.text) for name, _, value in section.pairs("args", rules.variable_name))
    target = section.text("target")
    if section.texts("platforms"):
        section.reading.warn(
            section.node.get("platforms"), "sandbox.build.platforms is left aside: the image is built here"
        )
    return Build(context, dockerfile, args, target)


def read_install(section: Section, key: str) -> tuple[Install, ...]:
    found = []
    for entry in section.sections(key):
        command = entry.text("command", rules.not_empty, required=True)
        user = entry.text("user", rules.not_empty, default="0")
        found.append(Install(command, user, entry.text("description")))
    return tuple(found)


def read_startup(section: Section, key: str) -> tuple[Startup, ...]:
    found = []
    for entry in section.sections(key):
        command = entry.texts("command")
        if not command:
            if not isinstance(entry.peek("command"), Listing):
                if entry.peek("command") is None:
                    entry.missing("command")
            else:
                entry.fail("command", "must not be empty")
        user = entry.text("user", rules.not_empty, default="1000")
        background = bool(entry.flag("background"))
        found.append(Startup(command, user, background, entry.text("description")))
    return tuple(found)


def read_files(section: Section, key: str, places: Places) -> tuple[InitFile, ...]:
    found = []
    for entry in section.sections(key):
        path = entry.text("path", rules.absolute_path, required=True)
        content = entry.text("content", rules.file_content)
        mode = entry.text("mode", rules.mode, default=DEFAULT_MODE)
        only_if_missing = bool(entry.flag("onlyIfMissing"))
        entry.text("description")
        places["files", path] = section.reading.at(entry.node)
        octal = int(mode, 8) if not rules.mode(mode) else 0o644
        found.append(InitFile(path, content, octal, only_if_missing))
    return tuple(found)


def read_ports(section: Section, key: str) -> tuple[Port, ...]:
    found = []
    for entry in section.sections(key):
        container = entry.integer("container", least=1, most=PORT_MOST, required=True)
        protocol = entry.text("protocol", rules.one_of("tcp", "udp")) or "tcp"
        name = entry.text("name")
        if container is not None:
            found.append(Port(container, protocol, name))
    return tuple(found)


def read_volumes(section: Section, key: str, places: Places, *, of_type: str = "") -> tuple[Volume, ...]:
    """The `volumes` list; with `of_type`, the first schema's list of that one type."""
    found: dict[str, Volume] = {}
    for entry in section.sections(key):
        path = entry.text("path", rules.absolute_path, required=True)
        kind = of_type or entry.text("type", rules.one_of("", TMPFS))
        size = entry.text("size", rules.size)
        mode = entry.text("mode", rules.mode)
        if path in found:
            entry.fail("path", f"{path} is here twice")
        places["volumes", path] = section.reading.at(entry.node)
        found[path] = Volume(path, kind, size, mode)
    return tuple(found.values())


def read_credentials(section: Section, key: str, places: Places) -> tuple[Credential, ...]:
    found: dict[str, Credential] = {}
    for entry in section.sections(key):
        service = entry.text("service", rules.not_empty, required=True)
        credential = Credential(
            service,
            source="",
            description=entry.text("description"),
            required=bool(entry.flag("required")),
            provider=entry.text("provider"),
        )
        if credential.provider:
            section.reading.warn(entry.node.get("provider"), f"{entry.where('provider')} has no effect")
        with entry.section("apiKey") as api_key:
            if api_key is not None:
                credential = _read_api_key(api_key, credential)
        with entry.section("oauth") as oauth:
            if oauth is not None:
                credential = replace(credential, oauth=read_oauth(oauth))
        if service in found:
            entry.fail("service", f"the service {service!r} is here twice")
        places["credentials", service] = section.reading.at(entry.node)
        found[service] = credential
    return tuple(found.values())


def _read_api_key(section: Section, credential: Credential) -> Credential:
    name = section.text("name", rules.variable_name)
    proxy_managed = section.flag("proxyManaged")
    injects = []
    for entry in section.sections("inject"):
        domain = entry.text("domain", rules.network, required=True)
        header = entry.text("header")
        form = entry.text("format", rules.format_text)
        scheme = entry.text("scheme", rules.one_of("bearer", "basic"))
        username = entry.text("username")
        if scheme and form:
            entry.fail("format", "format and scheme exclude each other")
        if scheme == "bearer" and username:
            entry.fail("username", "goes with scheme basic only")
        if scheme == "basic" and not username:
            entry.fail("scheme", "basic needs a username")
        if scheme == "bearer" and not header:
            header = "Authorization"
        injects.append(Inject(domain, header, form or ("" if scheme else "%s"), scheme, username))
    if not name and not injects:
        section.reading.problem(section.node, f"{section.where()}: needs a name, inject rules, or both")
    in_container = bool(name) and proxy_managed is not False
    return replace(credential, variable=name, env=(name,) if in_container else (), inject=tuple(injects))


def read_oauth(
    section: Section, *, passthrough_key: str = "passthrough", with_service: bool = False
) -> dict[str, object]:
    """An OAuth block, checked, as plain data in the second schema's spelling."""
    reading = section.reading
    data: dict[str, object] = {}
    passthrough = bool(section.flag(passthrough_key))
    if with_service:
        section.known.append("service")
    with section.section("tokenEndpoint") as endpoint:
        if endpoint is None:
            section.missing("tokenEndpoint")
        else:
            data["tokenEndpoint"] = {
                "host": endpoint.text("host", rules.network, required=True),
                "path": endpoint.text("path", rules.not_empty, required=True),
            }
    if hosts := section.texts("resourceHosts", rules.network):
        data["resourceHosts"] = list(hosts)
    data["sentinels"] = _read_sentinels(section, passthrough)
    with section.section("credentialFile") as file:
        if file is not None:
            data["credentialFile"] = _read_credential_file(file)
    if skip := section.texts("skipIfEnv", rules.variable_name):
        data["skipIfEnv"] = list(skip)
    with section.section("responseFields") as fields:
        if fields is not None:
            names = ("accessToken", "refreshToken", "expiresIn", "scope")
            data["responseFields"] = {name: text for name in names if (text := fields.text(name))}
    data["passthrough"] = passthrough
    if passthrough:
        reading.warn(
            section.node.get(passthrough_key), f"{section.where(passthrough_key)} shows the real token to the container"
        )
    return data


def _read_sentinels(section: Section, passthrough: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    with section.section("sentinels") as sentinels:
        if sentinels is None and not passthrough:
            section.missing("sentinels")
        elif sentinels is not None:
            for name in ("accessToken", "refreshToken"):
                if text := sentinels.text(name, required=not passthrough):
                    found[name] = text
    return found


def _read_credential_file(section: Section) -> dict[str, Any]:
    data: dict[str, Any] = {"path": section.text("path", rules.not_empty, required=True)}
    template = section.text("template")
    structure = section.take("structure")
    if structure is not None and not isinstance(structure, Mapping):
        section.fail("structure", "must be a mapping")
    elif structure is not None:
        data["structure"] = plain_data(structure)
    if structure is None and not template:
        section.reading.problem(section.node, f"{section.where()}: needs a template or a structure")
    if template:
        if structure is not None:
            section.reading.warn(
                section.node.get("template"), f"{section.where('template')} is left aside: structure is used"
            )
        else:
            data["template"] = template
    return data


def warn_of_unreached(
    reading: Reading, credentials: tuple[Credential, ...], allow: tuple[str, ...], places: Places
) -> None:
    """A credential set on requests that the kit itself does not let out is probably a slip."""
    allowed = rules.Hosts(allow)
    for credential in credentials:
        for inject in credential.inject:
            if not rules.network(inject.domain) and not allowed.name(inject.domain):
                reading.warnings.append(
                    f"{places['credentials', credential.service]}: the credential {credential.service!r} goes to "
                    f"{inject.domain}, which permissions.network.allow does not name"
                )


def network_list(section: Section, key: str) -> tuple[str, ...]:
    """A list of network entries; those that would open every host are left aside with a warning."""
    found = []
    for index, item in enumerate(section.scalars(key)):
        where = f"{section.where(key)}[{index}]"
        if rules.opens_everything(item.text):
            section.reading.warn(
                item, f"{where}: {item.text!r} would open every host and is left aside; name the hosts"
            )
        elif section.reading.obey(item, rules.network, where):
            found.append(item.text)
            if item.text.startswith("@"):
                section.reading.ours(item, f"the group {item.text} is read by this program only")
    return tuple(found)
