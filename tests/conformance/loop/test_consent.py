"""Who decides about a call: rules first, deny before allow, then a person; where nobody is, nothing runs."""

from __future__ import annotations

import asyncio

import pytest

from runner.guest.consent import Rule
from runner.guest.hooks import ToolCall
from tests.conformance.loop.conftest import Make, bash, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = """echo '{"decision": "ask"}'"""


async def test_without_yolo_a_changing_call_asks_and_shows_the_input_as_it_will_run(make: Make) -> None:
    rewrite = """echo '{"input": {"command": "echo replaced"}}'"""
    bench = await make(("preToolCall", rewrite), yolo=False, person=[{"choice": "once"}])
    await bench.turn("q", say("", bash("echo asked")), say("ok"))
    assert [(a["kind"], a["name"], a["input"]) for a in bench.person.asked] == [
        ("consent", "bash", {"command": "echo replaced"})
    ]
    assert bench.outputs() == ["replaced"]


async def test_a_call_that_changes_nothing_is_not_asked_about(make: Make) -> None:
    bench = await make(yolo=False)
    (bench.workspace / "a.txt").write_text("text")
    await bench.turn("q", say("", ("read_file", {"path": "a.txt"})), say("ok"))
    assert bench.person.asked == []
    assert bench.outputs() == ["text"]


async def test_where_nobody_is_the_call_is_rejected(make: Make) -> None:
    bench = await make(yolo=False)
    done = await bench.turn("q", say("", bash("touch made")), say("I could not"))
    assert done.status == "completed"
    assert not (bench.workspace / "made").exists()
    assert bench.outputs() == ["[denied by the user: nobody is there to allow it]"]
    assert bench.of("tool.start") == []


@pytest.mark.parametrize(
    ("choice", "asked", "ran"), [("once", 2, 2), ("session", 1, 2), ("reject", 2, 0), ("never", 1, 0)]
)
async def test_each_answer_counts_for_what_it_says(make: Make, choice: str, asked: int, ran: int) -> None:
    bench = await make(yolo=False, person=[{"choice": choice}] * 2)
    await bench.turn("q", say("", bash("echo 1 >> ran")), say("", bash("echo 2 >> ran")), say("ok"))
    assert len(bench.person.asked) == asked
    log = bench.workspace / "ran"
    assert (len(log.read_text().split()) if log.exists() else 0) == ran


async def test_an_allow_rule_decides_without_asking(make: Make) -> None:
    bench = await make(yolo=False, consent={"allow": ["bash(echo *)"]})
    await bench.turn("q", say("", bash("echo hello")), say("ok"))
    assert bench.person.asked == []
    assert bench.outputs() == ["hello"]


async def test_deny_wins_over_allow_and_over_yolo(make: Make) -> None:
    bench = await make(yolo=True, consent={"allow": ["bash"], "deny": ["bash(rm *)"]})
    (bench.workspace / "kept").touch()
    await bench.turn("q", say("", bash("true; rm kept")), say("ok"))
    assert (bench.workspace / "kept").exists()
    assert bench.outputs() == ["[denied by the user: consent.deny: bash(rm *)]"]
    assert bench.resumed() == bench.messages


async def test_a_hook_that_wants_a_person_gets_one_whatever_was_allowed_before(make: Make) -> None:
    bench = await make(
        ("preToolCall", ASK),
        yolo=True,
        consent={"allow": ["bash"]},
        person=[{"choice": "session"}, {"choice": "reject"}],
    )
    await bench.turn("q", say("", bash("echo 1")), say("", bash("echo 2")), say("ok"))
    assert len(bench.person.asked) == 2
    assert bench.outputs()[0] == "1"
    assert bench.outputs()[1].startswith("[denied by the user")


async def test_a_denied_call_asks_nobody(make: Make) -> None:
    bench = await make(("preToolCall", "echo no >&2; exit 2"), yolo=False, person=[{"choice": "once"}])
    await bench.turn("q", say("", bash("echo 1")), say("ok"))
    assert bench.person.asked == []


async def test_timers_stand_still_while_a_person_thinks(make: Make) -> None:
    bench = await make(yolo=False, person=[{"choice": "once"}], first_token_timeout=0.5)

    async def thinks() -> None:
        await asyncio.sleep(0.8)  # longer than the model may take

    bench.person.before = thinks
    done = await bench.turn("q", say("", bash("echo 1")), say("ok"))
    assert (done.status, done.answer) == ("completed", "ok")


async def test_a_cancel_while_a_person_is_asked_runs_nothing(make: Make) -> None:
    bench = await make(yolo=False, person=[{"choice": "once"}])
    asked = asyncio.Event()

    async def waits() -> None:
        asked.set()
        await asyncio.sleep(60)

    bench.person.before = waits
    task = asyncio.create_task(bench.turn("q", say("", bash("touch made")), say("ok")))
    await asked.wait()
    task.cancel()
    assert (await task).status == "cancelled"
    assert not (bench.workspace / "made").exists()
    bench.valid()


ALLOWED = [
    ("bash(git status*)", "bash", {"command": "git status -s"}, True),
    ("bash(git status*)", "bash", {"command": "git status; rm -rf /"}, False),
    ("bash(git status*)", "bash", {"command": "git status && id"}, False),
    ("bash(git status*)", "bash", {"command": "git status `id`"}, False),
    ("bash(git status*)", "bash", {"command": "git status $(id)"}, False),
    ("bash(git status*)", "bash", {"command": "git status > /etc/passwd"}, False),
    ("bash(git status*)", "bash", {"command": "git status\nid"}, False),
    ("bash(make test | tee log)", "bash", {"command": "make test | tee log"}, True),
    ("bash", "bash", {"command": "anything; at all"}, True),
    ("write_file(docs/*)", "write_file", {"path": "docs/a.md"}, True),
    ("write_file(docs/*)", "write_file", {"path": "/w/docs/a.md"}, True),
    ("write_file(docs/*)", "write_file", {"path": "docs/../.git/config"}, False),
    ("write_file(docs/*)", "write_file", {"path": "/etc/docs/a"}, False),
    ("github__*", "github__list", {}, True),
    ("github__*", "bash", {"command": "github__x"}, False),
    ("fetch_content(https://example.org/*)", "fetch_content", {"url": "https://example.org/a"}, True),
    ("fetch_content(https://example.org/*)", "fetch_content", {"url": "https://example.org.evil/a"}, False),
]


@pytest.mark.parametrize(("rule", "name", "given", "matches"), ALLOWED)
async def test_an_allow_rule_matches_only_what_it_plainly_means(
    rule: str, name: str, given: dict, matches: bool
) -> None:
    assert Rule.parse(rule).matches(ToolCall("1", name, given), "/w", allowing=True) is matches


@pytest.mark.parametrize(
    "command", ["rm x", "true; rm x", "true && rm x", "echo $(rm x)", "(rm x)", "echo `rm x`", "true\nrm x", "rm   x"]
)
async def test_a_deny_rule_sees_every_piece_of_a_line(command: str) -> None:
    assert Rule.parse("bash(rm *)").matches(ToolCall("1", "bash", {"command": command}), "/w", allowing=False)


@pytest.mark.parametrize("text", ["", "two words", "bash(", "bash)x(", "(x)"])
async def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOOL"):
        Rule.parse(text)
