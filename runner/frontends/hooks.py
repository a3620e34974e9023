"""Hooks for people: what a tried hook came to, what its samples came to, and the chain of a sandbox as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.frontends.log import table
from runner.frontends.safe import head, safe_line
from runner.frontends.terminal import Styled
from runner.wire.agent import Hook

STDERR_LINES = 40
ANSWER_LINES = 20
_STYLES = {"deny": "yellow", "stop": "yellow", "error": "red"}


def tried_lines(tried: Mapping[str, Any]) -> list[Styled]:
    """`sbx hook test`: verdict, reason, answer, stderr, time."""
    verdict = str(tried["verdict"])
    lines = [Styled(f"verdict  {verdict}", _STYLES.get(verdict, "plain"))]
    said = [(key, str(tried[key])) for key in ("reason", "failure")]
    lines += [Styled(f"{key:<8} {safe_line(text, 1000)}") for key, text in said if text]
    lines += _block("answer", str(tried["stdout"]).strip() or "nothing", ANSWER_LINES)
    if str(tried["stderr"]).strip():
        lines += _block("stderr", str(tried["stderr"]).rstrip(), STDERR_LINES)
    code = tried["exit"]
    lines.append(Styled(f"exit     {'none' if code is None else code}"))
    lines.append(Styled(f"time     {tried['ms']:.1f} ms"))
    return lines


def sample_lines(results: Sequence[Mapping[str, Any]]) -> list[Styled]:
    """`sbx hook test --samples`: one line a case, and what differs."""
    lines: list[Styled] = []
    for result in results:
        good = result["ok"]
        lines.append(Styled(f"{'ok  ' if good else 'FAIL'} {result['case']:<28} {result['ms']:8.1f} ms", _mark(good)))
        if not good:
            lines.append(Styled(f"     expected {safe_line(json.dumps(result['expected'], ensure_ascii=False), 1000)}"))
            answered = result["failure"] or json.dumps(result["answered"], ensure_ascii=False)
            lines.append(Styled(f"     answered {safe_line(answered, 1000)}"))
            lines += [Styled(f"     {each}", "dim") for each in head(str(result["stderr"]), STDERR_LINES)[0]]
    failed = sum(not result["ok"] for result in results)
    lines.append(Styled(f"{len(results) - failed} of {len(results)} samples as expected", _mark(not failed)))
    return lines


def chain_rows(hooks: Iterable[Hook]) -> list[dict[str, Any]]:
    """The chain as `sbx hook ls --json` prints it, in the order it runs."""
    return [
        {
            "event": hook.event,
            "name": hook.name,
            "matcher": hook.matcher,
            "user": "you, on the host" if hook.where == "host" else hook.user,
            "onError": hook.on_error,
            "timeout": hook.timeout,
            "dialect": hook.dialect or None,
            "persistent": hook.persistent,
            "where": hook.where,
            "source": hook.source,
            "command": hook.command,
        }
        for hook in hooks
    ]


def chain_lines(hooks: Sequence[Hook]) -> list[Styled]:
    """`sbx hook ls`: the chain as a table."""
    if not hooks:
        return [Styled("no hooks", "dim")]
    titles = ("EVENT", "NAME", "MATCHER", "USER", "ONERROR", "TIMEOUT", "SOURCE", "COMMAND")
    rows: list[tuple[str, ...]] = [titles]
    for hook in hooks:
        marks = [m for m, there in ((hook.dialect, hook.dialect), ("persistent", hook.persistent)) if there]
        rows.append(
            (
                hook.event,
                safe_line(hook.name, 64),
                safe_line(hook.matcher or "-", 40),
                "host" if hook.where == "host" else hook.user,
                hook.on_error,
                f"{hook.timeout:g}s",
                safe_line(hook.source, 60),
                safe_line(hook.command, 100) + (f"  ({', '.join(marks)})" if marks else ""),
            )
        )
    return table(rows, right={5})


def _mark(good: bool) -> str:
    return "plain" if good else "red"


def _block(title: str, text: str, most: int) -> list[Styled]:
    shown, more = head(text, most)
    lines = [Styled(f"{title if not index else '':<8} {each}") for index, each in enumerate(shown)]
    if more:
        lines.append(Styled(f"{'':<8} … {more} more lines", "dim"))
    return lines
