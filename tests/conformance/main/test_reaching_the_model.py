"""How a sandbox without a network reaches a model, and what a user is told when it does not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.scripted.answers import Answer, Reply, Say
from runner.scripted.request import Call, Request
from runner.scripted.script import DEMO, Script, load_script
from runner.scripted.server import ScriptedServer
from tests.conformance.main.conftest import Sbx

pytestmark = pytest.mark.engine


@contextmanager
def free_port() -> Iterator[int]:
    """A port that nobody serves."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_no_server_is_code_1_with_each_url_and_its_reason(sbx: Sbx, kit: Path) -> None:
    with free_port() as base, free_port() as fallback:
        (kit / "agent.yaml").write_text(
            f"model: m\nbaseUrl: http://127.0.0.1:{base}/v1\nfallback: http://host.docker.internal:{fallback}/v1\n"
        )
        done = sbx("run", kit, sbx.root / "work", "--grant", "model-url", "-p", "hello")
    assert done.code == 1
    assert f"http://127.0.0.1:{base}/v1" in done.stderr
    assert f"http://host.docker.internal:{fallback}/v1" in done.stderr
    assert done.stderr.lower().count("refused") >= 2
    assert done.stdout == ""


def test_a_page_is_not_a_model_server(sbx: Sbx, kit: Path) -> None:
    page = Reply(200, "<html><title>Welcome to nginx</title></html>", {"Content-Type": "text/html"})
    with ScriptedServer(Script(lambda request: page, routes={"/v1/models": page})) as server:
        done = sbx("run", kit, sbx.root / "work", "--base-url", server.url, "-p", "hello")
    assert done.code == 1
    assert "not a model server" in done.stderr
    assert "Welcome to nginx" in done.stderr


def test_on_a_bridge_a_loopback_server_that_nobody_serves_gives_way_to_the_fallback(sbx: Sbx, kit: Path) -> None:
    with free_port() as nobody, ScriptedServer(load_script(DEMO), "0.0.0.0") as server:
        (kit / "agent.yaml").write_text(
            f"model: scripted\nbaseUrl: http://127.0.0.1:{nobody}/v1\n"
            f"fallback: http://host.docker.internal:{server.port}/v1\n"
        )
        done = sbx("run", kit, sbx.root / "work", "--grant", "model-url", "--network", "bridge", "-p", "hello")
        assert done.code == 0, done.said
        assert len(server.chats) == 1
    (resolved,) = sbx.events("model.resolved")
    assert resolved["url"] == f"http://host.docker.internal:{server.port}/v1"
    assert [t["url"] for t in resolved["tried"]] == [f"http://127.0.0.1:{nobody}/v1"]


def test_on_a_bridge_a_server_of_the_loopback_only_refuses_and_the_message_says_so(sbx: Sbx, kit: Path) -> None:
    with free_port() as nobody, ScriptedServer(load_script(DEMO), "127.0.0.1") as server:
        (kit / "agent.yaml").write_text(
            f"model: scripted\nbaseUrl: http://127.0.0.1:{nobody}/v1\n"
            f"fallback: http://host.docker.internal:{server.port}/v1\n"
        )
        done = sbx("run", kit, sbx.root / "work", "--grant", "model-url", "--network", "bridge", "-p", "hello")
    assert done.code == 1
    assert "refused" in done.stderr.lower()
    assert "127.0.0.1" in done.stderr


def test_a_tool_has_only_a_loopback_and_no_way_to_the_model(sbx: Sbx, kit: Path) -> None:
    """Neither by a port in the container nor by the gateway's proxy, which is the only thing that listens there."""
    script = """
        ls /sys/class/net
        curl -s -o /dev/null -w '%{http_code} ' --noproxy '*' http://127.0.0.1:PORT/v1/models
        curl -s -o /dev/null -w '%{http_code} ' --noproxy '' -x http://127.0.0.1:3128 http://127.0.0.1:PORT/v1/models
        awk 'FNR > 1 && $4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6
    """
    with ScriptedServer(lambda request: _calls(script.replace("PORT", str(server.port)))(request)) as server:
        done = sbx("run", kit, sbx.root / "work", "--base-url", server.url, "-p", "look")
        asked = [request for request in server.requests if request.path.endswith("/models")]
    assert done.code == 0, done.said
    (end,) = sbx.events("tool.end")
    interfaces, direct, by_proxy, *listening = end["output"].split()
    assert (interfaces, direct, by_proxy) == ("lo", "000", "403")
    assert listening == ["0100007F:0C38"]  # 127.0.0.1:3128
    assert len(asked) == 1  # the agent loop's own


def test_a_server_that_is_cut_off_in_mid_stream_is_an_error_and_what_came_is_kept(sbx: Sbx, kit: Path) -> None:
    with ScriptedServer(lambda request: Say("so far so good", cut=True)) as server:
        done = sbx("run", kit, sbx.root / "work", "--base-url", server.url, "-p", "talk")
    assert done.code == 1
    assert "so far so good" in sbx.events("turn.end")[0]["answer"]


def _calls(command: str) -> Callable[[Request], Answer]:
    """A model that runs one command and then says that it did."""

    def answer(request: Request) -> Answer:
        return Say("done") if request.outputs else Say(calls=[Call("bash", {"command": command})])

    return answer
