"""The server on a real socket: what a client sees, and what is recorded."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from runner.errors import UsageError
from runner.scripted import Call, Chunks, Pause, Raw, Reply, Say, Script, ScriptedServer
from runner.scripted.answers import CUT


def ask(
    server: ScriptedServer, *, stream: bool = False, method: str = "POST", path: str = "/v1/chat/completions"
) -> tuple[Any, bytes]:
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "q"}]})
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)) as connection:
        connection.request(method, path, body if method == "POST" else None)
        with connection.getresponse() as response:
            return response, response.read()


def test_the_models_are_listed() -> None:
    with ScriptedServer(Script(lambda r: Say("x"), models=("a", "b"))) as server:
        _, data = ask(server, method="GET", path="/v1/models")
    assert [entry["id"] for entry in json.loads(data)["data"]] == ["a", "b"]


def test_a_whole_answer_holds_text_calls_and_usage() -> None:
    with ScriptedServer(lambda r: Say("hi", calls=[Call("bash", {"command": "ls"})])) as server:
        _, data = ask(server)
    document = json.loads(data)
    [choice] = document["choices"]
    assert choice["message"]["content"] == "hi" and choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}
    assert document["usage"]["total_tokens"] > 0 and document["system_fingerprint"] == "scripted"


def test_a_streamed_answer_comes_in_deltas_and_ends_with_done() -> None:
    with ScriptedServer(lambda r: Say("hello world", piece=4)) as server:
        response, data = ask(server, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    choices = [c for line in lines[:-1] for c in json.loads(line)["choices"]]
    assert [c["delta"]["content"] for c in choices if c["delta"].get("content")] == ["hell", "o wo", "rld"]
    assert choices[-1]["finish_reason"] == "stop"


def test_every_request_is_recorded_and_chats_apart() -> None:
    with ScriptedServer(lambda r: Say("x")) as server:
        assert server.requests == []
        ask(server, method="GET", path="/v1/models")
        ask(server)
    assert [r.path for r in server.requests] == ["/v1/models", "/v1/chat/completions"]
    assert [r.question for r in server.chats] == ["q"]


def test_an_unknown_path_and_a_request_without_messages_are_errors() -> None:
    with ScriptedServer(lambda r: Say("x")) as server:
        assert ask(server, method="GET", path="/v1/nothing")[0].status == 404
        assert ask(server, method="GET")[0].status == 405


def test_any_status_headers_and_body_can_be_given() -> None:
    with ScriptedServer(lambda r: Reply(429, {"error": "busy"}, {"Retry-After": "7"})) as server:
        response, data = ask(server)
    assert (response.status, response.headers["retry-after"], json.loads(data)) == (429, "7", {"error": "busy"})


@pytest.mark.parametrize(
    "answer", [Chunks(["data: x\n\n", CUT]), Raw([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1", CUT])]
)
def test_a_cut_connection_is_cut(answer: Any) -> None:
    with ScriptedServer(lambda r: answer) as server, pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(server)


def test_a_client_that_goes_away_is_noticed_during_a_pause() -> None:
    with ScriptedServer(lambda r: Chunks([Pause(30)])) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "q"}]}))
        connection.getresponse()
        connection.close()
        assert server.chats[0].gone.wait(2)


def test_stopping_ends_an_answer_that_pauses_and_frees_the_port() -> None:
    server = ScriptedServer(lambda r: Chunks([Pause(30)])).start()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "q"}]}))
    connection.getresponse()
    port = server.port
    server.stop()
    assert server.chats[0].answered.wait(2)
    connection.close()
    with ScriptedServer(lambda r: Say("x"), port=port) as again:
        assert again.port == port


def test_a_port_that_is_taken_is_a_usage_error() -> None:
    with ScriptedServer(lambda r: Say("x")) as server, pytest.raises(UsageError, match="cannot listen"):
        ScriptedServer(lambda r: Say("x"), port=server.port).start()


def test_it_serves_standing_alone_until_it_is_told_to_end() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.scripted", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "not a real one" in line
        connection = http.client.HTTPConnection(line.split("//")[1].split("/")[0], timeout=5)
        connection.request("GET", "/v1/models")
        assert json.loads(connection.getresponse().read())["data"][0]["id"] == "scripted"
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_bad_script_ends_it_with_code_2_and_the_place(tmp_path: Any) -> None:
    (tmp_path / "s.yaml").write_text("answers: [{txt: a}]")
    done = subprocess.run(
        [sys.executable, "-m", "runner.scripted", str(tmp_path / "s.yaml")], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2 and "answers[0].txt" in done.stderr and done.stdout == ""
