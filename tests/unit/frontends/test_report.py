from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.frontends.report import report_html
from runner.session.record import Line
from tests.unit.frontends.test_log import DATA, MORE_NAMES, TURN, lines
from tests.unit.frontends.test_safe import HOSTILE

OURS = set(
    "html head meta title style body header h1 h2 span dl dt dd section div i details summary pre p "
    "table thead tbody tr th td".split()
)
HTML = st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style><script>", "'", "&lt;"])


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attributes)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


def page_of(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    assert set(page.tags) <= OURS
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "style", "title", "open"}
    return page


def test_a_page_tells_the_whole_session():
    network = (
        "network",
        {"host": "example.org", "port": 443, "outcome": "denied", "rule": "none", "reason": "no rule"},
    )
    page = page_of(report_html(lines([*TURN[:-1], network, TURN[-1]]), diff="--- a\n+++ b\n+new & <b>\n"))
    text = "\n".join(page.words)
    for words in (
        "hooks-demo",
        "What is in todo.txt?",
        "🪝 bash [denied by a hook: no rm]",
        "$ cat todo.txt",
        "milk",
        "Milk.",
        "example.org:443",
        "add-context",
        "9 total_tokens",
        "+new & <b>",
    ):
        assert words in text


def test_a_page_needs_nothing_from_elsewhere():
    text = report_html(lines(TURN))
    assert "default-src 'none'" in text
    for word in ("<script", "http://", "https://", "url(", "@import", "src="):
        assert word not in text


@given(st.lists(st.builds(Line, HOSTILE | HTML, st.just(1), MORE_NAMES, DATA), max_size=4), HOSTILE | HTML)
@settings(max_examples=40, deadline=None)
def test_no_text_of_a_session_becomes_markup(hostile: list[Line], diff: str):
    page_of(report_html(hostile, diff=diff))


@settings(max_examples=60, deadline=None)
@given(HTML, st.sampled_from(["prompt", "response", "output", "text", "name", "reason", "hook"]), MORE_NAMES)
def test_markup_in_any_field_is_text(markup: str, key: str, name: str):
    page_of(report_html([Line(markup, 1, name, {key: markup, "input": {markup: markup}})], diff=markup))


def test_the_timeline_places_what_took_time():
    answer = Line("2026-11-30T20:00:10.000Z", 2, "model.answer", {"ms": 5000})
    text = report_html([Line("2026-11-30T20:00:00.000Z", 1, "session.start", {}), answer])
    assert 'style="left:50.000%;width:50.000%"' in text
