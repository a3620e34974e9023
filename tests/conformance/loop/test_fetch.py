"""`fetch_content`: pages as Markdown, asked for by a process of the owner's that takes the tools' environment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.guest.spawn.spawner import Spawner
from runner.guest.tools.base import Place, environment_for
from runner.guest.tools.files import FetchContent
from runner.guest.tools.markdown import markdown
from tests.conformance.loop.conftest import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = """<!doctype html><html><head><title>A  page</title><style>p {color: red}</style></head>
<body><nav><a href="/home">Home</a></nav><h2>Head</h2><p>Some <b>bold</b> &amp; <code>code</code>.
<script>alert(1)</script><ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>
<pre>def f():
    return 1</pre><table><tr><th>a</th><th>b</th></tr></table></body></html>"""


class Handler(BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.removeprefix("http://pages.test")
        kind, body, status, more = "text/html; charset=utf-8", PAGE.encode(), 200, {}
        match path:
            case "/plain":
                kind, body = "text/plain", b"just text"
            case "/latin":
                kind, body = "text/html", '<meta charset="iso-8859-1"><p>äöü'.encode("latin-1")
            case "/binary":
                kind, body = "application/zip", b"PK\3\4"
            case "/long":
                kind, body = "text/plain", b"0123456789" * 12_000
            case "/to-file":
                status, more = 302, {"Location": "file:///etc/passwd"}
            case "/loop":
                status, more = 302, {"Location": "/loop"}
            case "/moved":
                status, more = 302, {"Location": "/plain"}
            case "/denied":
                kind, status, body = "text/plain", 403, b"refused by the rule deny *.test"
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Handler.asked = []
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tool(root: Path, spawner: Spawner) -> FetchContent:
    workspace = str(root / "workspace")
    return FetchContent(spawner, Place(workspace, OWNER, environment_for(OWNER, workspace, {})))


async def test_a_page_becomes_markdown(tool: FetchContent, web: str) -> None:
    result = await tool.run({"url": f"{web}/page"}, "1")
    assert not result.is_error, result.output
    for expected in (
        "# A page\n",
        f"[Home]({web}/home)",
        "## Head\n",
        "Some **bold** & `code`.",
        "- one\n  - inner\n",
        "- two\n",
        "```\ndef f():\n    return 1\n```",
        "| a | b |",
    ):
        assert expected in result.output
    assert "alert" not in result.output and "color" not in result.output


@pytest.mark.parametrize(("path", "text"), [("/plain", "just text"), ("/moved", "just text"), ("/latin", "äöü")])
async def test_text_comes_as_it_is_whatever_its_encoding(tool: FetchContent, web: str, path: str, text: str) -> None:
    assert (await tool.run({"url": web + path}, "1")).output == text


async def test_a_long_page_comes_in_parts(tool: FetchContent, web: str) -> None:
    first = (await tool.run({"url": f"{web}/long"}, "1")).output
    assert first.endswith("[bytes 0 to 51,200 of 120,000; go on with offset 51200]")
    last = (await tool.run({"url": f"{web}/long", "offset": 102_400}, "1")).output
    assert len(last) == 17_600


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/binary", "is application/zip, 4 bytes, and no text"),
        ("/loop", "redirect"),
        ("/to-file", "is not allowed"),
        ("/denied", "HTTP 403 Forbidden: refused by the rule deny *.test"),
    ],
)
async def test_what_cannot_be_shown_says_why(tool: FetchContent, web: str, path: str, said: str) -> None:
    result = await tool.run({"url": web + path}, "1")
    assert result.is_error
    assert said in result.output
    assert "root:" not in result.output


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd", "data:text/plain,x", ""])
async def test_only_the_web_is_fetched(tool: FetchContent, url: str) -> None:
    result = await tool.run({"url": url}, "1")
    assert (result.is_error, result.output) == (True, "only http:// and https:// addresses can be fetched")


async def test_nobody_there_is_an_error_for_the_model(tool: FetchContent) -> None:
    assert "refused" in (await tool.run({"url": "http://127.0.0.1:9/"}, "1")).output


async def test_it_goes_by_the_proxy_of_the_tools(root: Path, spawner: Spawner, web: str) -> None:
    workspace = str(root / "workspace")
    environment = environment_for(OWNER, workspace, {}, {"http_proxy": web, "HTTP_PROXY": web})
    proxied = FetchContent(spawner, Place(workspace, OWNER, environment))
    result = await proxied.run({"url": "http://pages.test/plain"}, "1")
    assert result.output == "just text"
    assert Handler.asked == ["http://pages.test/plain"]


@pytest.mark.parametrize("page", ["", "<", "<p", "<ul>" * 5000, "</a></ul></pre>", "<a href=x>" * 3000, "&#0;&#xD800;"])
async def test_any_page_is_read(page: str) -> None:
    assert isinstance(markdown(page, "http://a/"), str)
