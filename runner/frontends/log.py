"""A session's record for people: `sbx log`, its hooks as a table, and a summary in a few lines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.frontends.render import Renderer
from runner.frontends.safe import head, safe, safe_line
from runner.frontends.terminal import Output, Styled
from runner.session.record import FILE, Line, iterate, load, whole
from runner.wire.messages import Event

FOLDED = 20
"""Lines of a text that are shown unless all are asked for."""
ALL = 1_000_000_000
LINE_WIDTH = 4000


def show(folder: Path, *, raw: bool = False, hooks: bool = False, stats: bool = False, full: bool = False) -> None:
    """Print a session's record on stdout.

    Args:
        raw: the lines as they are in the file, a torn last one left out.
        hooks: the hooks that ran, as a table.
        stats: a summary.
        full: nothing folded.

    Raises UsageError for a damaged record, OSError where it cannot be read.
    """
    out = Output(sys.stdout)
    if raw:
        for each in iterate(folder / FILE):
            # ASCII by `Record`; a file that somebody changed is not obeyed either.
            out.write(safe(each.decode("utf-8", "replace")))
        return
    lines = load(folder)
    if hooks or stats:
        out.lines([*(hook_table(lines) if hooks else ()), *(stats_lines(lines) if stats else ())])
        return
    for line in log_lines(lines, folder, full=full):
        out.lines([line])


def log_lines(lines: Sequence[Line], folder: Path | None = None, *, full: bool = False) -> Iterator[Styled]:
    """The session as it went, each line with its time; long texts folded unless `full`.

    Args:
        folder: the session's, for outputs that are too large for the record's lines.
    """
    fold = ALL if full else FOLDED
    renderer = Renderer(outputs=fold, waits=None, commentary=False)
    for line in lines:
        if full and folder is not None and "spilled" in line.data:
            line = _unspilled(line, folder)
        shown = [*_more(line, fold), *renderer.lines(Event(line.name, line.data)), *_after(line)]
        for index, each in enumerate(shown):
            stamp = _clock(line.time) if not index else " " * 12
            yield Styled(f"{stamp}  {each.text}", each.style)


def hook_rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Every run of a hook: time, event, hook, verdict, milliseconds, reason."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        if line.name == "hook":
            data = line.data
            spent = _spent(data)
            rows.append(
                (
                    _clock(line.time),
                    safe_line(str(data.get("event", "")), 30),
                    safe_line(str(data.get("hook", "")), 40),
                    safe_line(str(data.get("verdict", "")), 20),
                    "?" if spent is None else f"{spent:.1f}",
                    safe_line(str(data.get("reason") or ""), 120),
                )
            )
    return rows


def hook_table(lines: Sequence[Line]) -> list[Styled]:
    """`hook_rows` as a table: `sbx log --hooks`."""
    rows = hook_rows(lines)
    titles = ("TIME", "EVENT", "HOOK", "VERDICT", "MS", "REASON")
    return table([titles, *rows], right={4}) if rows else [Styled("no hook ran", "dim")]


def stats_lines(lines: Sequence[Line]) -> list[Styled]:
    """`stats_rows` as lines: `--stats`."""
    return [Styled(f"{name + ':':<8} {value}", "dim") for name, value in stats_rows(lines)]


def stats_rows(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """What a session came to: turns, rounds, tokens, calls, hooks, and where the time went."""
    turns = [line.data for line in lines if line.name == "turn.end"]
    answers = [line.data for line in lines if line.name == "model.answer"]
    calls = [line.data for line in lines if line.name == "tool.end"]
    denied = sum(line.name == "tool.denied" for line in lines)
    hooks = [line.data for line in lines if line.name == "hook"]
    tokens: Counter[str] = Counter()
    for turn in turns:
        usage = turn.get("usage")
        for key, value in usage.items() if isinstance(usage, dict) else ():
            if isinstance(value, int):
                tokens[key] += value
    status = Counter(safe_line(str(turn.get("status")), 20) for turn in turns)
    verdicts = Counter(safe_line(str(hook.get("verdict")), 20) for hook in hooks)
    failed = sum(bool(call.get("is_error")) for call in calls)
    return [
        ("turns", f"{len(turns)}{_counts(status)}"),
        ("rounds", str(len(answers))),
        ("tokens", ", ".join(f"{value} {safe_line(key, 40)}" for key, value in sorted(tokens.items())) or "not told"),
        ("calls", f"{len(calls) + denied} ({failed} failed, {denied} denied)"),
        ("hooks", f"{len(hooks)}{_counts(verdicts)}"),
        (
            "time",
            f"{_sum(turns):.1f} s in turns: {_sum(answers):.1f} s model, {_sum(calls):.1f} s tools, "
            f"{_sum(hooks):.1f} s hooks",
        ),
    ]


def image_name(start: dict[str, Any]) -> str:
    """The image's tag in a `session.start`, which holds it alone or with its id."""
    image = start.get("image")
    return str(image.get("tag") or image.get("id") or "") if isinstance(image, dict) else str(image or "")


def _more(line: Line, fold: int) -> list[Styled]:
    """What a log shows and a running session does not, since a person typed or saw it otherwise."""
    data = line.data
    match line.name:
        case "session.start":
            agent = data.get("agent")
            agent = agent if isinstance(agent, dict) else {}
            facts = {
                "sbx": data.get("version"),
                "sandbox": data.get("sandbox"),
                "image": image_name(data),
                "model": f"{agent.get('provider', '?')} {agent.get('model', '?')}",
                "network": data.get("network"),
                "workspace": data.get("workspace"),
            }
            texts = [f"{key} {safe_line(str(value), 200)}" for key, value in facts.items() if value]
            return [Styled("session: " + ", ".join(texts), "bold")]
        case "turn.question":
            context = data.get("context")
            lines = _folded(str(data.get("prompt", "")), fold, "› ", "  ", "bold")
            for each in context if isinstance(context, list) else ():
                lines += _folded(str(each), fold, "+ ", "  ", "dim")
            return lines
        case "model.answer":
            return _folded(str(data.get("text") or ""), fold, "", "", "plain")
        case "turn.blocked":
            return []
        case "tool.start" if "asked" in data:
            return [Styled("the model asked for something else; a hook replaced the input", "dim")]
    return []


def _after(line: Line) -> list[Styled]:
    data = line.data
    if line.name == "turn.blocked":
        return _folded(str(data.get("response") or ""), FOLDED, "", "", "plain")
    if line.name == "turn.end":
        usage = data.get("usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        parts = [f"{_seconds(data)} s", f"{safe_line(str(data.get('rounds', '?')), 20)} rounds"]
        if total is not None:
            parts.append(f"{safe_line(str(total), 20)} tokens")
        return [Styled(f"— turn {safe_line(str(data.get('status')), 20)}: {', '.join(parts)}", "dim")]
    if line.name == "session.end":
        code = f", code {safe_line(str(data['code']), 20)}" if "code" in data else ""
        return [Styled(f"session {safe_line(str(data.get('status')), 40)}{code}", "bold")]
    return []


def _folded(text: str, fold: int, first: str, further: str, style: str) -> list[Styled]:
    shown, more = head(text, fold, LINE_WIDTH)
    lines = [Styled((further if index else first) + each, style) for index, each in enumerate(shown)]
    if more:
        lines.append(Styled(f"{further}… {more} more lines", "dim"))
    return lines


def _unspilled(line: Line, folder: Path) -> Line:
    data: dict[str, Any] = dict(line.data)
    spilled = data.get("spilled")
    for key in spilled if isinstance(spilled, dict) else ():
        data[key] = whole(folder, line, key)
    return Line(line.time, line.number, line.name, data)


def table(rows: Sequence[Sequence[str]], right: set[int]) -> list[Styled]:
    """Rows as aligned columns, the first one the titles; the columns in `right` are aligned there."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for index, row in enumerate(rows):
        cells = [
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ]
        lines.append(Styled("  ".join(cells).rstrip(), "bold" if not index else "plain"))
    return lines


def _counts(counter: Counter[str]) -> str:
    return f" ({', '.join(f'{number} {name}' for name, number in sorted(counter.items()))})" if counter else ""


def _sum(events: Sequence[dict[str, Any]]) -> float:
    return sum(spent for event in events if (spent := _spent(event)) is not None) / 1000


def _seconds(data: dict[str, Any]) -> str:
    spent = _spent(data)
    return "?" if spent is None else f"{spent / 1000:.1f}"


def _spent(data: dict[str, Any]) -> float | None:
    """Milliseconds that an event tells; None where it tells none that could be."""
    spent = data.get("ms")
    return spent if isinstance(spent, (int, float)) and 0 <= spent < 1e15 else None


def _clock(time: str) -> str:
    """`20:00:00.123` of a line's time."""
    return safe_line(time[11:23], 12).ljust(12)
