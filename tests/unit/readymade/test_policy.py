"""`policy.py`: what it catches is what the documentation says, and ordinary work passes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import HOOKS, REPOSITORY, Run

PAGE = REPOSITORY / "docs" / "explanation" / "what-a-guard-catches.md"
ROW = re.compile(r"^\| \d+ \| (?:`` (?P<double>.+) ``|`(?P<single>[^`]+)`) \| (?P<caught>yes|no) \|", re.MULTILINE)
TABLE = [
    ((row["double"] or row["single"]).replace("\\|", "|").replace("⏎", "\n"), row["caught"] == "yes")
    for row in ROW.finditer(PAGE.read_text("utf-8"))
]

ORDINARY = [
    "ls -la",
    "rm todo.txt",
    "rm -f a b",
    'rm -- "$f"',
    "cat todo.txt | grep -r turn",
    'echo "rm -rf x"',
    'git commit -m "drop the rm -rf from the build"',
    "git rm -r --cached x",
    'for f in *.txt; do echo "$f"; done',
    "cat > f.py <<'EOF'\nprint('it is')\nEOF\npython3 f.py",
    "[[ -f x ]] && echo y",
    "x=$(date +%s); echo $((x + 1))",
    "find . -name '*.py' -exec grep -n foo {} +",
    "ls | xargs -n1 echo",
    "cp -r a b",
    'grep -rn "a b" . | head -5 > out 2>&1',
    "if [ -f x ]; then cat x; fi",
    "cd /tmp && make -j2",
    "timeout 5 pytest -q",
    "case $x in a) ls;; esac",
    'while read -r line; do echo "$line"; done < <(ls)',
    "# nothing but a remark",
    "",
]

Judge = Callable[..., str]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """The reason why a command is denied, or "": the hook's own code, without a process for each command."""
    sys.path.insert(0, str(HOOKS))
    import policy

    default = json.loads((HOOKS / "policy.json").read_text("utf-8"))

    def judge(command: str, rules: dict[str, Any] = default, tool: str = "bash") -> str:
        try:
            policy.Policy(rules).judge(tool, {"command": command})
        except policy.Denied as denied:
            return str(denied)
        return ""

    yield judge
    sys.path.remove(str(HOOKS))


def test_the_page_shows_sixty_ways_and_more() -> None:
    assert len(TABLE) >= 60
    assert len({command for command, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("command", "caught"), TABLE)
def test_a_recursive_deletion_is_caught_where_the_page_says_so(command: str, caught: bool, judge: Judge) -> None:
    assert bool(judge(command)) is caught


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_work_passes(command: str, judge: Judge) -> None:
    assert judge(command) == ""


@pytest.mark.parametrize(
    "command",
    [
        "ls\n# a remark\n\n\nrm '-r'f $((1)) x",
        "# first\nrm -rf x",
        "ls &\nrm -rf x",
        "cat <<A; cat <<'B'\n1\nA\n2\nB\nrm -rf x",
        "cat <<'E' > f\n$(ls)\nE\nrm -rf x",
        "f() {\n  ls\n}\nrm -rf x",
        "a=\"$(cat <<'E'\nhi\nE\n)\"\nrm -rf x",
    ],
)
def test_a_later_line_is_judged_like_the_first(command: str, judge: Judge) -> None:
    assert judge(command).startswith("recursive deletion (rm -r)")


@pytest.mark.parametrize(
    "command", ["echo 'open", "ls &&", "a=(1 2)", "for ((;;)); do ls; done", "ls ;; ls", "cat <<E\nx"]
)
def test_what_cannot_be_parsed_is_denied(command: str, judge: Judge) -> None:
    assert "cannot be parsed" in judge(command)


def test_a_quoted_here_document_runs_nothing_and_an_unquoted_one_does(judge: Judge) -> None:
    assert judge("cat <<'E'\n$(rm -rf x)\nE") == ""
    assert judge("cat <<E\n$(rm -rf x)\nE").startswith("recursive deletion")


def test_a_variable_that_is_set_twice_is_not_followed(judge: Judge) -> None:
    assert judge("a=todo.txt; rm $a") == ""
    assert "only known when it runs" in judge("a=todo.txt; rm $a; a=-rf")
    assert "only known when it runs" in judge("a=todo.txt; read a; rm $a x")


def test_an_allow_list_admits_only_what_it_names(judge: Judge) -> None:
    rules = {"commands": {"allow": ["ls", "cat", "git"]}}
    assert judge("ls | cat", rules) == ""
    assert judge("/bin/ls", rules) == ""
    assert judge("ls; touch x", rules) == "the program touch is not among the allowed ones"
    assert judge("echo $(touch x)", rules) != ""


def test_tools_are_judged_by_their_names(judge: Judge) -> None:
    assert judge("", {"tools": {"deny": ["fetch_*"]}}, tool="fetch_content") == "the tool is not allowed"
    assert judge("", {"tools": {"allow": ["bash"]}}, tool="edit") == "the tool is not among the allowed ones"


def test_a_command_nested_without_end_is_denied_and_not_a_crash(judge: Judge) -> None:
    assert judge("eval " * 50 + "ls") != ""
    assert judge("(" * 5000 + "ls" + ")" * 5000) != ""
    assert judge("echo " + "$(echo " * 40 + "x" + ")" * 40) != ""


def test_broken_rules_deny_every_call(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"commands": {"deny": [{"nam": "rm"}]}}')
    event = {"event": "preToolCall", "cwd": "/", "tool": {"id": "1", "name": "bash", "input": {"command": "ls"}}}
    assert run("policy.py", event, args=[str(rules)]).answer == {
        "action": "deny",
        "reason": "policy: its rules are not what they should be",
    }
