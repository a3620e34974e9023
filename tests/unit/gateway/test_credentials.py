"""Credentials: bound by the user, routed by the kit, set by the gateway, seen nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from runner.errors import ConfigError, RefusedError
from runner.gateway.credentials import Injector, load
from runner.gateway.interception import ServerTls
from runner.gateway.redaction import EventMask, Redactor, mask_error, remember
from runner.kits.plan import Credential, Inject
from tests.unit.gateway.ends import PATIENCE, HttpServer, http_server
from tests.unit.gateway.test_proxy import AUTHORITY, Sandbox, client_tls, close, sandbox

TOKEN = "tok-En/7+x?&=real"
CREDENTIAL = Credential(
    "github", "kit shell", env=("GITHUB_TOKEN",), inject=(Inject("secure.test:*", "Authorization", scheme="bearer"),)
)


def bindings(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "credentials.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def injector(tmp_path: Path, *credentials: Credential, domains: str = "'secure.test:*'") -> Injector:
    path = bindings(tmp_path, f"github:\n  env: TOKEN_HERE\n  domains: [{domains}]\n")
    return Injector(credentials, load(path), {"TOKEN_HERE": TOKEN}, ServerTls(client_tls))


@pytest.fixture
async def tls_server() -> AsyncIterator[HttpServer]:
    async with http_server(ssl=AUTHORITY.context("secure.test")) as running:
        yield running


async def request(box: Sandbox, trust: ssl.SSLContext, place: str, head: str) -> bytes:
    reader, writer, _ = await box.tunnel(place)
    await writer.start_tls(trust, server_hostname="secure.test")
    writer.write(head.encode())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer += await reader.readexactly(int(length.split(b":")[1]))
    await close(writer)
    return answer


@pytest.mark.parametrize(
    ("inject", "header"),
    [
        (Inject("secure.test:*", "Authorization", scheme="bearer"), f"Authorization: Bearer {TOKEN}"),
        (Inject("secure.test:*", "X-Token", format="token %s!"), f"X-Token: token {TOKEN}!"),
        (Inject("secure.test:*", "X-Token"), f"X-Token: {TOKEN}"),
        (
            Inject("secure.test:*", "Authorization", scheme="basic", username="me"),
            "Authorization: Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode(),
        ),
    ],
)
async def test_the_token_arrives_as_the_header_that_the_kit_names(
    tls_server: HttpServer, tmp_path: Path, inject: Inject, header: str
) -> None:
    secrets = injector(tmp_path, replace(CREDENTIAL, inject=(inject,)))
    async with sandbox("secure.test:*", intercept=secrets.intercept) as box:
        place = f"secure.test:{tls_server.port}"
        head = f"GET /user HTTP/1.1\r\nHost: {place}\r\n{inject.header}: proxy-managed\r\nConnection: close\r\n\r\n"
        answer = await request(box, client_tls(secrets.authority), place, head)
        assert answer.endswith(b'{"data":[]}')
        assert header.encode() in tls_server.requests[0]
        assert b"proxy-managed" not in tls_server.requests[0]
        assert [(e.method, e.credential) for e in await box.logged(2)] == [("GET", "github"), ("CONNECT", "github")]
        assert TOKEN not in str(box.log)


async def test_other_hosts_get_no_token_and_their_tls_stays_closed(tls_server: HttpServer, tmp_path: Path) -> None:
    secrets = injector(
        tmp_path,
        replace(CREDENTIAL, inject=(Inject("api.test:*", "Authorization", scheme="bearer"),)),
        domains="'api.test:*'",
    )
    async with sandbox("secure.test:*", intercept=secrets.intercept) as box:
        place = f"secure.test:{tls_server.port}"
        head = f"GET / HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
        await request(box, client_tls(), place, head)  # the server's own certificate, end to end
        assert TOKEN.encode() not in tls_server.requests[0]


async def test_a_request_in_an_opened_tunnel_cannot_name_another_host(tls_server: HttpServer, tmp_path: Path) -> None:
    secrets = injector(tmp_path, CREDENTIAL)
    async with sandbox("secure.test:*", intercept=secrets.intercept) as box:
        place = f"secure.test:{tls_server.port}"
        answer = await request(
            box, client_tls(secrets.authority), place, "GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 421 ")
        assert tls_server.requests == []


async def test_a_server_that_cannot_show_its_name_gets_no_token(tmp_path: Path) -> None:
    async with http_server(ssl=AUTHORITY.context("evil.test")) as impostor:
        secrets = injector(tmp_path, CREDENTIAL)
        async with sandbox("secure.test:*", intercept=secrets.intercept) as box:
            place = f"secure.test:{impostor.port}"
            head = f"GET / HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
            answer = await request(box, client_tls(secrets.authority), place, head)
            assert answer.startswith(b"HTTP/1.1 502 TLS failed")
            assert impostor.requests == []


async def test_a_denied_host_is_denied_before_its_tunnel_is_opened(tmp_path: Path) -> None:
    secrets = injector(tmp_path, CREDENTIAL)
    async with sandbox(intercept=secrets.intercept) as box:
        _, writer, head = await box.tunnel("secure.test:443")
        await close(writer)
        assert head.startswith(b"HTTP/1.1 403")


def test_the_sandbox_reads_proxy_managed(tmp_path: Path) -> None:
    assert injector(tmp_path, CREDENTIAL).variables == {"GITHUB_TOKEN": "proxy-managed"}


@pytest.mark.parametrize(
    ("domains", "wanted", "passes"),
    [
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "evil.example.com", False),
        ("api.example.com", "*.example.com", False),
        ("api.example.com", "api.example.com:80", False),
        ("api.example.com", "api.example.com:*", False),
        ("'*.example.com'", "api.example.com", True),
        ("'*.example.com'", "*.example.com", True),
        ("'*.example.com'", "**.example.com", False),
        ("'**.example.com'", "*.example.com", True),
        ("'**.example.com'", "**.api.example.com", True),
        ("'**.example.com'", "example.com", False),
        ("'*.example.com'", "a.b.example.com", False),
    ],
)
def test_a_kit_cannot_send_a_token_where_its_binding_does_not(
    tmp_path: Path, domains: str, wanted: str, passes: bool
) -> None:
    credential = replace(CREDENTIAL, inject=(Inject(wanted, "Authorization", scheme="bearer"),))
    if passes:
        assert injector(tmp_path, credential, domains=domains).needed
    else:
        with pytest.raises(RefusedError) as caught:
            injector(tmp_path, credential, domains=domains)
        assert caught.value.exit_code == 6


def test_a_required_credential_must_be_bound_and_an_optional_one_is_left_out(
    tmp_path: Path,
) -> None:
    other = replace(CREDENTIAL, service="gitlab")
    assert not injector(tmp_path, other).needed
    with pytest.raises(ConfigError, match="gitlab"):
        injector(tmp_path, replace(other, required=True))


def test_secrets_come_from_variables_files_and_commands(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-the-file\n")
    command = json.dumps([sys.executable, "-c", "print('from-the-command')"])
    path = bindings(
        tmp_path,
        f"a: {{env: A, domains: [x.example]}}\nb: {{file: {tmp_path}/secret, domains: [x.example]}}\n"
        f"c: {{command: {command}, domains: [x.example]}}\n",
    )
    found = {name: binding.fetch({"A": "from-the-variable"}) for name, binding in load(path).items()}
    assert found == {"a": "from-the-variable", "b": "from-the-file", "c": "from-the-command"}


@pytest.mark.parametrize("environ", [{}, {"TOKEN_HERE": "short"}, {"TOKEN_HERE": "line\nbreak-in-it"}])
def test_a_secret_that_cannot_be_used_is_an_error_without_its_text(tmp_path: Path, environ: dict[str, str]) -> None:
    binding = load(bindings(tmp_path, "github: {env: TOKEN_HERE, domains: [x.example]}"))["github"]
    with pytest.raises(ConfigError) as caught:
        binding.fetch(environ)
    assert not any(value in str(caught.value) for value in environ.values())


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "github: x",
        "github: {env: A}",
        "github: {env: A, domains: []}",
        "github: {domains: [x.example]}",
        "github: {env: A, file: b, domains: [x.example]}",
        "github: {env: A, domains: [x.example], extra: 1}",
        "github: {command: 'a b', domains: [x.example]}",
        "github: {env: A, domains: [10.0.0.0/8]}",
        "github: {env: A, domains: ['https://x.example']}",
        "github: {secret: hidden-value",
    ],
)
def test_a_wrong_credentials_file_is_an_error_that_shows_none_of_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(bindings(tmp_path, text))
    assert "hidden-value" not in str(caught.value)


def test_a_credentials_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = bindings(tmp_path, "{}")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="others may write"):
        load(path)
    assert load(tmp_path / "none") == {}


@pytest.mark.parametrize(
    "shown",
    [
        TOKEN,
        f"curl -H 'Authorization: Bearer {TOKEN}'",
        quote(TOKEN, safe=""),
        quote(TOKEN),
        base64.b64encode(TOKEN.encode()).decode(),
        base64.b64encode(f"me:{TOKEN}".encode()).decode(),
        base64.b64encode(f"you:{TOKEN}:x".encode()).decode(),
        base64.urlsafe_b64encode(f"a{TOKEN}".encode()).decode(),
        json.dumps({"token": TOKEN}),
        TOKEN.encode().hex(),
    ],
)
def test_a_secret_is_masked_in_every_encoding(shown: str) -> None:
    masked = Redactor([TOKEN]).text(f"before {shown} after")
    assert "[secret]" in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert not any(
        form[4:-4] in masked
        for form in (
            TOKEN,
            shown.strip('"{}'),
        )
    )


def test_a_secret_cut_by_pieces_is_masked_and_nothing_else_is_held_back() -> None:
    data = f"one {TOKEN} two tok-E three {TOKEN[:-1]}".encode()
    whole = Redactor([TOKEN]).data(data)
    assert whole == f"one [secret] two tok-E three {TOKEN[:-1]}".encode()
    for size in (1, 2, 3, 7, 1000):
        stream = Redactor([TOKEN]).stream()
        pieces = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join(pieces) + stream.flush() == whole
    assert Redactor([TOKEN]).stream().feed(b"nothing of it\n") == b"nothing of it\n"


def test_documents_are_masked_in_texts_and_keys_and_text_without_a_secret_is_kept() -> None:
    redactor = Redactor([TOKEN, ""])
    assert redactor.document({TOKEN: [1, TOKEN, None, {"a": f"x{TOKEN}"}]}) == {
        "[secret]": [1, "[secret]", None, {"a": "x[secret]"}]
    }
    assert redactor.text("größe \udcff") == "größe \udcff"
    assert Redactor().text(TOKEN) == TOKEN
    with pytest.raises(ValueError, match="fewer than"):
        Redactor(["abc"])


async def test_the_authority_signs_for_one_name_only_and_refuses_a_handshake_for_another(tmp_path: Path) -> None:
    secrets = injector(tmp_path, CREDENTIAL)
    async with sandbox("secure.test:*", intercept=secrets.intercept) as box:
        _, writer, _ = await box.tunnel("secure.test:443")
        with pytest.raises((ssl.SSLError, OSError)):
            await writer.start_tls(client_tls(secrets.authority), server_hostname="other.test")
        await close(writer)
        await asyncio.sleep(0)


async def test_a_server_that_repeats_the_token_does_not_tell_it_to_the_sandbox(
    tls_server: HttpServer, tmp_path: Path
) -> None:
    """In a header and in a body, cut in two pieces in its middle."""

    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = f'{{"you": "{TOKEN}", "b": "{base64.b64encode(TOKEN.encode()).decode()}"}}'.encode()
        writer.write(f"HTTP/1.1 200 OK\r\nX-You: {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for piece in (body[:14], body[14:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    tls_server.answer = echo
    inject = injector(tmp_path, CREDENTIAL)
    async with sandbox("secure.test:*", intercept=inject.intercept) as box:
        trust = ssl.create_default_context(cadata=inject.authority.pem.decode())
        place = f"secure.test:{tls_server.port}"
        answer = await request(box, trust, place, f"GET / HTTP/1.1\r\nHost: {place}\r\nAccept-Encoding: gzip\r\n\r\n")
    sent = tls_server.requests[0]
    assert f"Bearer {TOKEN}".encode() in sent
    assert b"identity" in sent
    assert b"gzip" not in sent
    assert TOKEN.encode() not in answer
    assert base64.b64encode(TOKEN.encode())[2:-6] not in answer
    assert b'{"you": "' + b"*" * len(TOKEN) + b'", "b": "' in answer


def test_events_are_masked_and_a_delta_cut_inside_a_secret_waits() -> None:
    mask = EventMask(Redactor([TOKEN]))
    assert mask("model.delta", {"text": f"it is {TOKEN[:5]}"}) == [("model.delta", {"text": "it is "})]
    assert mask("model.delta", {"text": TOKEN[5:] + " indeed."}) == [("model.delta", {"text": "[secret] indeed."})]
    assert mask("model.delta", {"text": TOKEN[:4]}) == []
    rest = mask("tool.end", {"output": f"a {TOKEN}", "exit": 1})
    assert rest == [("model.delta", {"text": TOKEN[:4]}), ("tool.end", {"output": "a [secret]", "exit": 1})]


def test_without_a_secret_events_pass_as_they_are() -> None:
    event = {"text": "anything"}
    assert EventMask(Redactor())("model.delta", event) == [("model.delta", event)]


def test_stars_keep_the_length_however_the_pieces_are_cut() -> None:
    whole = f"before {TOKEN} between {quote(TOKEN, safe='')} after".encode()
    expected = Redactor([TOKEN]).data(whole, same_length=True)
    assert len(expected) == len(whole)
    for cut in range(len(whole)):
        stream = Redactor([TOKEN]).stream(same_length=True)
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == expected


def test_an_error_is_masked_in_all_its_texts() -> None:
    remember(Redactor([TOKEN]))
    try:
        error = mask_error(ConfigError(f"a {TOKEN}", place=f"p {TOKEN}", hint=f"h {TOKEN}", log=f"l {TOKEN}"))
        assert TOKEN not in f"{error} {error.to_json()}"
    finally:
        remember(Redactor())
