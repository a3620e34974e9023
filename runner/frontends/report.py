"""A session as one HTML page that needs nothing else: `sbx report SESSION -o run.html`.

The page holds no script and its own policy forbids any, so that text from a container is text in the browser too.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from runner.frontends.log import hook_rows, image_name, stats_rows
from runner.frontends.render import Renderer, call_lines
from runner.frontends.safe import safe, safe_line
from runner.session.record import Line, whole
from runner.wire.messages import Event

LARGEST = 256 * 1024
"""Characters of one output or diff that the page holds."""

_LANES = {"model.answer": "model", "tool.end": "tools", "hook": "hooks"}
_BAD_VERDICTS = ("deny", "stop", "error")


def report_html(lines: Sequence[Line], folder: Path | None = None, *, diff: str = "") -> str:
    """The page.

    Args:
        lines: the record's.
        folder: the session's, for outputs in files of their own.
        diff: what changed in the workspace, as a unified diff.
    """
    name = folder.name if folder else "session"
    style = resources.files("runner.frontends").joinpath("report.css").read_text("utf-8")
    sections = [
        ("Timeline", _timeline(lines)),
        ("Conversation", "".join(_conversation(lines, folder))),
        ("Hooks", _table(("Time", "Event", "Hook", "Verdict", "ms", "Reason"), hook_rows(lines), "no hook ran", {4})),
        ("Network", _network(lines)),
        ("Tokens and time", _facts(stats_rows(lines))),
        ("Changes in the workspace", _diff(diff)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{content}</section>\n" for title, content in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>sbx {_text(name)}</title><style>\n{style}</style></head>\n"
        f"<body>\n{_head(lines, name)}{body}</body></html>\n"
    )


def _head(lines: Sequence[Line], name: str) -> str:
    start = lines[0].data if lines else {}
    agent = start.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    ends = [line.data for line in lines if line.name in ("turn.end", "session.end")]
    status = str(ends[-1].get("status", "")) if ends else "unfinished"
    facts = [
        ("session", name),
        ("started", lines[0].time if lines else ""),
        ("sandbox", start.get("sandbox")),
        ("image", image_name(start)),
        ("model", f"{agent.get('provider', '?')} {agent.get('model', '?')}"),
        ("network", start.get("network")),
        ("workspace", start.get("workspace")),
        ("sbx", start.get("version")),
    ]
    style = "good" if status in ("completed", "stopped") else "bad"
    title = f'<h1>{_text(start.get("sandbox") or "sbx")} <span class="{style}">{_text(status)}</span></h1>'
    return f"<header>{title}{_facts([(key, str(value)) for key, value in facts if value])}</header>\n"


def _timeline(lines: Sequence[Line]) -> str:
    times = [_seconds(line.time) for line in lines]
    known = [each for each in times if each is not None]
    if not known:
        return _none("no times")
    first, last = min(known), max(known)
    span = max(last - first, 0.001)
    lanes: dict[str, list[str]] = {"model": [], "tools": [], "hooks": []}
    for line, end in zip(lines, times, strict=True):
        lane = _LANES.get(line.name)
        spent = line.data.get("ms")
        if lane is None or end is None or not isinstance(spent, (int, float)) or not 0 <= spent < 1e12:
            continue
        begin = max(first, end - spent / 1000)
        bad = line.data.get("is_error") or line.data.get("verdict") in _BAD_VERDICTS
        title = f"{line.data.get('name') or line.data.get('hook') or 'round'} {spent:.0f} ms"
        lanes[lane].append(
            f'<i{" class=bad" if bad else ""} style="left:{(begin - first) / span * 100:.3f}%;'
            f'width:{(end - begin) / span * 100:.3f}%" title="{_text(safe_line(title, 120))}"></i>'
        )
    rows = "".join(
        f'<div class="lane"><span>{name}</span><div class="track {name}">{"".join(bars)}</div></div>'
        for name, bars in lanes.items()
    )
    return f'{rows}<div class="scale"><span>0 s</span><span>{span:.1f} s</span></div>'


def _conversation(lines: Sequence[Line], folder: Path | None) -> Iterator[str]:
    renderer = Renderer(outputs=0, waits=None, commentary=False)
    is_open = False
    for line in lines:
        data = line.data
        if line.name == "turn.start":
            yield "</div>" * is_open + '<div class="turn">'
            is_open = True
        shown = "".join(
            f'<div class="{"bad" if each.style == "red" else "dim"}">{_text(each.text)}</div>'
            for each in renderer.lines(Event(line.name, data))
        )
        match line.name:
            case "turn.question":
                context = data.get("context")
                added = "".join(_details("context added by a hook", str(each)) for each in _as_list(context))
                yield _item(line, f'<div class="question">{_text(data.get("prompt"))}</div>{added}')
            case "turn.blocked":
                yield _item(line, f'{shown}<div class="answer">{_text(data.get("response"))}</div>')
            case "model.answer":
                reasoning = str(data.get("reasoning") or "")
                text = str(data.get("text") or "")
                content = _details("reasoning", reasoning) if reasoning else ""
                content += f'<div class="answer">{_text(text)}</div>' if text else ""
                if content:
                    yield _item(line, content)
            case "tool.start":
                call = "\n".join(each.text for each in call_lines(str(data.get("name", "")), data.get("input")))
                asked = _details("what the model asked for", str(data["asked"])) if "asked" in data else ""
                yield _item(line, f'<div class="mono">{_text(call)}</div>{asked}')
            case "tool.end":
                output = whole(folder, line, "output") if folder else str(data.get("output", ""))
                yield _item(
                    line, _details(f"output, {len(output)} characters", output, opened=len(output) < 800) + shown
                )
            case "turn.end":
                how = f"turn {safe_line(str(data.get('status')), 20)}"
                yield _item(line, shown + f'<div class="dim">{_text(how)}</div>')
            case _ if shown:
                yield _item(line, shown)
    yield "</div>" * is_open


def _network(lines: Sequence[Line]) -> str:
    rows = []
    for line in lines:
        if line.name == "network":
            data = line.data
            target = f"{data.get('host', '?')}:{data.get('port', '?')}"
            cells = (line.time[11:23], data.get("outcome"), target, data.get("rule"), data.get("reason"))
            rows.append([str(cell or "") for cell in cells])
    return _table(("Time", "Outcome", "Host", "Rule", "Reason"), rows, "nothing went out, nothing was refused", set())


def _diff(diff: str) -> str:
    if not diff.strip():
        return _none("none known")
    styles = {"+": "ins", "-": "del", "@": "at"}
    cut = len(diff) - LARGEST
    marked = []
    for each in diff[:LARGEST].split("\n"):
        style = styles.get(each[:1], "")
        marked.append(f'<span class="{style}">{_text(each)}</span>' if style else _text(each))
    more = f'\n<span class="dim">… {cut} more characters</span>' if cut > 0 else ""
    return "<pre>" + "\n".join(marked) + more + "</pre>"


def _item(line: Line, content: str) -> str:
    return f'<div class="item"><div class="time">{_text(line.time[11:23])}</div><div>{content}</div></div>\n'


def _details(title: str, text: str, *, opened: bool = False) -> str:
    if not text:
        return f'<div class="dim">{_text(title)}</div>'
    cut = len(text) - LARGEST
    more = f"\n… {cut} more characters" if cut > 0 else ""
    attribute = " open" if opened else ""
    shown = _text(text[:LARGEST] + more)
    return f"<details{attribute}><summary class=dim>{_text(title)}</summary><pre>{shown}</pre></details>"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in facts) + "</dl>"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], empty: str, numbers: set[int]) -> str:
    if not rows:
        return _none(empty)

    def cell(tag: str, column: int, text: str) -> str:
        style = " class=number" if column in numbers else ""
        return f"<{tag}{style}>{_text(text)}</{tag}>"

    head = "".join(cell("th", column, title) for column, title in enumerate(titles))
    body = "".join(
        "<tr>" + "".join(cell("td", column, text) for column, text in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _none(text: str) -> str:
    return f'<p class="dim">{text}</p>'


def _text(value: Any) -> str:
    return html.escape(safe(str(value if value is not None else "")), quote=True)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
