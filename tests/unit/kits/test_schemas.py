"""What specs of both schemas say once they are read: fixtures that use every key."""

from __future__ import annotations

import pytest

from runner.errors import ConfigError, NotFoundError
from runner.kits.load import load_kit
from runner.kits.plan import CopiedFile, Credential, InitFile, Inject, Install, Port, Startup, Volume


@pytest.fixture
def every(fixtures):
    return load_kit(fixtures / "every-key", lambda name, declared: {"region": "eu", "version": "2.0.1"})


@pytest.fixture
def old(fixtures):
    return load_kit(fixtures / "old-every-key")


def test_identity_and_lists_are_read(every):
    spec = every.spec
    assert (spec.schema, spec.kind, spec.name, spec.version) == ("2", "sandbox", "every-key", "1.4.2")
    assert (spec.display_name, spec.source_url) == ("Every key", "https://kits.example.org/every-key")
    assert spec.licenses == ("Apache-2.0", "MIT")
    assert spec.locked == ("sandbox.image", "security")
    assert [entry.text for entry in spec.mixins] == ["../every-key-mixin"]
    assert spec.privileged is False


def test_the_sandbox_block_is_read(every):
    sandbox = every.spec.sandbox
    assert sandbox.image == "registry.example.org/agents/every:1.4.2"
    assert sandbox.entrypoint == ("every", "--quiet")
    assert sandbox.command == ("--task",)
    assert sandbox.interactive == (), "an empty list is said, not absent"
    assert (sandbox.cpus, sandbox.memory, sandbox.gpu) == (2.5, 6 * 1024**3, "1")


def test_arguments_are_filled_in_everywhere(every):
    assert every.spec.instructions == "You have the tool `every` in release 2.0.1.\n"
    assert "eu.example.org" in every.spec.allow
    assert every.spec.ports[0] == Port(8080, "tcp", "web"), "unquoted, so the port is a number"
    assert "every-2.0.1.tar.gz" in every.spec.install[0].command
    assert every.spec.startup[1].command == ("every", "serve", "--port", "8080")
    assert every.spec.files[0].content == '{"workdir": "${WORKDIR}", "channel": "stable"}'
    assert every.arguments == (
        ("channel", "stable"),
        ("extra_flags", ""),
        ("port", "8080"),
        ("region", "eu"),
        ("version", "2.0.1"),
    )


def test_variables_are_the_text_that_is_written(every):
    assert {name: entry.text for name, entry in every.spec.variables.items()} == {
        "EVERY_HOME": "/home/agent/.every",
        "EVERY_CHANNEL": "stable",
        "EVERY_DEBUG": "0",
        "EVERY_ON": "on",
        "EVERY_MODE": "0755",
    }


def test_network_lists_are_kept_as_written(every):
    assert every.spec.allow == (
        "api.example.org",
        "api.example.org:8443",
        "*.cdn.example.org",
        "**.mirror.example.org:443",
        "ranges.example.org:8000-8010",
        "anyport.example.org:*",
        "10.20.0.0/16",
        "eu.example.org",
        "login.example.org",
    )
    assert every.spec.deny == ("telemetry.example.org",)
    assert every.spec.install_allow == ("@debian-packages", "downloads.example.org")
    assert every.spec.install_deny == ("ads.example.org",)


def test_setup_and_volumes_are_read_with_their_defaults(every):
    assert [(entry.user, entry.description) for entry in every.spec.install] == [
        ("0", "Install the tool"),
        ("agent", ""),
        ("1000", ""),
    ]
    assert every.spec.startup[0] == Startup(("sh", "-c", "mkdir -p ~/.every"), "1000", False, "The tool's folder")
    assert every.spec.startup[1].background is True
    assert [(f.path, f.mode, f.only_if_missing) for f in every.spec.files] == [
        ("/home/agent/.every/config.json", 0o600, True),
        ("/home/agent/.every/empty", 0o644, False),
    ]
    assert every.spec.volumes == (
        Volume("/home/agent/.cache/every", "", "2g", "0755"),
        Volume("/var/scratch", "tmpfs", "512m", "1777"),
    )


def test_credentials_are_read(every):
    example, forge, login = every.spec.credentials
    assert example == Credential(
        "example",
        source="",
        description="API key of example.org",
        required=True,
        variable="EXAMPLE_API_KEY",
        env=("EXAMPLE_API_KEY",),
        inject=(
            Inject("api.example.org", "x-api-key", "%s"),
            Inject("api.example.org:8443", "Authorization", "", "bearer"),
        ),
    )
    assert forge.inject == (Inject("forge.example.org", "", "", "basic", "x-access-token"),)
    assert login.env == ()
    assert login.oauth["tokenEndpoint"] == {"host": "login.example.org", "path": "/oauth/token"}
    assert login.oauth["credentialFile"]["structure"]["login"]["expiresAt"] == "{{.ExpiresAt}}"


def test_a_credential_for_a_host_that_is_not_allowed_is_a_warning(every):
    assert [w for w in every.warnings if "forge.example.org" in w] == [
        f"{every.folder / 'spec.yaml'}:94:5: the credential 'forge' goes to forge.example.org, "
        "which permissions.network.allow does not name"
    ]


def test_a_variable_that_is_not_proxy_managed_stays_out_of_the_container(fixtures):
    (credential,) = load_kit(fixtures / "wide-hosts").spec.credentials
    assert (credential.variable, credential.env) == ("ELSEWHERE_KEY", ())
    assert credential.inject == (Inject("api.elsewhere.example", "X-Token", "", "bearer"),)


def test_a_rule_that_opens_every_host_is_left_aside(fixtures):
    kit = load_kit(fixtures / "wide-hosts")
    assert kit.spec.allow == ("one.example.org",)
    assert any("would open every host and is left aside" in warning for warning in kit.warnings)


def test_a_build_is_read_and_an_image_beside_it_wins(fixtures, write_kit):
    build = load_kit(fixtures / "built").spec.sandbox.build
    assert (build.context, build.args, build.target) == ("image", (("RELEASE", "1.20"),), "runtime")
    both = load_kit(write_kit("both", "kind: sandbox\nsandbox: {image: debian, build: {}}\n"))
    assert both.spec.sandbox.build is None
    assert any("sandbox.build is left aside: sandbox.image is used" in warning for warning in both.warnings)


def test_what_only_this_program_reads_is_known(every):
    told = " ".join(every.beyond)
    assert "mixins are applied by this program only" in told
    assert "permissions.network.install is read by this program only" in told
    assert "the group @debian-packages is read by this program only" in told


def test_an_old_agent_becomes_a_sandbox(old):
    spec = old.spec
    assert (spec.schema, spec.kind) == ("1", "sandbox")
    assert spec.sandbox.image == "registry.example.org/agents/old:1"
    assert (spec.sandbox.entrypoint, spec.sandbox.command) == (("old", "--verbose"), ("--task",))
    assert spec.sandbox.interactive == ("--interactive",)
    assert (spec.sandbox.cpus, spec.sandbox.memory, spec.sandbox.gpu) == (2.0, 2 * 1024**3, "all")
    assert (spec.instructions_file, spec.instructions) == ("OLD.md", "What the agent should know.\n")


def test_old_network_blocks_become_permissions(old):
    assert old.spec.allow == ("extra.example.org", "api.example.org:443", "*.example.net")
    assert old.spec.deny == ("ads.example.org", "tracker.example.net")
    assert old.spec.ports == (Port(9090, "tcp", "admin"), Port(8080))


def test_four_old_places_become_one_credential(old):
    credentials = {credential.service: credential for credential in old.spec.credentials}
    acme = credentials["acme"]
    assert (acme.required, acme.variable, acme.env) == (True, "ACME_API_KEY", ("ACME_API_KEY",))
    assert acme.inject == (Inject("api.example.org", "x-api-key", "%s"),)
    assert credentials["other"].variable == "OTHER_TOKEN", "secrets: the service is told by the variable's name"
    assert credentials["other"].required is True
    assert credentials["github"].env == ("GH_TOKEN",), "proxyManaged names a variable of a service nobody declared"
    assert credentials["anthropic"].inject == (Inject("api.anthropic.example", "x-api-key", "%s"),)


def test_old_domains_without_a_header_become_hosts_of_the_token(old):
    login = next(c for c in old.spec.credentials if c.service == "login")
    assert login.inject == ()
    assert login.oauth["resourceHosts"] == ["files.example.org"], "without the token endpoint itself"
    assert login.oauth["passthrough"] is False


def test_old_commands_and_mounts_become_setup_and_volumes(old):
    assert old.spec.install == (Install("echo installed", "0", "Install"),)
    assert old.spec.startup == (Startup(("echo", "started"), "1000", True),)
    assert old.spec.files == (InitFile("/home/agent/.old/init.json", '{"at": "${WORKDIR}"}', 0o644, True),)
    assert old.spec.volumes == (
        Volume("/data", "", "4G"),
        Volume("/plain", "", "1g"),
        Volume("/scratch", "tmpfs", "512m", "1777"),
    )


def test_each_folded_block_is_one_warning_at_its_key(old):
    folds = [w for w in old.warnings if "schema 1: " in w]
    said = {w.partition("schema 1: ")[2] for w in folds}
    assert len(said) == len(folds)
    assert "kind: agent is now kind: sandbox" in said
    assert "network.allowedDomains is now permissions.network.allow" in said
    assert {w for w in said if "no effect" in w} == {
        "settings has no effect and is left aside",
        "kitDir has no effect and is left aside",
        "persistence has no effect and is left aside",
        "agent.persistence has no effect and is left aside",
        "agent.entrypoint.pipeMode has no effect and is left aside",
    }
    assert (
        f"{old.folder / 'spec.yaml'}:27:3: schema 1: network.allowedDomains is now permissions.network.allow" in folds
    )


def test_the_old_schema_takes_the_list_forms_too(fixtures):
    spec = load_kit(fixtures / "old-list-forms").spec
    assert [c.service for c in spec.credentials] == ["acme"]
    assert spec.allow == ("api.example.org",)
    assert spec.volumes == (Volume("/data", "", "1g"), Volume("/scratch", "tmpfs", "64m"))


def test_spec_yml_is_read_where_there_is_no_spec_yaml(fixtures):
    kit = load_kit(fixtures / "old-mixin")
    assert (kit.spec.kind, kit.spec.instructions, kit.spec.allow) == ("mixin", "More to know.", ("mixin.example.org",))


def test_files_are_copied_as_they_are_with_arguments_filled_in(every):
    assert every.home == (
        CopiedFile(".config/every/every.toml", b'channel = "stable"\n', 0o644),
        CopiedFile("run.sh", b"#!/bin/sh\necho hello\n", 0o755),
        CopiedFile("start", link="run.sh"),
    )
    assert [file.path for file in every.workspace] == ["docs/AGENT.md"]


def test_a_folder_with_an_agent_alone_uses_the_base_image(tmp_path):
    folder = tmp_path / "My Agent!"
    folder.mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\n")
    kit = load_kit(folder)
    assert (kit.name, kit.spec.kind, kit.spec.sandbox.image) == ("my-agent", "sandbox", "debian:bookworm-slim")


def test_a_folder_with_neither_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match=r"holds neither spec.yaml nor agent.yaml"):
        load_kit(tmp_path)
    with pytest.raises(NotFoundError):
        load_kit(tmp_path / "missing")


def test_empty_and_null_blocks_say_nothing(write_kit):
    spec = load_kit(
        write_kit("empty", "kind: mixin\nsetup:\nports: []\npermissions: {network: }\ncredentials: ~\n")
    ).spec
    assert (spec.install, spec.ports, spec.allow, spec.credentials) == ((), (), (), ())


def test_yes_and_on_are_true_where_a_boolean_is_wanted(write_kit):
    kit = load_kit(write_kit("flags", "kind: mixin\nsetup: {startup: [{command: [a], background: yes}]}\n"))
    assert kit.spec.startup[0].background is True
