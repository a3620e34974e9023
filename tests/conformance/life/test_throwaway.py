"""`sbx run -p` for programs: one result whatever happens, one code for one thing, nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Sbx, ours

pytestmark = pytest.mark.engine


def test_a_result_tells_calls_changes_check_expectations_and_artifacts(sbx: Sbx, kit: Path, work: Path) -> None:
    done = sbx(
        *("run", kit, work, "--demo", "--json", "-q", "-p", "run echo new > made; echo more >> todo.txt; echo done"),
        *("--expect", "it said: do.e", "--expect", "jmespath:tool_calls[0].exit == `0` && changed == null"),
        *("--check", "cat made; grep -q more todo.txt", "--artifact", "made=copy", "--junit", "result.xml"),
    )
    assert done.code == 0, done.said
    result = json.loads(done.stdout)
    assert result["answer"].startswith("it said: done")
    assert result["changed"] == {"created": ["made"], "modified": ["todo.txt"], "removed": []}
    assert (result["check"]["code"], result["check"]["stdout"]) == (0, "new\n")
    assert [each["met"] for each in result["expectations"]] == [True, True]
    assert (sbx.root / "copy").read_text() == "new\n"
    assert 0 < result["milliseconds"]["turn"] < result["milliseconds"]["total"]
    suite = ElementTree.parse(sbx.root / "result.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")


@pytest.mark.parametrize(
    ("options", "code", "kind"),
    [
        (("-p", "hello", "--expect", "goodbye"), 7, "expectation"),
        pytest.param(
            ("-p", "hello", "--expect", "jmespath:usage.no_such_thing"), 7, "expectation", marks=pytest.mark.slow
        ),
        (("-p", "hello", "--check", "exit 5"), 7, "expectation"),
        pytest.param(("-p", "hello", "--artifact", "no-such-file=x"), 7, "expectation", marks=pytest.mark.slow),
        (("-p", "break", "--check", "touch checked"), 1, "model-http"),
        (("-p", "hang", "--timeout", "10"), 124, "run-timeout"),
    ],
    ids=["expect", "jmespath", "check", "artifact", "model", "timeout"],
)
def test_what_went_wrong_is_one_code_one_document_and_one_test_case(
    sbx: Sbx, kit: Path, work: Path, options: tuple[str, ...], code: int, kind: str
) -> None:
    done = sbx("run", kit, work, "--demo", "--json", "--junit", "result.xml", "-o", "result.json", *options)
    assert done.code == code, done.said
    assert done.stdout == ""
    result = json.loads((sbx.root / "result.json").read_text())
    assert (result["error"]["code"], result["error"]["kind"]) == (code, kind)
    assert result["status"] in ("completed", "failed", "cancelled")
    assert not (work / "checked").exists(), "a check ran after a turn that failed"
    suite = ElementTree.parse(sbx.root / "result.xml").getroot()
    assert int(suite.get("failures", 0)) + int(suite.get("errors", 0)) == 1
    last = sbx.record()[-1]
    assert (last["name"], last["data"]["code"]) == ("session.end", code)
    assert [line["name"] for line in sbx.record()].count("turn.end") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("run", "no-such-kit", "-p", "hi"), 3, "not-found"),
        (("run", "{kit}", "{work}", "-p", ""), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "--expect", "("), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "--expect", "jmespath:["), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "--artifact", "x"), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "--no-such"), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "--timeout", "0"), 2, "usage"),
        (("run", "{kit}", "{work}", "-p", "hi", "-o", "no/folder/x"), 2, "usage"),
        (("ls",), 4, "engine-unreachable"),
    ],
)
def test_an_error_is_json_on_stdout_under_json(
    sbx: Sbx, kit: Path, work: Path, arguments: tuple[str, ...], code: int, kind: str
) -> None:
    told = [text.format(kit=kit, work=work) for text in arguments]
    done = sbx(*told, "--json", env={"DOCKER_HOST": "unix:///no/such/socket"} if code == 4 else {})
    error = json.loads(done.stdout)["error"]
    assert (done.code, error["code"], error["kind"]) == (code, code, kind)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_mid_turn_ends_it_with_its_code_and_leaves_nothing(
    sbx: Sbx, engine: Engine, kit: Path, work: Path, number: signal.Signals, code: int
) -> None:
    command = sbx.command("run", kit, work, "--demo", "--events", "-q", "-p", "run sleep 600")
    with subprocess.Popen(command, env=sbx.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if json.loads(line)["name"] == "tool.start":
                break
        run.send_signal(number)
        rest, said = run.communicate(timeout=60)
    last = json.loads(rest.splitlines()[-1])
    assert (run.returncode, last["name"], last["data"]["error"]["code"]) == (code, "run.end", code)
    assert "Traceback" not in said
    assert ours(engine, sbx.root) == set()
    assert sbx.events("session.end") == [{"status": "interrupted", "code": code}]


def test_a_signal_before_the_container_is_there_leaves_nothing(sbx: Sbx, engine: Engine, kit: Path, work: Path) -> None:
    command = sbx.command("run", kit, work, "--demo", "-p", "run sleep 600")
    with subprocess.Popen(command, env=sbx.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        while not list(sbx.sessions.glob("*/record.jsonl")):
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    assert ours(engine, sbx.root) == set()


def test_a_reader_that_goes_away_ends_a_run_quietly(sbx: Sbx, kit: Path, work: Path) -> None:
    command = sbx.command("run", kit, work, "--demo", "-q", "--events", "-p", "run seq 1 5")
    with subprocess.Popen(command, env=sbx.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.wait(60) == 1
        assert run.stderr.read() == b""


def test_a_pipe_has_no_colour_and_no_question(sbx: Sbx, kit: Path, work: Path) -> None:
    done = sbx("run", kit, work, "--demo", "-p", "-", stdin="cat todo.txt")
    assert (done.code, done.stdout) == (0, "it said: buy milk\n")
    assert "\x1b" not in done.said
    without = sbx("run", kit, work)
    assert (without.code, "no terminal to talk on" in without.stderr) == (2, True)
