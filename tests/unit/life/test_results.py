"""What a run's results say: expectations, JUnit, changed files, listings."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from runner.errors import EngineError, ExpectationError, UsageError
from runner.frontends.junit import Case, junit
from runner.frontends.listing import show_rows
from runner.frontends.terminal import Output
from runner.sandbox.effective import controls
from runner.sandbox.profile import Bind, Profile
from runner.session import changes
from runner.session.expectations import Expectation

DOCUMENT: dict[str, Any] = {"answer": "All 3 tests pass.\n", "tool_calls": [{"name": "bash", "exit": 0}], "rounds": 2}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        (r"\d tests? pass", True),
        ("^All", True),
        ("(?i)all", True),
        ("failed", False),
        ("jmespath:rounds", True),
        ("jmespath:rounds > `2`", False),
        ("jmespath:tool_calls[?exit != `0`]", False),
        ("jmespath:length(tool_calls) == `1`", True),
        ("jmespath:no.such.thing", False),
        ("jmespath:length(rounds)", False),
    ],
)
def test_an_expectation_is_met_or_says_why_not(text: str, met: bool) -> None:
    assert (Expectation.parse(text).failure(DOCUMENT) == "") is met


@pytest.mark.parametrize("text", ["(", "[a", "jmespath:[", "jmespath:a b", "jmespath:"])
def test_a_broken_expectation_is_found_before_anything_starts(text: str) -> None:
    with pytest.raises(UsageError, match="--expect"):
        Expectation.parse(text)


def test_junit_holds_any_text_and_tells_failures_from_errors() -> None:
    cases = [
        Case("fine", "kit", 1.5, "answer \x1b[31m \x00 <&> ü"),
        Case("unmet", "kit", 0.5, "", ExpectationError("the answer does not match")),
        Case("engine", "kit", 0.25, "", EngineError("it went away", hint="start it")),
    ]
    root = ElementTree.fromstring(junit("sbx", cases))
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("time")) == ("3", "1", "1", "2.250")
    assert root.findtext("./testsuite/testcase[@name='fine']/system-out") == "answer �[31m � <&> ü"
    assert "start it" in (root.findtext("./testsuite/testcase[@name='engine']/error") or "")
    assert root.find("./testsuite/testcase[@name='unmet']/failure") is not None


def test_changed_files_are_told_and_links_are_not_followed(tmp_path: Path) -> None:
    for name in ("same", "grown", "gone"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "loop").symlink_to(".")
    before = changes.scan(tmp_path)
    (tmp_path / "grown").write_text("longer than before")
    (tmp_path / "gone").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "made").touch()
    (tmp_path / ".git" / "objects" / "aa").touch()
    (tmp_path / ".git" / "config").touch()
    found = changes.compare(before, changes.scan(tmp_path))
    assert found == changes.Changes(created=(".git/config", "sub/made"), modified=("grown",), removed=("gone",))


def test_a_change_that_keeps_the_size_is_seen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("aa")
    os.utime(tmp_path / "file", (1, 1))
    before = changes.scan(tmp_path)
    (tmp_path / "file").write_text("bb")
    assert changes.compare(before, changes.scan(tmp_path)) == changes.Changes((), ("file",), ())


def shown(rows: list[dict[str, Any]], **options: Any) -> str:
    stream = io.StringIO()
    show_rows(Output(stream), rows, (("name", "NAME"), ("state", "STATE")), known=("name", "state"), **options)
    return stream.getvalue()


ROWS = [{"name": "a", "state": "running"}, {"name": "b\x1b[2J", "state": "exited"}]


def test_a_listing_is_a_table_a_template_or_json() -> None:
    assert shown(ROWS[:1]) == "NAME  STATE\na     running\n"
    assert shown(ROWS[:1], template="{{.Name}}\\t{{ .state }}") == "a\trunning\n"
    assert shown(ROWS[:1], template="{{json .}}") == '{"name": "a", "state": "running"}\n'
    assert json.loads(shown(ROWS, as_json=True)) == ROWS
    assert json.loads(shown([], as_json=True)) == []
    assert "\x1b" not in shown(ROWS) + shown(ROWS, template="{{.name}}") + shown(ROWS, as_json=True)


@pytest.mark.parametrize("template", ["{{.nme}}", "no field", "{{.}}"])
def test_a_template_that_names_no_field_is_an_error_even_for_no_rows(template: str) -> None:
    for rows in (ROWS, []):
        with pytest.raises(UsageError, match="field"):
            shown(rows, template=template)


def described(profile: Profile, **changes: Any) -> dict[str, Any]:
    host = {**profile.host_config(), "PidMode": "", "Runtime": "runc", **changes}
    host["Mounts"] = [
        {"Type": "bind", "Source": "/work", "Target": "/work"},
        *({"Type": "bind", "Source": b.source, "Target": b.target, "ReadOnly": b.read_only} for b in profile.binds),
    ]
    return {"HostConfig": host, "Config": {"User": "0:0", "Labels": {"dev.sbx.workspace": "/work"}}}


def test_a_default_container_differs_in_nothing() -> None:
    assert [c.name for c in controls(described(Profile())) if c.differs] == []


@pytest.mark.parametrize(
    ("document", "control"),
    [
        (described(Profile(network="bridge")), "network"),
        (described(Profile(capabilities=("NET_ADMIN",))), "capabilities"),
        (described(Profile(), CapDrop=[]), "capabilities"),
        (described(Profile(), SecurityOpt=["no-new-privileges"]), "system calls"),
        (described(Profile(), ReadonlyRootfs=False), "root filesystem"),
        (described(Profile(), MemorySwap=-1), "swap"),
        (described(Profile(), PidMode="host"), "process ids"),
        (described(Profile(), IpcMode="host"), "shared memory"),
        (described(Profile(), PortBindings={"80/tcp": []}), "published ports"),
        (described(Profile(binds=(Bind("/", "/host"),))), "mounts"),
        (described(Profile(), Binds=["/:/host"]), "mounts"),
        (described(Profile(), PidsLimit=None), "processes"),
    ],
)
def test_what_is_weaker_than_the_default_is_marked(document: dict[str, Any], control: str) -> None:
    assert [c.name for c in controls(document) if c.differs] == [control]


def test_a_privileged_container_is_marked_in_all_it_loses() -> None:
    marked = {c.name for c in controls(described(Profile(privileged=True))) if c.differs}
    assert marked >= {"privileged", "privileges", "system calls"}
