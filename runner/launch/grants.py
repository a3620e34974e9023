"""Grants of a run: settled by options and policy files, asked for on a terminal once per kit and content."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from runner.gateway import grants
from runner.session.state import private

if TYPE_CHECKING:
    from pathlib import Path

    from runner.gateway.rules import PolicyFile
    from runner.kits.plan import Plan

FILE = "grants.json"
"""In the state folder: the digest of a kit's wishes to the grants that the user said yes to."""
LEFT_OUT = frozenset({"playground", ".git"})
"""Folders of a kit that are not its content."""


def settle(
    wishes: Sequence[grants.Wish],
    given: Collection[str],
    files: Sequence[PolicyFile],
    plan: Plan,
    folder: Path | None,
    state: Path,
) -> frozenset[str]:
    """The names of what is granted, asking on a terminal for what is missing.

    Args:
        given: names given by `--grant`.
        folder: the kit's.
        state: folder where answers are kept.

    Raises:
        RefusedError: something is not granted.
    """
    foreign = [wish for wish in wishes if not wish.by_user]
    key = digest(plan, foreign, folder) if foreign else ""
    answered = _answers(state).get(key, [])
    _, missing = grants.settle(wishes, given, answered, files)
    open_ones = [m for m in missing if not m.bound]
    if open_ones and len(open_ones) == len(missing) and sys.stdin.isatty() and sys.stderr.isatty():
        for name in dict.fromkeys(m.wish.grant for m in open_ones):
            if not _ask(name, [m.wish for m in open_ones if m.wish.grant == name]):
                break
            answered = [*answered, name]
        _, missing = grants.settle(wishes, given, answered, files)
        if not missing:
            _remember(state, key, answered)
    grants.demand(missing)
    return frozenset(wish.grant for wish in foreign) | frozenset(given)


def digest(plan: Plan, wishes: Sequence[grants.Wish], folder: Path | None) -> str:
    """Of the kits' content and of what they ask for: another content asks again."""
    total = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            total.update(len(data).to_bytes(8, "big") + data)

    for kit in plan.kits:
        add(kit.name, kit.digest, repr(kit.arguments))
    for wish in sorted(wishes, key=lambda wish: (wish.grant, wish.what, wish.source)):
        add(wish.grant, wish.what, wish.source)
    for path in sorted(folder.rglob("*")) if folder else ():
        relative = path.relative_to(folder) if folder else path
        if relative.parts[0] in LEFT_OUT or not path.is_file():
            continue
        add(str(relative), path.read_bytes())
    return total.hexdigest()


def _ask(name: str, wishes: Sequence[grants.Wish]) -> bool:
    from runner.frontends.safe import safe_line

    print(f"\n{safe_line(wishes[0].source)} asks for more than a sandbox has ({name}):", file=sys.stderr)
    for wish in wishes:
        print(f"  {safe_line(wish.what)}", file=sys.stderr)
    print("Allow it, for this content of the kit? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _answers(state: Path) -> dict[str, list[str]]:
    try:
        document = json.loads((state / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {str(k): [n for n in v if n in grants.NAMES] for k, v in document.items() if isinstance(v, list)}


def _remember(state: Path, key: str, names: Sequence[str]) -> None:
    answers = _answers(state) | {key: sorted(set(names))}
    path = private(state) / FILE
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_text(json.dumps(answers, indent=1), encoding="utf-8")
    written.replace(path)
