"""A build reaches what its kit lists for the install, through the gateway; at run time that is closed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Sbx
from tests.conformance.network.conftest import SCRIPT, Server, ask

pytestmark = pytest.mark.engine

AROUND = """{ ip -o addr 2>/dev/null || cat /proc/net/dev
(echo >/dev/tcp/127.0.0.1/PORT) 2>&1; (echo >/dev/tcp/172.17.0.1/PORT) 2>&1; (echo >/dev/tcp/8.8.8.8/53) 2>&1
getent hosts example.com || echo no name
curl -sS --noproxy '*' -m 5 http://172.17.0.1:PORT/ 2>&1; python3 -c '
import socket
for kind, proto in ((socket.SOCK_RAW, 1), (socket.SOCK_DGRAM, 0)):
    try:
        socket.socket(socket.AF_INET, kind, proto).sendto(b"x", ("172.17.0.1", PORT))
        print("sent")
    except OSError as error:
        print(error.strerror)
'; } > /opt/around"""


@pytest.fixture
def built(sbx: Sbx, web: Server) -> Path:
    """A kit that fetches from a server in its install, by a rule for the install alone."""
    folder = sbx.root / "built"
    folder.mkdir()
    (sbx.root / "work").mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    (folder / "demo.yaml").write_text(SCRIPT)
    return folder


def write_spec(folder: Path, port: int, *commands: str) -> None:
    place = f"host.docker.internal:{port}"
    document = {
        "schemaVersion": "2",
        "kind": "sandbox",
        "name": "built-closed",
        "sandbox": {"image": "debian:bookworm-slim"},
        "permissions": {"network": {"install": {"allow": [place]}}},
        "setup": {"install": [{"command": command} for command in commands]},
    }
    (folder / "spec.yaml").write_text(json.dumps(document))


@pytest.fixture
def no_helper(engine: Engine) -> Iterator[None]:
    """After the test, no build's helper is left."""
    yield
    query = "%7B%22label%22%3A%5B%22dev.sbx.build%3Dbuilt-closed%22%5D%7D"
    left = engine.get(f"/containers/json?all=1&filters={query}", doing="listing")
    assert left == []


@pytest.mark.usefixtures("no_helper")
def test_an_install_reaches_its_host_nothing_around_the_proxy_and_the_run_is_closed(
    sbx: Sbx, built: Path, web: Server
) -> None:
    url = f"http://host.docker.internal:{web.port}/"
    write_spec(built, web.port, f"curl -sS {url} > /opt/fetched", AROUND.replace("PORT", str(web.port)))
    output = ask(sbx, built, f"cat /opt/fetched /opt/around; curl -sS {url}")
    assert f"hello from {web.port}" in output
    assert len(web.heads) == 1
    assert "sent" not in output
    assert output.count("Network is unreachable") >= 3
    assert "no name" in output
    assert "eth0" not in output
    assert "rule: default" in output
    entries = [json.loads(line) for line in sbx("policy", "log", "--json").stdout.splitlines()]
    assert [(e["host"], e["port"], e["outcome"]) for e in entries] == [("host.docker.internal", web.port, "denied")]
    checks = {
        install: sbx("policy", "check", f"host.docker.internal:{web.port}", "--kit", built, *install).code
        for install in ((), ("--install",))
    }
    assert checks == {(): 6, ("--install",): 0}


@pytest.mark.usefixtures("no_helper")
def test_a_build_that_asks_for_more_fails_and_says_what_was_refused(sbx: Sbx, built: Path, web: Server) -> None:
    write_spec(built, web.port, "curl -sSf http://elsewhere.invalid/package")
    done = sbx("run", built, sbx.root / "work", "--demo", "-p", "run true", timeout=300)
    assert done.code == 5, done.said
    assert "the gateway had refused elsewhere.invalid:80" in done.stderr
    assert "permissions.network.install.allow" in done.stderr


@pytest.mark.usefixtures("no_helper")
def test_a_policy_file_bounds_a_build_too(sbx: Sbx, built: Path, web: Server) -> None:
    path = sbx.root / "config" / "sbx" / "policy.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"network: {{deny: ['host.docker.internal:{web.port}']}}")
    write_spec(built, web.port, f"curl -sSf http://host.docker.internal:{web.port}/")
    done = sbx("run", built, sbx.root / "work", "--demo", "-p", "run true", timeout=300)
    assert (done.code, web.heads) == (5, [])
    assert "policy.yaml" in done.stderr or "is denied by" in done.stderr
