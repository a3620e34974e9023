"""A run's network as the command line, the kits and the policy files decide it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, RefusedError, UsageError
from runner.gateway.rules import PolicyFile
from runner.kits.plan import Base, Credential, Network, Plan, Rule
from runner.launch.network import Asked, decide, learned_lines, masks, model_key, model_proxy, wishes

KIT = Plan("a", Base(), (), network=Network(allow=(Rule("kit.example", "kit a"),)))
PLAIN = Plan("a", Base(), ())


def test_the_command_lines_hosts_are_granted_by_being_asked_and_a_kits_are_not() -> None:
    found = wishes(Asked(allow=["a.example"], learn=True), KIT)
    assert [(w.what, w.by_user) for w in found] == [
        ("every public host", True),
        ("a.example", True),
        ("kit.example", False),
    ]


def test_what_is_shown_of_the_network() -> None:
    assert decide(Asked(), PLAIN, (), {}).said == "none"
    assert decide(Asked(allow=["a.example"]), PLAIN, (), {}).said == "allow a.example"
    assert decide(Asked(granted=True), KIT, (), {}).said == "allow kit.example"
    assert decide(Asked("open"), PLAIN, (), {}).said == "open"
    assert decide(Asked(learn=True), PLAIN, (), {}).said == "open (learning)"
    assert decide(Asked("bridge"), PLAIN, (), {}).said == "bridge"


@pytest.mark.parametrize("more", [{"allow": ["a"]}, {"deny": ["a"]}, {"learn": True}, {"resolve": ["a=1.2.3.4"]}])
def test_nothing_that_the_gateway_does_goes_with_a_bridge(more: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="goes past the gateway"):
        decide(Asked("bridge", **more), PLAIN, (), {})  # type: ignore[arg-type]


def test_an_unbound_credential_is_a_warning_that_says_what_to_do(tmp_path: Path) -> None:
    plan = Plan("a", Base(), (), credentials=(Credential("github", "kit a"),))
    (warning,) = decide(Asked(), plan, (), {"XDG_CONFIG_HOME": str(tmp_path)}).warnings
    assert "sbx secret set github" in warning


def test_a_placeholder_for_a_key_is_no_secret_and_a_real_one_is() -> None:
    outgoing = decide(Asked(), PLAIN, (), {})
    assert masks(outgoing, "ollama").text("an ollama server") == "an ollama server"
    assert masks(outgoing, "sk-0123456789").text("with sk-0123456789") == "with [secret]"
    masks(outgoing)


def test_a_run_that_learns_nothing_says_so_and_others_say_nothing() -> None:
    assert learned_lines(decide(Asked(), PLAIN, (), {})) == []
    assert learned_lines(decide(Asked(learn=True), PLAIN, (), {}))[0].startswith("learned: nothing")


@pytest.fixture
def bound(tmp_path: Path) -> dict[str, str]:
    """An environment without the key's variable, in which the provider's credential is bound."""
    folder = tmp_path / "sbx"
    folder.mkdir()
    (folder / "credentials.yaml").write_text("hosted:\n  env: KEPT\n  domains: [api.example]\n")
    return {"XDG_CONFIG_HOME": str(tmp_path), "KEPT": "sk-kept-elsewhere"}


def test_a_model_key_comes_from_its_variable_then_from_the_bound_credential(bound: dict[str, str]) -> None:
    urls = ["https://api.example/v1"]
    assert model_key("HOSTED_KEY", "hosted", urls, bound) == "sk-kept-elsewhere"
    assert model_key("HOSTED_KEY", "hosted", urls, {**bound, "HOSTED_KEY": "sk-said"}) == "sk-said"
    assert model_key("", "hosted", urls, bound) == ""
    with pytest.raises(ConfigError, match="HOSTED_KEY"):
        model_key("HOSTED_KEY", "other", urls, bound)


@pytest.mark.parametrize("url", ["https://evil.example/v1", "https://api.example:8443/v1", "http://api.example/v1"])
def test_a_bound_model_key_goes_nowhere_else(bound: dict[str, str], url: str) -> None:
    with pytest.raises(RefusedError, match="may not go to the model server"):
        model_key("HOSTED_KEY", "hosted", ["https://api.example/v1", url], bound)


def test_a_companys_proxy_carries_requests_to_a_hosted_model_only() -> None:
    environ = {"HTTPS_PROXY": "http://user:pw@company.example:8080", "NO_PROXY": "inside.example"}
    assert model_proxy(["http://127.0.0.1:17434/v1"], environ) == ""
    assert model_proxy(["https://inside.example/v1"], environ) == ""
    assert model_proxy(["https://api.example/v1"], environ) == "http://user:pw@company.example:8080"


def test_a_policy_file_is_asked_before_a_bridge() -> None:
    with pytest.raises(RefusedError, match="would go past it"):
        decide(Asked("bridge"), PLAIN, [PolicyFile("p", network_deny=("a.example",))], {})
