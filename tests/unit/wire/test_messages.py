import json

import pytest

from runner.wire import messages as m
from runner.wire.agent import Agent, Hook

AGENT = Agent("demo", "scripted", ("http://127.0.0.1:1/v1",), hooks=(Hook("preToolCall", "true", "guard"),))


@pytest.mark.parametrize(
    "message",
    [
        m.Hello(version=1, session="s", agent=AGENT, workspace="/w", environment={"A": "ü"}),
        m.Turn(3, "text with \ud800 a lone surrogate"),
        m.Exec(1, ["sh", "-c", "true"], timeout=2),
        m.HttpHead(4, 200, [["a", "b"]], 2),
        m.Credit(5, 100),
    ],
)
def test_what_the_host_sends_arrives_as_it_was(message: m.ToGuest) -> None:
    assert m.decode_for_guest(m.encode(message)) == message


def test_what_the_guest_sends_arrives_as_it_was() -> None:
    exited = m.Exited(1, None, signal=9, oom=True)
    assert m.decode_for_host(m.encode(exited)) == exited


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "unknown message"),
        (b'{"type":"Nonsense"}', "unknown message 'Nonsense'"),
        (b'{"type":["Turn"]}', "unknown message"),
        (b'{"type":"Turn","id":1,"prompt":"x"}', "unknown message 'Turn'"),
        (b'{"type":"Event","name":"x"}', "lacks 'data'"),
        (b'{"type":"Event","name":"x","data":{},"more":1}', "unknown field 'more'"),
        (b'{"type":"Event","name":7,"data":{}}', "Event.name is int, not str"),
        (b'{"type":"Event","name":"x","data":[]}', "Event.data is list"),
        (b'{"type":"Credit","channel":true,"bytes":1}', "Credit.channel is bool"),
        (b'{"type":"Exited","id":1,"code":"0"}', "Exited.code is str"),
    ],
)
def test_what_is_not_a_message_of_the_guests_is_refused_by_the_host(payload: bytes, said: str) -> None:
    with pytest.raises(m.MessageError, match=said.replace("[", r"\[")):
        m.decode_for_host(payload)


def test_an_unknown_exit_code_stays_unknown() -> None:
    payload = json.dumps({"type": "Exited", "id": 1, "code": None}).encode()
    assert m.decode_for_host(payload).code is None  # type: ignore[union-attr]
