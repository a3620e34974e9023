"""Policy files, presets, groups from the host's own clients, and grants."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, RefusedError
from runner.gateway.egress import open_egress
from runner.gateway.grants import Wish, demand, model_url_forbidden, model_url_needs_grant, settle
from runner.gateway.rules import Groups, build, load, policy_paths, read
from runner.kits.plan import Network, Rule

PIP = """#!/bin/sh
case "$1 $2" in
  "config list") printf "global.extra-index-url='http://extra.corp.example:8080/simple file:///opt/x'\\n" ;;
  "install --help") printf '  -i, --index-url <url>  Base URL (default\\n https://index.example/simple). This\\n' ;;
  "install --dry-run") printf '{"install": [{"download_info": {"url": "https://files.example/a.whl"}}]}' ;;
esac
"""
NPM = """#!/bin/sh
printf '{"registry": "https://npm.corp.example/path/", "@team:registry": "https://team.example", "x": null}'
"""
APT = """#!/bin/sh
printf 'http://deb.corp.example/debian\\nhttp://deb.corp.example/security\\nfile:/opt/local\\n'
"""


def clients(tmp_path: Path, **programs: str) -> dict[str, str]:
    """An environment whose PATH holds these clients, and the shell that they are written in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(text)
        program.chmod(0o755)
    return {"PATH": str(folder)}


def test_groups_are_what_the_hosts_own_clients_are_configured_for(tmp_path: Path) -> None:
    groups = Groups(clients(tmp_path, pip=PIP, npm=NPM, apt_get=APT))
    assert groups.resolve("@python-packages")[0] == (
        "extra.corp.example:8080",
        "index.example:443",
        "files.example:443",
    )
    assert groups.resolve("@node-packages") == (
        ("npm.corp.example:443", "team.example:443"),
        "npm's configuration",
    )
    assert groups.resolve("@debian-packages")[0] == ("deb.corp.example:80",)


def test_a_decision_by_a_group_names_the_group_and_the_host(tmp_path: Path) -> None:
    policy = build(allow=["@debian-packages"], environ=clients(tmp_path, apt_get=APT))
    decision = policy.decide("deb.corp.example", 80)
    assert (decision.allowed, decision.rule) == (True, "@debian-packages (deb.corp.example:80)")
    assert decision.source == "--allow, apt-get's configuration"


@pytest.mark.parametrize("group", ["@python-packages", "@node-packages", "@debian-packages"])
def test_a_group_without_its_client_is_an_error_that_names_the_setting(group: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(allow=[group], environ={"PATH": "/nowhere"})
    assert caught.value.hint
    assert "network.groups" in caught.value.hint
    assert group in caught.value.hint


def test_the_setting_stands_in_for_a_client() -> None:
    file = read("network: {groups: {'@node-packages': [mirror.example], '@own': ['own.example:8080']}}", "policy.yaml")
    policy = build(allow=["@node-packages", "@own"], files=[file], environ={"PATH": "/nowhere"})
    assert policy.decide("mirror.example", 443).allowed
    assert policy.decide("own.example", 8080).allowed


def test_a_group_that_does_not_exist_is_an_error_that_lists_those_that_do() -> None:
    with pytest.raises(ConfigError, match="@python-packages"):
        build(allow=["@perl"])


def test_the_preset_packages_holds_every_client_that_is_there(tmp_path: Path) -> None:
    policy = build("packages", environ=clients(tmp_path, npm=NPM))
    assert policy.decide("npm.corp.example", 443).source.startswith("preset packages")
    assert not policy.decide("index.example", 443).allowed
    with pytest.raises(ConfigError, match="no package client"):
        build("packages", environ={"PATH": "/nowhere"})


def test_a_group_that_is_only_asked_for_stops_nothing() -> None:
    kits = Network(allow=(Rule("@python-packages", "kit shell"),))
    assert build(kits=kits, environ={"PATH": "/nowhere"}).closed
    with pytest.raises(ConfigError):
        build(kits=kits, kits_granted=True, environ={"PATH": "/nowhere"})


def test_the_more_restrictive_file_wins(tmp_path: Path) -> None:
    system, user = tmp_path / "system.yaml", tmp_path / "user.yaml"
    system.write_text("network: {allow: ['**.example.com:*', example.org], deny: [bad.example.com]}\n")
    user.write_text("network: {allow: ['*.example.com', evil.example]}\n")
    policy = build("open", files=load([system, tmp_path / "none.yaml", user]))
    assert policy.decide("www.example.com", 443).allowed
    assert policy.decide("www.example.com", 80).source == str(user)
    assert policy.decide("evil.example", 443).source == str(system)
    assert policy.decide("bad.example.com", 443).rule == "bad.example.com"


def test_a_files_allow_is_a_bound_and_opens_nothing(tmp_path: Path) -> None:
    file = read("network: {allow: [example.com]}", "policy.yaml")
    assert not build(files=[file]).decide("example.com", 443).allowed
    assert build(files=[read("network: {allow: []}", "p")], allow=["example.com"]).closed


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("- a", "p.yaml"),
        ("network: [a]", "p.yaml: network"),
        ("netwrok: {}", "p.yaml"),
        ("network: {alow: []}", "p.yaml: network"),
        ("network: {allow: example.com}", "p.yaml: network.allow"),
        ("network: {allow: [1]}", "p.yaml: network.allow"),
        ("network: {allow: ['https://x']}", "p.yaml: network.allow"),
        ("network: {deny: ['a b']}", "p.yaml: network.deny"),
        ("network: {groups: {own: [a]}}", "p.yaml: network.groups"),
        ("grants: {deny: [everything]}", "p.yaml: grants.deny"),
        ("hooks: {required: [{event: preToolCall}]}", "p.yaml: hooks.required[0].command"),
        ("hooks: {required: {}}", "p.yaml: hooks.required"),
        ("images: {signers: me}", "p.yaml: images.signers"),
        ("models: {allow: 1}", "p.yaml: models.allow"),
        ("network: {allow: [", "p.yaml:1:19"),
    ],
)
def test_a_wrong_policy_file_is_an_error_at_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "p.yaml")
    assert caught.value.place == place


def test_a_policy_that_cannot_be_read_is_never_taken_as_none(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError):
        load([tmp_path / "folder.yaml"])
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError):
        load([tmp_path / "latin.yaml"])


def test_everything_in_a_policy_file_is_kept() -> None:
    file = read(
        "network: {deny: [a.example]}\ngrants: {allow: [network], deny: [mount]}\n"
        "hooks: {required: [{event: preToolCall, command: guard}]}\n"
        "images: {signers: [me]}\nmodels: {allow: ['https://m.example/v1']}\n",
        "p",
    )
    assert (file.network_allow, file.network_deny) == (None, ("a.example",))
    assert (file.grants_allow, file.grants_deny) == (("network",), ("mount",))
    assert file.hooks_required == ({"event": "preToolCall", "command": "guard"},)
    assert (file.images_signers, file.models_allow) == (("me",), ("https://m.example/v1",))
    assert read("", "p").models_allow is None


def test_policy_files_are_the_systems_then_the_users() -> None:
    system, user = policy_paths({"HOME": "/home/me"})
    assert (str(system), str(user)) == ("/etc/sbx/policy.yaml", "/home/me/.config/sbx/policy.yaml")
    assert str(policy_paths({"XDG_CONFIG_HOME": "/x"})[1]) == "/x/sbx/policy.yaml"


KIT_WISH = Wish("network", "network example.com:443", "kit shell")


def test_what_the_user_asks_for_is_granted_and_what_a_kit_asks_for_needs_a_grant() -> None:
    own = Wish("mount", "mount /data", "--mount", by_user=True)
    granted, missing = settle([own, KIT_WISH])
    assert [g.by for g in granted] == ["command line"]
    with pytest.raises(RefusedError) as caught:
        demand(missing)
    assert caught.value.hint == "run again with --grant network"
    assert "kit shell" in str(caught.value)
    assert [g.by for g in settle([KIT_WISH], granted=["network"])[0]] == ["--grant"]
    assert [g.by for g in settle([KIT_WISH], answered=["network"])[0]] == ["terminal"]
    demand(())


@pytest.mark.parametrize(
    "text", ["grants: {deny: [network, mount]}", "grants: {allow: [device]}", "grants: {allow: []}"]
)
def test_a_policy_file_bounds_grants_whoever_asks(text: str) -> None:
    own = Wish("mount", "mount /data", "--mount", by_user=True)
    granted, missing = settle([own, KIT_WISH], granted=["network"], files=[read(text, "policy.yaml")])
    assert granted == ()
    with pytest.raises(RefusedError) as caught:
        demand(missing)
    assert (caught.value.place, caught.value.hint) == ("policy.yaml", None)


@pytest.mark.parametrize(
    ("url", "needs"),
    [
        ("http://127.0.0.1:17434/v1", False),
        ("http://localhost:17434/v1", False),
        ("http://host.docker.internal:17434/v1", False),
        ("http://127.0.0.1:6379/v1", True),
        ("http://host.docker.internal/v1", True),
        ("https://evil.example:17434/v1", True),
        ("http://127.0.0.1.evil.example:17434/v1", True),
        ("https://mine.example/v1/", False),
        ("nonsense", True),
    ],
)
def test_a_kit_must_not_choose_where_prompts_go(url: str, needs: bool) -> None:
    assert model_url_needs_grant(url, {17434}, configured=["https://mine.example/v1"]) is needs


def test_a_policy_file_bounds_the_models() -> None:
    file = read("models: {allow: ['https://m.example/v1']}", "policy.yaml")
    assert model_url_forbidden("https://m.example/v1/", [file]) == ""
    assert model_url_forbidden("https://n.example/v1", [file]) == "policy.yaml"
    assert model_url_forbidden("https://n.example/v1", [read("", "p")]) == ""


def test_a_session_whose_policy_lets_nothing_through_refuses_in_words(
    tmp_path: Path,
) -> None:
    egress = open_egress(build(), tmp_path / "network.jsonl", {})
    assert egress.network == "closed"
    assert egress.proxy is not None
    assert egress.environment["https_proxy"] == "http://127.0.0.1:3128"
    assert list(tmp_path.iterdir()) == []


def test_a_session_with_a_way_out_is_told_of_the_proxy(tmp_path: Path) -> None:
    egress = open_egress(build(allow=["example.com"]), tmp_path / "network.jsonl", {})
    assert egress.network == "proxy"
    assert egress.environment["https_proxy"] == "http://127.0.0.1:3128"
    assert egress.proxy
    egress.close()
