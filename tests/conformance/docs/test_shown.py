"""Nothing that the pages show is unknown to the command line: commands, options, pages that are linked."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.gateway import grants
from tests.conformance.docs.shown import (
    DOCS,
    REPO,
    Line,
    all_options,
    command_lines,
    find,
    in_text,
    options,
    pages,
    understand,
)

FOREIGN = {
    "--": "ends the options everywhere",
    "--cap-drop": "the engine's",
    "--no-same-owner": "tar's",
    "--read-only": "the engine's",
}
"""Options in running text that are other programs', and whose."""
SHELL = {'"$how"': "--resume", "sbx --version": "sbx doctor"}
"""What the shell puts into a line; and `--version`, which is answered before there is a command line."""
PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPO)))


@PAGES
def test_every_command_line_is_understood(page: Path) -> None:
    wrong = []
    for line in command_lines(page):
        try:
            understand(shell_words(line))
        except Exception as error:
            wrong.append(f"{line}\n    {getattr(error, 'message', error)}")
    assert not wrong, "\n".join(wrong)


@PAGES
def test_every_command_and_option_in_the_text_exists(page: Path) -> None:
    known = all_options()
    wrong = []
    for span in in_text(page):
        words = span.split() or [""]
        if words[0] == "sbx" and len(words) > 1 and re.fullmatch(r"[a-z|]+", words[1]):
            for name in words[1].split("|"):
                wrong += unknown([name, *words[2:]], span)
        elif words[0].startswith("--"):
            option = re.split(r"[=\[,]", words[0])[0]
            wrong += [span] if option not in known and option not in FOREIGN else []
    assert not wrong, wrong


def shell_words(line: Line) -> list[str]:
    text = line.text
    for shown, meant in SHELL.items():
        text = text.replace(shown, meant)
    return replace(line, text=text).arguments


def unknown(words: list[str], span: str) -> list[str]:
    """What of a command in running text does not exist. It may be cut short, so only its words and options count."""
    try:
        if re.fullmatch(r"[a-z]+(\|[a-z]+)+", words[1]) if len(words) > 1 else False:
            return [each for name in words[1].split("|") for each in unknown([words[0], name, *words[2:]], span)]
        command, rest = find(words)
    except Exception as error:
        return [f"{span}: {getattr(error, 'message', error)}"]
    named = [word.split("=")[0] for word in rest if word.startswith("--") and word != "--"]
    return [f"{span}: {name}" for name in named if name not in options(command)]


def test_every_page_is_linked_from_the_index_and_every_link_leads_somewhere() -> None:
    linked = set()
    wrong = []
    for page in [*pages(), DOCS / "reference" / "commands.md", DOCS / "reference" / "exit-codes.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            if ":" in path:
                continue
            leads = (page.parent / path).resolve() if path else page
            if not leads.exists():
                wrong.append(f"{page.name}: {target}")
            elif anchor and anchor not in anchors(leads):
                wrong.append(f"{page.name}: {target}: no such heading")
            if page in (REPO / "README.md", DOCS / "README.md"):
                linked.add(leads)
    assert not wrong, wrong
    assert {page.resolve() for page in DOCS.rglob("*.md")} <= linked


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def first_column(page: Path) -> set[str]:
    return set(re.findall(r"^\| `([\w.-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE))


def test_each_dependency_has_its_line() -> None:
    project: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {re.split(r"[<>=~!\[ ]", each)[0].lower() for each in wanted}
    assert {name.lower() for name in first_column(DOCS / "explanation" / "dependencies.md")} == names


def test_each_grant_has_its_line() -> None:
    assert first_column(DOCS / "reference" / "grants.md") == set(grants.NAMES)


def test_each_event_has_its_line() -> None:
    told = (DOCS / "reference" / "record.md").read_text(encoding="utf-8").partition("## Events")[2]
    shown = set(re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (`.+?) \|", told, re.MULTILINE))))
    source = "".join(path.read_text(encoding="utf-8") for path in (REPO / "runner").rglob("*.py"))
    assert shown == set(re.findall(r"(?:\bemit|_emit|\bEvent)\(\s*\"([a-z.]+)\"", source))
