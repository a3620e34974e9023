"""Which URL is taken, and what is said of those that are not."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from runner.guest.model.failure import ModelFailure
from runner.guest.model.items import Waiting
from runner.guest.model.resolve import Resolved, resolve
from runner.scripted import Answer, Reply, Say, Script, ScriptedServer
from tests.conformance.model_servers.conftest import client_for


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def server(*models: str, **routes: Answer | Sequence[Answer]) -> ScriptedServer:
    """A server with these models; a route is named `models`, `props`, `show` or `lmstudio`."""
    paths = {"models": "/v1/models", "props": "/props", "show": "/api/show", "lmstudio": "/api/v0/models"}
    return ScriptedServer(Script(lambda request: Say("hi"), models, {paths[k]: v for k, v in routes.items()}))


async def find(route: str, urls: Sequence[str], **options: Any) -> Resolved:
    async with client_for(route, urls) as http:
        return await resolve(urls, http, **{"loading_poll": 0.02, "first_token_timeout": 5.0, **options})


async def test_the_first_url_that_answers_is_taken(route: str) -> None:
    with server("m") as first, server("m") as second:
        found = await find(route, [first.url, second.url], model="m")
        assert (found.url, found.tried, found.warnings) == (first.url, (), ())
        assert second.requests == []


async def test_a_refused_url_means_next_and_is_told(route: str) -> None:
    nobody = closed_port()
    with server("m") as second:
        found = await find(route, [nobody, second.url + "/"], model="m")
    assert found.url == second.url
    [(url, reason)] = found.tried
    assert url == nobody and "refused" in reason


async def test_an_unresolvable_name_means_next(route: str) -> None:
    with server("m") as second:
        found = await find(route, ["http://no-such-host.invalid:1/v1", second.url], model="m")
    assert found.url == second.url and "resolve" in found.tried[0][1]


async def test_a_gateway_refusal_means_next() -> None:
    with server("m") as foreign, server("m") as allowed:
        async with client_for("wire", [allowed.url]) as http:
            found = await resolve([foreign.url, allowed.url], http)
        assert found.url == allowed.url and "refuse" in found.tried[0][1]
        assert foreign.requests == []


async def test_when_none_answers_the_error_lists_every_url_with_its_own_reason(route: str) -> None:
    urls = [closed_port(), "http://no-such-host.invalid:1/v1"]
    with pytest.raises(ModelFailure) as caught:
        await find(route, urls)
    first, second = caught.value.message.splitlines()[1:]
    assert urls[0] in first and "refused" in first
    assert urls[1] in second and "resolve" in second
    assert caught.value.kind == "unreachable" and "baseUrl" in caught.value.hint


async def test_a_plain_list_of_models_is_a_list(route: str) -> None:
    with server(models=Reply(body=[{"id": "a"}, "b", {"name": "c"}])) as only:
        found = await find(route, [only.url])
    assert (found.models, found.model) == (("a", "b", "c"), "a")


async def test_an_empty_model_name_is_the_first_listed(route: str) -> None:
    with server("first", "second") as only:
        assert (await find(route, [only.url], model="")).model == "first"


async def test_a_model_that_is_not_listed_is_a_warning_that_lists_them(route: str) -> None:
    with server("a", "b") as only:
        found = await find(route, [only.url], model="c")
    [warning] = found.warnings
    assert found.model == "c" and "'c'" in warning and "a, b" in warning


async def test_latest_needs_no_tag(route: str) -> None:
    with server("qwen3:latest") as only:
        assert (await find(route, [only.url], model="qwen3")).warnings == ()


async def test_a_server_that_loads_is_waited_for(route: str) -> None:
    loading = Reply(503, {"error": {"message": "Loading model"}})
    told: list[Waiting] = []
    with server(models=[loading, loading, Reply(body={"data": [{"id": "m"}]})]) as only:
        found = await find(route, [only.url], on_wait=told.append)
    assert found.model == "m" and "Loading model" in told[0].why


async def test_loading_is_bounded_by_the_first_token_timeout(route: str) -> None:
    with server(models=Reply(503, "loading model")) as only, server("m") as second:
        with pytest.raises(ModelFailure, match="firstTokenTimeout"):
            await find(route, [only.url, second.url], first_token_timeout=0.2)
        assert second.requests == []


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_an_error_of_a_real_server_is_reported_and_not_stepped_over(route: str, status: int) -> None:
    with server(models=Reply(status, {"error": "no such luck"})) as broken, server("m") as second:
        with pytest.raises(ModelFailure, match=f"HTTP {status}: no such luck") as caught:
            await find(route, [broken.url, second.url])
        assert caught.value.kind == "http" and second.requests == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Reply(200, "<html><title>Router login</title></html>", {"content-type": "text/html"}), "Router login"),
        (Reply(301, "", {"location": "http://elsewhere/"}), "a redirect to http://elsewhere/"),
        (Reply(200, {"hello": "world"}), '{"hello": "world"}'),
        (Reply(200, "SSH-2.0-OpenSSH\nx"), "SSH-2.0-OpenSSH"),
    ],
    ids=["page", "redirect", "other JSON", "text"],
)
async def test_what_is_no_model_server_is_called_that_with_its_first_line(route: str, answer: Reply, says: str) -> None:
    with server(models=answer) as other, pytest.raises(ModelFailure) as caught:
        await find(route, [other.url])
    assert caught.value.kind == "not-a-server"
    assert "not a model server" in caught.value.message and says in caught.value.message


# ---- the context window


def listed(name: str, owner: str, **more: object) -> Reply:
    return Reply(body={"object": "list", "data": [{"id": name, "owned_by": owner, **more}]})


PROPS = Reply(body={"default_generation_settings": {"n_ctx": 8192}, "total_slots": 1})


async def test_llama_cpp_tells_its_context_in_props(route: str) -> None:
    with server(models=listed("m", "llamacpp"), props=PROPS) as only:
        assert (await find(route, [only.url])).context_window == 8192


async def test_the_stub_of_llmman_is_never_believed(route: str) -> None:
    with server(models=listed("m", "llamacpp"), props=PROPS) as only:
        assert (await find(route, [only.url], provider="llmman")).context_window == 0
        assert [r.path for r in only.requests] == ["/v1/models"]


async def test_a_configured_context_window_wins_and_nobody_is_asked(route: str) -> None:
    with server(models=listed("m", "llamacpp"), props=PROPS) as only:
        assert (await find(route, [only.url], context_window=2048)).context_window == 2048
        assert [r.path for r in only.requests] == ["/v1/models"]


async def test_ollama_tells_the_context_it_serves(route: str) -> None:
    show = Reply(body={"parameters": "num_ctx    16384\nstop  x", "model_info": {"qwen3.context_length": 40960}})
    with server(models=listed("m", "library"), show=show) as only:
        found = await find(route, [only.url])
    assert (found.context_window, found.warnings) == (16384, ())
    assert only.requests[-1].json == {"model": "m"}


async def test_the_context_that_ollamas_model_could_have_comes_with_a_warning(route: str) -> None:
    with server(
        models=listed("m", "library"), show=Reply(body={"model_info": {"qwen3.context_length": 40960}})
    ) as only:
        found = await find(route, [only.url])
    assert found.context_window == 40960 and "may serve less" in found.warnings[0]


async def test_lm_studio_tells_the_context_that_is_loaded(route: str) -> None:
    entries = [{"id": "m", "loaded_context_length": 4096, "max_context_length": 131072}]
    with server(models=listed("m", "organization_owner"), lmstudio=Reply(body={"data": entries})) as only:
        assert (await find(route, [only.url])).context_window == 4096


async def test_vllm_tells_its_context_in_the_list(route: str) -> None:
    with server(models=listed("m", "vllm", max_model_len=32768)) as only:
        assert (await find(route, [only.url])).context_window == 32768


@pytest.mark.parametrize("answer", [Reply(500, "no"), Reply(body=["x"]), Reply(200, "{"), Reply(body={"x": 1})])
async def test_a_probe_that_tells_nothing_is_no_error(route: str, answer: Reply) -> None:
    with server(models=listed("m", "llamacpp"), props=answer) as only:
        assert (await find(route, [only.url])).context_window == 0
