"""What may leave a sandbox, asked through the command and tried from inside."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from tests.conformance.main.conftest import Sbx
from tests.conformance.network.conftest import Server, ask
from tests.conformance.network.verdicts import RULES, cases

pytestmark = pytest.mark.engine

TRY_EACH = """python3 - <<'END'
import json, socket
for host, port in json.load(open("cases.json")):
    place = f"{host}:{port}"
    with socket.create_connection(("127.0.0.1", 3128), 30) as end:
        end.sendall(f"CONNECT {place} HTTP/1.1\\r\\nHost: {place}\\r\\n\\r\\n".encode())
        print(end.makefile("rb").readline().split(b" ", 2)[1].decode())
END"""


def test_an_allowed_name_passes_and_another_is_refused_with_the_rule(sbx: Sbx, shell: Path, secure: Server) -> None:
    place = f"example.invalid:{secure.port}"
    command = f"curl -sS https://{place}/ | head -1; curl -sS http://other.invalid/; curl -sS https://other.invalid/"
    options = ("--allow", place, "--resolve", "example.invalid=127.0.0.1", "--ca-certificate", secure.authority)
    output = ask(sbx, shell, command, *options)
    assert f"hello from {secure.port}" in output
    assert "rule: default\n" in output
    assert "no rule allows other.invalid:80; the user can allow it with --allow other.invalid:80" in output
    assert "CONNECT tunnel failed, response 403" in output
    shown = sbx("policy", "log").stdout
    entries = [json.loads(line) for line in sbx("policy", "log", "--json").stdout.splitlines()]
    decided = [(e["host"], e["port"], e["outcome"], e["rule"]) for e in entries]
    assert sorted(decided) == [
        ("example.invalid", secure.port, "allowed", place),
        ("other.invalid", 80, "denied", "default"),
        ("other.invalid", 443, "denied", "default"),
    ]
    assert all(e["call"] for e in entries)
    assert place in shown and "other.invalid:443" in shown
    assert [e["host"] for e in sbx.events("network")] == [e["host"] for e in entries]


def test_for_two_hundred_hosts_the_check_and_real_requests_give_the_verdict_that_was_thought(
    sbx: Sbx, shell: Path
) -> None:
    table = cases()
    assert len(table) >= 200
    expected = {f"{host}:{port}": passes for host, port, passes in table}
    done = sbx("policy", "check", *expected, *RULES, "--json")
    assert done.code == 6, done.said
    checked = {answer["asked"]: answer["allowed"] for answer in json.loads(done.stdout)}
    (sbx.root / "work" / "cases.json").write_text(json.dumps([[host, port] for host, port, _ in table]))
    statuses = ask(sbx, shell, TRY_EACH, *RULES).split()
    tried = {place: status != "403" for place, status in zip(expected, statuses, strict=True)}
    wrong = {p: (checked[p], tried[p]) for p in expected if not checked[p] == tried[p] == expected[p]}
    assert wrong == {}
    logged = [json.loads(line)["outcome"] for line in sbx("policy", "log", "--json").stdout.splitlines()]
    assert logged.count("denied") == sum(not passes for passes in expected.values())


def test_a_default_sandbox_refuses_everything_and_logs_it(sbx: Sbx, shell: Path, web: Server) -> None:
    ports = f"http://host.docker.internal:{web.port}/ http://127.0.0.1:{web.port}/ http://169.254.169.254/"
    output = ask(
        sbx, shell, f"for url in {ports}; do curl -s -o /dev/null -w '%{{http_code}} ' --noproxy '' $url; done"
    )
    assert output.split()[:3] == ["403", "403", "403"]
    assert web.heads == []
    outcomes = [json.loads(line)["outcome"] for line in sbx("policy", "log", "--json").stdout.splitlines()]
    assert outcomes == ["denied"] * 3


def test_learning_lets_through_and_tells_the_shortest_list(sbx: Sbx, shell: Path, web: Server) -> None:
    url = f"http://name.invalid:{web.port}/"
    command = f"run curl -s {url} {url} | head -1; curl -s https://nowhere.invalid/"
    options = ("--learn", "--resolve", "name.invalid=127.0.0.1")
    done = sbx("run", "-q", shell, sbx.root / "work", "--demo", "-p", command, *options)
    assert done.code == 0, done.said
    assert f"hello from {web.port}" in done.stdout
    assert done.stderr.splitlines()[-3:] == [
        "learned: this run needs",
        f"  --allow name.invalid:{web.port}",
        "  --allow nowhere.invalid",
    ]


def test_a_deny_on_the_command_line_wins(sbx: Sbx, shell: Path, web: Server) -> None:
    place = f"host.docker.internal:{web.port}"
    command = f"curl -s -w '%{{http_code}}' -o /dev/null http://{place}/"
    assert ask(sbx, shell, command, "--allow", place).startswith("200")
    assert ask(sbx, shell, command, "--allow", place, "--deny", place).startswith("403")


def policy_file(sbx: Sbx, text: str) -> None:
    path = sbx.root / "config" / "sbx" / "policy.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("network: {allow: [a.invalid]}", ["--network", "bridge"]),
        ("network: {deny: [a.invalid]}", ["--network", "bridge"]),
        ("grants: {deny: [network]}", ["--network", "open"]),
        ("grants: {deny: [network]}", ["--learn"]),
        ("grants: {allow: [mount]}", ["--allow", "a.invalid"]),
    ],
)
def test_no_option_widens_a_policy_file(sbx: Sbx, shell: Path, policy: str, options: list[str]) -> None:
    policy_file(sbx, policy)
    done = sbx("run", shell, sbx.root / "work", "--demo", "-p", "run true", "--dry-run", *options)
    assert done.code == 6, done.said
    assert "policy.yaml" in done.stderr


def test_a_policy_file_bounds_allow_learn_and_the_check(sbx: Sbx, shell: Path) -> None:
    policy_file(sbx, "network: {allow: [good.invalid]}")
    for options in (["--allow", "evil.invalid", "--allow", "good.invalid"], ["--network", "open"]):
        done = sbx("policy", "check", "good.invalid", "evil.invalid", *options, "--json")
        assert [answer["allowed"] for answer in json.loads(done.stdout)] == [True, False]
    command = "for h in good evil; do curl -s -o /dev/null -w '%{http_code} ' http://$h.invalid:443/; done"
    assert ask(sbx, shell, command, "--learn").split()[:2] == ["502", "403"]


def test_a_policy_file_bounds_the_model_servers(sbx: Sbx, kit: Path) -> None:
    policy_file(sbx, "models: {allow: ['http://127.0.0.1:9/v1']}")
    done = sbx("run", kit, sbx.root / "work", "-p", "hello")
    assert (done.code, "does not allow the model server" in done.stderr) == (6, True), done.said
    done = sbx("run", kit, sbx.root / "work", "--base-url", "http://127.0.0.1:10/v1", "--dry-run", "-p", "hello")
    assert done.code == 6
    done = sbx("run", kit, sbx.root / "work", "--base-url", "http://127.0.0.1:9/v1", "--dry-run", "-p", "hello")
    assert done.code == 0, done.said


@pytest.fixture
def asking(shell: Path) -> Path:
    """A kit that asks for a host."""
    (shell / "spec.yaml").write_text(
        'schemaVersion: "2"\nkind: sandbox\nname: asking\nsandbox: {image: "debian:bookworm-slim"}\n'
        "permissions: {network: {allow: [asked.invalid]}}\n"
    )
    return shell


def test_what_a_kit_asks_for_needs_a_grant(sbx: Sbx, asking: Path) -> None:
    run = ("run", asking, sbx.root / "work", "--demo", "-p", "run true", "--dry-run")
    refused = sbx(*run)
    assert (refused.code, "--grant network" in refused.stderr) == (6, True), refused.said
    assert sbx(*run, "--grant", "network").code == 0
    answer = json.loads(sbx("policy", "check", "asked.invalid", "--kit", asking, "--json").stdout)[0]
    assert (answer["allowed"], answer["rule"]) == (False, "grant network")
    assert sbx("policy", "check", "asked.invalid", "--kit", asking, "--grant", "network").code == 0
    policy_file(sbx, "grants: {deny: [network]}")
    assert sbx(*run, "--grant", "network").code == 6
    assert sbx("policy", "check", "asked.invalid", "--kit", asking, "--grant", "network").code == 6


def on_terminal(sbx: Sbx, *arguments: str | Path, answer: str) -> tuple[int, str]:
    """Runs the command on a terminal and answers its question, if it asks one; code and what it showed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        sbx.command(*arguments), stdin=follower, stdout=follower, stderr=follower, env=sbx.env(), cwd=sbx.root
    )
    os.close(follower)
    shown, limit = b"", time.monotonic() + 60
    while time.monotonic() < limit:
        if not select.select([leader], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        shown += piece
        if b"[y/N] " in piece:
            os.write(leader, answer.encode() + b"\n")
    os.close(leader)
    return process.wait(10), shown.decode()


def test_a_terminal_is_asked_once_for_a_kit_and_its_content(sbx: Sbx, asking: Path) -> None:
    run = ("run", asking, sbx.root / "work", "--demo", "--dry-run")
    code, shown = on_terminal(sbx, *run, answer="n")
    assert (code, "asked.invalid" in shown) == (6, True)
    code, shown = on_terminal(sbx, *run, answer="y")
    assert (code, "[y/N]" in shown) == (0, True)
    code, shown = on_terminal(sbx, *run, answer="n")
    assert (code, "[y/N]" in shown) == (0, False)
    (asking / "guard.sh").write_text("exit 0\n")
    code, shown = on_terminal(sbx, *run, answer="n")
    assert (code, "[y/N]" in shown) == (6, True)
