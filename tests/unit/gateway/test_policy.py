"""The matcher, and that the proxy does what it says: one table of verdicts for both."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

import pytest

from runner.errors import ConfigError
from runner.gateway.decisions import Entry
from runner.gateway.names import Address, Host
from runner.gateway.policy import Policy, judge, parse
from runner.gateway.proxy import EgressProxy
from runner.gateway.rules import PolicyFile, build
from runner.gateway.upstream import Link, Upstream
from runner.guest import proxy as door
from runner.kits.plan import Network, Rule
from tests.unit.gateway.cases import NAMES, PUBLIC, Case, cases
from tests.unit.gateway.ends import PATIENCE, http_server, wire


def policy_of(rules: str) -> Policy:
    words = rules.split()
    bound = tuple(word[1:] for word in words if word.startswith("!"))
    return build(
        "open" if "open" in words else "none",
        allow=[word for word in words if word[0] not in "!-" and word != "open"],
        deny=[word[1:] for word in words if word.startswith("-")],
        files=[PolicyFile("/etc/sbx/policy.yaml", network_allow=bound)] if bound else (),
    )


class Resolver:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[Address]:
        self.asked.append(name)
        return tuple(ipaddress.ip_address(text) for text in NAMES.get(name, PUBLIC))


class ToTheServer(Upstream):
    """Whatever address was checked, the connection goes to one local server; which addresses is remembered."""

    port = 0

    async def connect(self, host: Host, port: int, addresses: Sequence[Address], *, plain: bool, within: float) -> Link:
        assert addresses
        return Link(*await asyncio.open_connection("127.0.0.1", ToTheServer.port), address=str(addresses[0]))


def test_the_table_holds_at_least_two_hundred_verdicts() -> None:
    assert len(cases()) >= 200
    assert len(set(map(str, cases()))) == len(cases())


@pytest.mark.parametrize("case", cases(), ids=str)
async def test_the_check_gives_the_verdict_that_was_written_down(case: Case) -> None:
    verdict = await judge(policy_of(case.rules), case.host, case.port, Resolver())
    assert verdict.decision.allowed is case.passes, verdict.decision
    assert verdict.decision.rule
    assert verdict.decision.source
    assert bool(verdict.addresses) is case.passes


async def test_real_requests_through_the_proxy_get_the_same_verdicts_by_the_same_rules() -> None:
    wrong = []
    async with http_server() as server:
        ToTheServer.port = server.port
        for rules in dict.fromkeys(case.rules for case in cases()):
            policy, resolver, log = policy_of(rules), Resolver(), list[Entry]()
            proxy = EgressProxy(policy, log.append, lookup=resolver, upstream=ToTheServer())
            async with wire() as ends:
                ends.on_host = lambda message, proxy=proxy, ends=ends: proxy.handle(message, ends.host)  # type: ignore[misc]
                async with door.serve(ends.guest, port=0) as port:
                    for case in (c for c in cases() if c.rules == rules):
                        status, head = await get(port, f"http://{case.host}:{case.port}/")
                        checked = (await judge(policy, case.host, case.port, Resolver())).decision
                        agree = log[-1].rule == checked.rule and log[-1].source == checked.source
                        if (status == 200) is not case.passes or not agree or (status == 403) is case.passes:
                            wrong.append((str(case), status, head[:100], log[-1]))
                        if status == 403 and checked.rule.encode() not in head:
                            wrong.append((str(case), "the refusal does not name", checked.rule))
    assert wrong == []


async def get(port: int, url: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(data.split(b" ", 2)[1]), data


async def test_a_name_that_no_rule_allows_is_not_even_looked_up() -> None:
    resolver = Resolver()
    await judge(policy_of("example.com -5.6.0.0/16:* 10.0.0.0/8"), "secret-data.evil.invalid", 443, resolver)
    assert resolver.asked == []


async def test_a_decision_names_the_rule_and_who_wrote_it() -> None:
    kits = Network(allow=(Rule("api.example.com", "kit shell"),), deny=(Rule("*.evil.invalid", "kit shell"),))
    policy = build("none", allow=["example.com"], kits=kits, kits_granted=True)
    allowed = policy.decide("api.example.com", 443)
    assert (allowed.allowed, allowed.rule, allowed.source) == (True, "api.example.com", "kit shell")
    assert policy.decide("example.com", 443).source == "--allow"
    assert policy.decide("x.evil.invalid", 443).source == "kit shell"
    assert policy.decide("other.invalid", 443).source == "preset none"


def test_what_a_kit_asks_for_is_closed_until_it_is_granted_and_the_refusal_says_so() -> None:
    kits = Network(allow=(Rule("api.example.com", "kit shell"),), deny=(Rule("example.com", "kit shell"),))
    policy = build("open", kits=kits)
    assert not policy.decide("example.com", 443).allowed  # a kit's deny needs no grant
    refused = build("none", kits=kits).decide("api.example.com", 443)
    assert (refused.rule, refused.source) == ("grant network", "kit shell")


def test_hosts_of_the_install_are_closed_at_run_time() -> None:
    kits = Network(install_allow=(Rule("get.example.com", "kit shell"),))
    assert build(kits=kits, kits_granted=True, install=True).decide("get.example.com", 443).allowed
    assert not build(kits=kits, kits_granted=True).decide("get.example.com", 443).allowed


def test_nothing_allowed_means_that_no_proxy_needs_to_listen() -> None:
    assert build().closed
    assert build(allow=["example.com"], files=[PolicyFile("p", network_allow=())]).closed
    assert not build(allow=["example.com"]).closed


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "*",
        "**",
        "a.*.com",
        "*example.com",
        "***.example.com",
        "*.1.2.3.4",
        "https://example.com",
        "example.com/path",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:90-80",
        "example.com:http",
        "example.com:80,443",
        "exam ple.com",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "[::1",
        "1.2.3.256",
        "fe80::1%eth0",
        "-example.com",
        "::ffff:10.0.0.0/104",
    ],
)
def test_a_rule_that_is_none_is_an_error_that_names_its_place(rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(rule, "kit shell")
    assert caught.value.place == "kit shell"


async def decided(policy: Policy, host: str, *addresses: str) -> bool:
    async def lookup(name: str) -> list[Address]:
        return [ipaddress.ip_address(address) for address in addresses]

    return (await judge(policy, host, 443, lookup)).decision.allowed


@pytest.mark.parametrize(
    ("address", "passes"),
    [("10.0.0.5", True), ("100.64.0.1", True), ("127.0.0.1", False), ("169.254.169.254", False), ("224.0.0.1", False)],
)
async def test_a_groups_host_may_be_a_mirror_in_a_private_network(address: str, passes: bool) -> None:
    file = PolicyFile("p", groups={"@node-packages": ("mirror.example",)})
    assert await decided(build(allow=["@node-packages"], files=[file]), "mirror.example", address) is passes
    assert not await decided(build(allow=["mirror.example"], files=[file]), "mirror.example", address)


async def test_the_user_may_say_which_address_a_name_has() -> None:
    policy = build(allow=["db.example"], resolve=["db.example=10.0.0.7"])
    assert await decided(policy, "DB.example.", "1.2.3.4")
    assert not await decided(build(allow=["other.example"], resolve=["db.example=10.0.0.7"]), "db.example")
    assert not await decided(
        build(allow=["db.example"], deny=["10.0.0.0/8"], resolve=["db.example=10.0.0.7"]), "db.example"
    )


async def test_an_address_given_by_the_user_widens_no_policy_file() -> None:
    named = ["db.example=10.0.0.7"]
    by_name = PolicyFile("p", network_allow=("db.example",))
    assert not await decided(build(allow=["db.example"], resolve=named, files=[by_name]), "db.example")
    both = PolicyFile("p", network_allow=("db.example", "10.0.0.0/8"))
    assert await decided(build(allow=["db.example"], resolve=named, files=[both]), "db.example")


@pytest.mark.parametrize(
    "entry", ["db.example", "db.example=", "=10.0.0.7", "10.0.0.1=10.0.0.7", "a=b", "host.docker.internal=10.0.0.7"]
)
def test_what_is_no_name_and_address_is_an_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="NAME=ADDRESS"):
        build(resolve=[entry])
