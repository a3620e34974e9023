"""A secret goes where its binding says, and is nowhere else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Done, Sbx
from tests.conformance.network import places
from tests.conformance.network.conftest import SCRIPT, Server, ask

pytestmark = pytest.mark.engine

SECRET = "tok-7Hq2/x9+Zw==plainly"
LOOK = """env > env.txt; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > processes.txt 2>/dev/null
grep -rs . /run/sbx /tmp > run.txt; echo done"""


def spec(name: str, port: int, extra: str = "", domain: str = "example.invalid") -> str:
    return f"""
schemaVersion: "2"
kind: sandbox
name: {name}
sandbox: {{image: "debian:bookworm-slim"}}
permissions: {{network: {{allow: ["example.invalid:{port}"]}}}}
credentials:
  - service: echo
    apiKey:
      name: ECHO_TOKEN
      inject:
        - domain: "{domain}:{port}"
          header: X-Token
          format: "Token %s"
{extra}
"""


@pytest.fixture
def needy(tmp_path: Path, secure: Server) -> Path:
    """A kit that wants a token at the echo service."""
    folder = tmp_path / "needy"
    folder.mkdir()
    (tmp_path / "work").mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    (folder / "demo.yaml").write_text(SCRIPT)
    (folder / "spec.yaml").write_text(spec("needy", secure.port))
    return folder


def bind(sbx: Sbx, port: int, secret: str = SECRET) -> None:
    done = sbx("secret", "set", "echo", "--domain", f"example.invalid:{port}", stdin=secret + "\n")
    assert done.code == 0, done.said
    assert secret not in done.said


def options(secure: Server) -> list[str | Path]:
    resolve = ["--resolve", "example.invalid=127.0.0.1"]
    return ["--grant", "network", *resolve, "--ca-certificate", secure.authority]


@pytest.fixture
def kept(engine: Engine) -> Iterator[str]:
    """The name of a sandbox that outlives its run, and is removed after the test."""
    name = "secret-search"
    yield name
    subprocess.run(["docker", "rm", "-fv", f"sbx-{name}"], capture_output=True, check=False)
    subprocess.run(["docker", "volume", "rm", "-f", f"sbx-{name}-home"], capture_output=True, check=False)


def searched(sbx: Sbx, engine: Engine, done: Done, name: str) -> dict[str, bytes]:
    found = places.of_run(sbx, done) | places.of_workspace(sbx.root / "work")
    return found | places.of_container(engine, f"sbx-{name}")


def test_a_token_arrives_as_a_header_and_is_nowhere_else(
    sbx: Sbx, needy: Path, secure: Server, engine: Engine, kept: str
) -> None:
    bind(sbx, secure.port)
    url = f"https://example.invalid:{secure.port}/"
    command = f"run echo $ECHO_TOKEN; curl -sS {url}; curl -sS --compressed {url} > answer.txt; {LOOK}"
    run = ("run", "--keep", "--name", kept, needy, sbx.root / "work", "--demo", "-p", command, *options(secure))
    done = sbx(*run, timeout=300)
    assert done.code == 0, done.said
    assert secure.header("X-Token") == [f"Token {SECRET}"] * 2
    assert "proxy-managed" in done.stdout
    assert "X-Token: Token " + "*" * len(SECRET) in done.stdout
    found = searched(sbx, engine, done, kept)
    assert {"workspace: env.txt", "workspace: processes.txt", "state: record.jsonl"} <= found.keys()
    assert places.holding(found, SECRET) == []
    assert '"credential": "echo"' in sbx("policy", "log", "--json").stdout


def test_the_search_finds_a_leak_in_each_place(
    sbx: Sbx, needy: Path, secure: Server, engine: Engine, kept: str
) -> None:
    """The same secret, not bound, so that nothing is masked, and put on purpose where the search looks."""
    install = f"setup: {{install: [{{command: \"echo '{SECRET}' > /opt/leak\"}}]}}"
    leak = f'{install}\nenvironment: {{variables: {{LEAK: "{SECRET}"}}}}\n'
    (needy / "spec.yaml").write_text(spec("needy", secure.port, leak))
    command = f"run echo $LEAK; echo $LEAK > ~/leak; (LEAK=$LEAK sleep 9 & {LOOK}; kill %1)"
    run = ("run", "--keep", "--name", kept, needy, sbx.root / "work", "--demo", "-p", command, *options(secure))
    done = sbx(*run, timeout=300)
    assert done.code == 0, done.said
    assert set(places.holding(searched(sbx, engine, done, kept), SECRET)) >= {
        "container files",
        "home",
        "image history",
        "state: record.jsonl",
        "stdout",
        "workspace: env.txt",
        "workspace: processes.txt",
    }
    labelled = ["docker", "create", "--label", f"leak={SECRET}", "--label", "dev.sbx.test=network"]
    image = engine.get(f"/containers/sbx-{kept}/json", doing="inspecting")["Image"]
    made = subprocess.run([*labelled, image], capture_output=True, text=True, check=True).stdout.strip()
    try:
        document = json.dumps(engine.get(f"/containers/{made}/json", doing="inspecting")).encode()
        assert places.holding({"docker inspect": document}, SECRET) == ["docker inspect"]
    finally:
        subprocess.run(["docker", "rm", "-f", made], capture_output=True, check=True)


def test_each_encoding_of_a_leak_is_found() -> None:
    assert all(places.holding({"x": b"junk " + form + b" junk"}, SECRET) == ["x"] for form in places.forms(SECRET))
    assert places.holding({"x": b"tok-7Hq2 and other pieces"}, SECRET) == []


CRASHES = (
    "runner.session.record:Record.create",
    "runner.launch.network:opened",
    "runner.launch.orders:order_for",
    "runner.sandbox.container:Janitor",
    "runner.session.session:snapshot",
    "runner.launch.telling:banner",
    "runner.sandbox.container:Sandbox.create",
    "runner.session.session:Session.__aenter__",
    "runner.frontends.printer:Printer.run",
    "runner.session.session:Session.__aexit__",
)


@pytest.mark.parametrize(
    "point", [*CRASHES[::3], *(pytest.param(p, marks=pytest.mark.slow) for p in CRASHES if p not in CRASHES[::3])]
)
def test_a_crash_tells_no_secret(sbx: Sbx, needy: Path, secure: Server, point: str) -> None:
    bind(sbx, secure.port)
    command = f"run curl -sS https://example.invalid:{secure.port}/"
    arguments = sbx.command("run", needy, sbx.root / "work", "--demo", "-p", command, *options(secure))
    arguments[1:3] = ["-m", "tests.conformance.network.crashing", point]
    crashed = subprocess.run(
        arguments,
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        cwd=sbx.root,
        env=sbx.env({"SBX_TEST_SECRET": SECRET}),
        check=False,
    )
    done = Done(crashed.returncode, crashed.stdout, crashed.stderr)
    assert done.code != 0
    trace = (sbx.root / "state" / "sbx" / "last-crash.txt").read_text()
    assert "RuntimeError: crashed with Authorization: Bearer [secret]" in trace
    assert places.holding(places.of_run(sbx, done), SECRET) == []


def test_a_crash_of_a_run_that_knows_no_secret_shows_that_the_search_finds_it(
    sbx: Sbx, needy: Path, secure: Server
) -> None:
    arguments = sbx.command("run", needy, sbx.root / "work", "--demo", "-p", "run true", *options(secure))
    arguments[1:3] = ["-m", "tests.conformance.network.crashing", CRASHES[0]]
    env = sbx.env({"SBX_TEST_SECRET": SECRET})
    crashed = subprocess.run(arguments, input="", capture_output=True, text=True, timeout=120, env=env, check=False)
    found = places.holding(places.of_run(sbx, Done(crashed.returncode, crashed.stdout, crashed.stderr)), SECRET)
    assert found == ["state: last-crash.txt", "stderr"]


def test_a_kit_cannot_send_a_token_elsewhere(sbx: Sbx, needy: Path, secure: Server) -> None:
    bind(sbx, secure.port)
    (needy / "spec.yaml").write_text(spec("needy", secure.port, domain="evil.invalid"))
    done = sbx("run", needy, sbx.root / "work", "--demo", "-p", "run true", "--dry-run", *options(secure))
    assert (done.code, "where its binding does not let it go" in done.stderr) == (6, True), done.said


def test_every_common_client_trusts_the_sessions_authority(sbx: Sbx, needy: Path, secure: Server) -> None:
    """Of curl, git and Python, which every image has. Node reads a file of its own, Java a truststore."""
    bind(sbx, secure.port)
    url = f"https://example.invalid:{secure.port}/"
    fetch = f"import urllib.request; print(urllib.request.urlopen('{url}').status)"
    command = f"""curl -s -o /dev/null -w '%{{http_code}}\\n' {url}; python3 -c "{fetch}"
git ls-remote {url} 2>&1 | grep -ci certificate; git ls-remote {url} 2>&1 | tail -1
grep -c BEGIN $NODE_EXTRA_CA_CERTS; test $(grep -c BEGIN $SSL_CERT_FILE) -gt 100 && echo whole"""
    lines = ask(sbx, needy, command, *options(secure)).splitlines()
    assert lines[:3] == ["200", "200", "0"]
    assert "not found" in lines[3] or "not valid" in lines[3]
    assert lines[4:6] == ["2", "whole"]
    assert "git/2" in " ".join(secure.header("User-Agent"))


def test_secrets_are_bound_listed_checked_and_removed(sbx: Sbx) -> None:
    assert sbx("secret", "set", "echo", stdin=SECRET).code == 2
    bind(sbx, 443)
    folder = sbx.root / "config" / "sbx"
    assert (folder / "secrets" / "echo").stat().st_mode & 0o777 == 0o600
    assert (folder / "credentials.yaml").stat().st_mode & 0o777 == 0o600
    assert sbx("secret", "set", "var", "--domain", "a.invalid", "--env", "NOT_SET_HERE").code == 0
    listed = json.loads(sbx("secret", "ls", "--json").stdout)
    assert [(row["service"], row["kind"]) for row in listed] == [("echo", "file"), ("var", "env")]
    checked = sbx("secret", "check", "--json")
    assert checked.code == 2
    assert [(row["service"], row["ok"]) for row in json.loads(checked.stdout)] == [("echo", True), ("var", False)]
    assert sbx("secret", "check", env={"NOT_SET_HERE": "a-value-that-is-set"}).code == 0
    assert SECRET not in sbx("secret", "ls").said + checked.said
    assert sbx("secret", "rm", "echo").code == 0
    assert not (folder / "secrets" / "echo").exists()
    assert sbx("secret", "rm", "echo").code == 3
