from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import InUseError, UsageError
from runner.session.record import KEPT, LARGE, Record, load, unchanged, whole
from runner.session.state import Folders, new_session_id, private
from runner.wire.messages import Event

START = Event("session.start", {"version": "1", "sandbox": "demo"})


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders.of({"HOME": str(tmp_path)})


def record(folders: Folders, *events: Event, redact=unchanged) -> Record:
    made = Record.create(folders, redact=redact)
    for event in (START, *events):
        made.write(event)
    return made


def test_folders_follow_the_xdg_variables_and_ignore_relative_ones():
    folders = Folders.of({"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "relative"})
    assert folders.state == Path("/s/sbx")
    assert folders.config == Path("/h/.config/sbx")
    assert folders.cache == Path("/h/.cache/sbx")


def test_folders_are_private_whatever_the_umask(tmp_path: Path):
    old = os.umask(0)
    try:
        made = private(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700


def test_session_ids_sort_by_their_start():
    times = [0.0, 0.0015, 1.0, 86_400.0, 1_800_000_000.25]
    assert sorted(made := [new_session_id(each) for each in times]) == made


@pytest.mark.parametrize("name", ["../x", "a/b", "", "20261130-200000123-0123456", "20261130-200000123-01234567\n"])
def test_only_session_ids_name_a_session_folder(folders: Folders, name: str):
    with pytest.raises(ValueError, match="not a session id"):
        folders.session(name)


def test_each_event_is_one_line_with_time_number_name_and_data(folders: Folders):
    made = Record.create(folders, clock=lambda: 1_796_068_800.1234)
    assert made.write(START) == 1
    assert made.write(Event("turn.start", {"turn": 1})) == 2
    first, second = made.path.read_text().splitlines()
    assert json.loads(first)["data"] == {"version": "1", "sandbox": "demo"}
    assert json.loads(second) == {
        "t": "2026-11-30T20:00:00.123Z",
        "n": 2,
        "name": "turn.start",
        "data": {"turn": 1},
    }
    made.close()


def test_a_line_is_in_the_file_before_write_returns(folders: Folders):
    made = record(folders, Event("turn.start", {"turn": 1}))
    assert [line.name for line in load(made.folder)] == ["session.start", "turn.start"]
    made.close()


def test_record_and_outputs_are_readable_by_their_owner_only(folders: Folders):
    old = os.umask(0)
    try:
        made = record(folders, Event("tool.end", {"id": "1", "output": "x" * (LARGE + 1)}))
    finally:
        os.umask(old)
    files = [path for path in made.folder.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    made.close()


def test_events_for_front_ends_are_not_recorded(folders: Folders):
    made = record(folders)
    for name in ("model.delta", "model.reasoning", "model.wait"):
        assert made.write(Event(name, {"text": "x"})) is None
    assert len(load(made.folder)) == 1
    made.close()


def test_a_stopped_questions_text_cannot_reach_the_file(folders: Folders):
    made = record(
        folders,
        Event("turn.start", {"turn": 1, "prompt": "hunter2"}),
        Event("turn.blocked", {"turn": 1, "hook": "h", "reason": "r", "response": "no", "prompt": "hunter2"}),
    )
    assert b"hunter2" not in made.path.read_bytes()
    assert load(made.folder)[2].data == {"turn": 1, "hook": "h", "reason": "r", "response": "no"}
    made.close()


def test_secrets_are_taken_out_of_values_keys_names_and_outputs(folders: Folders):
    def redact(text: str) -> str:
        return text.replace('s3cr\n"et\u00e9', "***")

    secret = 's3cr\n"et\u00e9'
    made = record(
        folders,
        Event("tool.start", {"input": {secret: [secret, {"deep": "a" + secret}]}, "id": secret}),
        Event("tool.end", {"output": "x" * (KEPT - 3) + secret + "y" * LARGE}),
        Event(secret, {}),
        redact=redact,
    )
    made.close()
    for path in made.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"s3cr" not in content
            assert b"***" in content


def test_a_large_output_is_whole_in_a_file_and_head_and_tail_in_the_line(folders: Folders):
    output = "A" * LARGE + "é\ud800\x1b[2J" + "Z" * LARGE
    made = record(folders, Event("tool.end", {"id": "1", "output": output}))
    line = load(made.folder)[1]
    assert line.data["output"].startswith("A" * KEPT)
    assert line.data["output"].endswith("Z" * KEPT)
    assert len(line.data["output"]) < 3 * KEPT
    assert whole(made.folder, line, "output") == output
    assert line.data["spilled"]["output"]["bytes"] == len(output.encode("utf-8", "surrogatepass"))
    made.close()


@pytest.mark.parametrize("name", ["../record.jsonl", "/etc/passwd", "outputs/../record.jsonl", "outputs/000002-link"])
def test_a_records_output_names_no_file_but_its_own(folders: Folders, name: str):
    entry = {"output": "short", "spilled": {"output": {"file": name}}}
    made = record(folders, Event("tool.end", entry))
    private(made.folder / "outputs")
    (made.folder / "outputs/000002-link").symlink_to("/etc/passwd")
    assert whole(made.folder, load(made.folder)[1], "output") == "short"
    made.close()


def test_a_disk_that_is_full_loses_nothing_when_it_has_room_again(tmp_path: Path):
    # A process of its own: the limit on a file's size is the process's, and stands for the full disk.
    script = """
import json, resource, signal, sys
from runner.session.record import Record, load
from runner.session.state import Folders
from runner.wire.messages import Event
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
record = Record.create(Folders.of({"HOME": sys.argv[1]}))
record.write(Event("session.start", {}))
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
for n in range(5):
    record.write(Event("notice", {"text": str(n) * 60}))
during = [record.failure is not None, record.path.read_bytes().endswith(b"\\n")]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record.write(Event("turn.end", {"turn": 1}))
record.close()
lines = load(record.folder)
print(json.dumps([during, record.failure, record.lost, [l.number for l in lines]]))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[True, True], None, 0, [1, 2, 3, 4, 5, 6, 7]]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@given(cut=st.integers(min_value=1, max_value=80))
@settings(max_examples=40, deadline=None)
def test_a_torn_last_line_is_taken_off_and_the_session_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int):
    folders = Folders.of({"HOME": str(tmp_path_factory.mktemp("home"))})
    made = record(folders, Event("turn.start", {"turn": 1}), Event("notice", {"text": "x" * 80}))
    made.close()
    content = made.path.read_bytes()
    made.path.write_bytes(content[:-cut])
    assert [line.number for line in load(made.folder)] == [1, 2]
    assert made.path.read_bytes() == content[:-cut]
    again, lines = Record.reopen(made.folder)
    assert [line.number for line in lines] == [1, 2]
    again.write(Event("notice", {"text": "after"}))
    again.close()
    assert [(line.number, line.name) for line in load(made.folder)] == [
        (1, "session.start"),
        (2, "turn.start"),
        (3, "notice"),
    ]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"hello\n", 1),
        (b"\x7fELF\x00\x00", 1),
        (b'{"t":"x","n":1,"name":"turn.start","data":{}}\n', 1),
        (b'{"t":"x","n":1,"name":"session.start","data":{}}\ngarbage\n{"t":"x","n":3,"name":"a","data":{}}\n', 2),
        (b'{"t":"x","n":2,"name":"session.start","data":{}}\n{"t":"x","n":2,"name":"a","data":{}}\n', 2),
        (b'{"t":"x","n":1,"name":"session.start","data":[]}\n', 1),
    ],
)
def test_a_foreign_or_damaged_file_is_named_and_left_alone(folders: Folders, content: bytes, line: int):
    made = record(folders)
    made.close()
    made.path.write_bytes(content)
    with pytest.raises(UsageError, match=f"line {line} ") as caught:
        Record.reopen(made.folder)
    assert str(made.path) in str(caught.value)
    assert made.path.read_bytes() == content


def test_two_processes_never_write_one_record(folders: Folders):
    made = record(folders)
    with pytest.raises(InUseError):
        Record.reopen(made.folder)
    made.close()
    again, _ = Record.reopen(made.folder)
    again.close()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(data=st.dictionaries(st.text(st.characters(), max_size=8), ANY, max_size=4), name=st.text(st.characters()))
@settings(max_examples=80, deadline=None)
def test_any_event_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, data: dict, name: str):
    folders = Folders.of({"HOME": str(tmp_path_factory.getbasetemp())})
    made = record(folders, Event("x" + name, data))
    made.close()
    back = load(made.folder)[1]
    assert back.name == "x" + name
    assert str(back.data) == str(_infinities_as_text(data))


def _infinities_as_text(value):
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, dict):
        return {key: _infinities_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_infinities_as_text(each) for each in value]
    return value


def test_an_event_nested_too_deeply_is_named_in_its_place(folders: Folders):
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    made = record(folders, Event("tool.start", deep), Event("notice", {}))
    made.close()
    assert [line.name for line in load(made.folder)] == ["session.start", "tool.start", "notice"]
    while deep:  # taken apart by hand: the interpreter's own way recurses
        deep = deep["a"]


def test_a_surrogate_pair_in_a_secret_free_text_does_not_break_the_line(folders: Folders):
    made = record(folders, Event("notice", {"text": "\ud83d \u2028 \x00"}))
    made.close()
    assert load(made.folder)[1].data["text"] == "\ud83d \u2028 \x00"
    assert made.path.read_bytes().count(b"\n") == 2
