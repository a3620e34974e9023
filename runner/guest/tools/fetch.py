"""The tool `fetch_content`: a page of the web as text.

Done by a process of U's with the tools' environment, so a request leaves by the gateway's proxy, or the container's
network, exactly as one of `curl` would; the gateway decides and writes down. What it takes is imported in that process.
"""

from __future__ import annotations

from typing import Any

from runner.guest.tools import documents

SECONDS = 60.0
MAX_PAGE = 10 * 1024 * 1024
"""Bytes of a page that are read."""
MAX_SHOWN = 50 * 1024
"""Bytes of text in one answer."""
MAX_REDIRECTS = 5
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/yaml")
_TEXT_ENDS = ("+json", "+xml", "+yaml")


def main(argv: list[str]) -> int:
    """Reads `{"url", "offset"}` from stdin and answers on stdout, as the file tools' worker does."""
    given = documents.given()
    try:
        answer = fetch(given["url"], given["offset"])
    except _Refused as refused:
        answer = {"output": str(refused), "is_error": True}
    documents.answer(answer)
    return 0


class _Refused(Exception):
    pass


def fetch(url: str, offset: int) -> dict[str, Any]:
    """One page. Raises _Refused."""
    import http.client
    import urllib.error
    import urllib.request

    if not url.lower().startswith(("http://", "https://")):
        raise _Refused("only http:// and https:// addresses can be fetched")

    class Redirects(urllib.request.HTTPRedirectHandler):
        max_redirections = MAX_REDIRECTS

    # No handler for files or FTP: a redirect could name one.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        Redirects(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    headers = {"User-Agent": "sbx", "Accept": "text/markdown, text/html;q=0.9, text/*;q=0.8, */*;q=0.1"}
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was looked at
        with opener.open(request, timeout=SECONDS / 2) as response:
            data = response.read(MAX_PAGE + 1)
            kind = response.headers.get_content_type()
            charset = response.headers.get_content_charset() or ""
            final = response.geturl()
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error.read(2000), error.headers.get_content_type())
        raise _Refused(f"{url}: HTTP {error.code} {error.reason}{': ' + said if said else ''}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Refused(f"{url}: {getattr(error, 'reason', '') or error}") from None
    cut = len(data) > MAX_PAGE
    text = _text(data[:MAX_PAGE], kind, charset, final)
    return _answer(text, offset, {"url": final, "type": kind, "size": len(data), "truncated": cut}, cut)


def _text(data: bytes, kind: str, charset: str, url: str) -> str:
    page = kind in ("text/html", "application/xhtml+xml")
    if not page and not kind.startswith(_TEXTS) and not kind.endswith(_TEXT_ENDS):
        raise _Refused(
            f"{url} is {kind}, {len(data):,} bytes, and no text; fetch it with bash into a file if you need it"
        )
    if page and not charset:
        import re

        found = re.search(rb"<meta[^>]+charset=[\"']?([\w-]{1,40})", data[:4096], re.IGNORECASE)
        charset = found[1].decode("ascii") if found else ""
    try:
        text = data.decode(charset or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    if not page:
        return text
    from runner.guest.tools.markdown import markdown

    return markdown(text, url)


def _answer(text: str, offset: int, data: dict[str, Any], cut: bool) -> dict[str, Any]:
    raw = text.encode("utf-8", "replace")
    if offset and offset >= len(raw):
        raise _Refused(f"the page has only {len(raw):,} bytes of text")
    shown = raw[offset : offset + MAX_SHOWN].decode("utf-8", "ignore").replace("\0", "\u2400")
    end = offset + MAX_SHOWN
    if end < len(raw):
        shown += f"\n[bytes {offset:,} to {end:,} of {len(raw):,}; go on with offset {end}]"
    elif cut:
        shown += f"\n[the page is larger than {MAX_PAGE:,} bytes; the rest is left out]"
    return {"output": shown or "[the page holds no text]", "data": data}


def _said(body: bytes, kind: str) -> str:
    text = body.decode("utf-8", "replace")
    if "<" in text[:200]:
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:500]
