"""Whose rules hold in a build."""

from __future__ import annotations

import re
from typing import Any

import pytest

from runner.errors import ConfigError
from runner.gateway.building import ClosedBuilds, _BuildGroups
from runner.gateway.rules import PolicyFile
from runner.images.settings import Settings
from runner.kits.data import data_folder
from runner.kits.plan import Base, Network, Plan, Rule
from runner.wire import frames

NO_CLIENTS = {"PATH": "/nowhere"}
SOURCES = ["packages.example:80"]
KITS = Network(
    allow=(Rule("run.example", "kit a"),),
    deny=(Rule("never.example", "kit a"),),
    install_allow=(Rule("install.example", "kit a"), Rule("@debian-packages", "kit a")),
)


def policy(*files: PolicyFile, network: Network = KITS, sources: list[str] = SOURCES) -> Any:
    plan = Plan("a", Base(), (), network=network)
    engine: Any = None
    return ClosedBuilds(engine, plan, files, NO_CLIENTS)._policy(sources)


@pytest.mark.parametrize(
    ("host", "port", "passes"),
    [
        ("install.example", 443, True),
        ("run.example", 443, True),
        ("packages.example", 80, True),
        ("packages.example", 443, False),
        ("never.example", 443, False),
        ("other.example", 443, False),
        ("host.docker.internal", 80, False),
    ],
)
def test_a_build_reaches_what_its_kit_lists_and_the_bases_own_sources(host: str, port: int, passes: bool) -> None:
    assert policy().decide(host, port).allowed is passes


def test_a_policy_file_bounds_a_build() -> None:
    bounded = policy(PolicyFile("p", network_allow=("install.example",)))
    assert bounded.decide("install.example", 443).allowed
    assert not bounded.decide("packages.example", 80).allowed


def test_a_group_that_a_policy_file_defines_is_what_it_says_in_a_build_too() -> None:
    file = PolicyFile("p", groups={"@debian-packages": ("mirror.example:80",)})
    mirrored = policy(file)
    assert mirrored.decide("mirror.example", 80).allowed
    assert not mirrored.decide("packages.example", 80).allowed


def test_a_group_without_client_and_sources_is_an_error_of_the_kit_that_asks_for_it() -> None:
    with pytest.raises(ConfigError, match="@debian-packages"):
        policy(sources=[])
    assert policy(network=Network(), sources=[]).closed
    with pytest.raises(ConfigError, match="@python-packages"):
        _BuildGroups(NO_CLIENTS, (), SOURCES).resolve("@python-packages")


def test_the_hosts_own_proxies_do_not_reach_a_closed_build_and_are_the_gateways_to_use() -> None:
    host = Settings(
        proxies={"HTTPS_PROXY": "http://company.example:8080"},
        pip={"index-url": "https://index.example/simple", "proxy": "http://pip.example:1"},
        npm=("registry=https://npm.example/", "https-proxy=http://npm-proxy.example:2", "noproxy=x"),
        apt=('Acquire::http::Proxy "http://apt.example:3";',),
    )
    closed = host.closed({"HTTPS_PROXY": "http://127.0.0.1:3128"})
    assert closed.proxies == {"HTTPS_PROXY": "http://127.0.0.1:3128"}
    assert (closed.pip, closed.npm, closed.apt) == (
        {"index-url": "https://index.example/simple"},
        ("registry=https://npm.example/",),
        (),
    )
    assert host.package_proxies() == {"http_proxy": "http://apt.example:3", "https_proxy": "http://pip.example:1"}


def test_the_forwarder_and_the_wire_agree_on_their_bounds() -> None:
    script = (data_folder("images") / "network" / "forward.pl").read_text()
    found = re.search(r"\(\$PORT, \$WINDOW, \$CHUNK, \$MOST\) = \(3128, (\d+), (\d+), \d+\)", script)
    assert found
    assert (int(found[1]), int(found[2])) == (frames.WINDOW, frames.MAX_CHUNK)
