from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from runner.errors import InUseError, NotFoundError, UsageError
from runner.session.record import Record, unchanged
from runner.session.sessions import export, find_session, ids, remove, summaries
from runner.session.state import Folders
from runner.wire.messages import Event

START = Event("session.start", {"sandbox": "demo", "agent": {"model": "m"}, "workspace": "/w"})


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders.of({"HOME": str(tmp_path)})


def made(folders: Folders, now: float, *events: Event) -> Path:
    record = Record.create(folders, redact=unchanged, clock=lambda: now)
    for event in (START, *events):
        record.write(event)
    record.close()
    os.utime(record.path, (now, now))
    return record.folder


def test_the_last_session_is_the_one_written_to_last(folders: Folders):
    old, new = made(folders, 1_000_000_000), made(folders, 1_100_000_000)
    assert find_session(folders) == new
    os.utime(old / "record.jsonl", (1_200_000_000, 1_200_000_000))
    assert find_session(folders) == old


def test_a_session_is_found_by_its_id_its_beginning_or_its_end(folders: Folders):
    old, new = made(folders, 1_000_000_000), made(folders, 1_100_000_000)
    assert find_session(folders, old.name) == old
    assert find_session(folders, new.name[:8]) == new
    assert find_session(folders, old.name[-8:]) == old


def test_what_fits_several_sessions_is_refused_and_names_them(folders: Folders):
    one, two = made(folders, 1_000_000_000), made(folders, 1_000_000_001)
    with pytest.raises(UsageError) as caught:
        find_session(folders, one.name[:6])
    assert one.name in str(caught.value)
    assert two.name in str(caught.value)


@pytest.mark.parametrize("name", ["nothing", "../../etc", "", "."])
def test_an_unknown_session_is_not_found(folders: Folders, name: str):
    folder = made(folders, 1_000_000_000)
    with pytest.raises(NotFoundError) as caught:
        find_session(folders, name)
    assert caught.value.hint == f"near: {folder.name}"


def test_without_sessions_there_is_no_last_one_and_nothing_is_made(folders: Folders):
    with pytest.raises(NotFoundError):
        find_session(folders)
    assert list(summaries(folders)) == []
    assert not folders.state.exists()


def test_one_broken_record_does_not_spoil_the_list(folders: Folders):
    good = made(folders, 1_000_000_000, Event("turn.start", {"turn": 1}), Event("turn.end", {"status": "failed"}))
    broken = made(folders, 1_000_000_001)
    (broken / "record.jsonl").write_bytes(b"\x00garbage\nmore\n")
    gone = made(folders, 1_000_000_002)
    (gone / "record.jsonl").unlink()
    (folders.sessions / "not-a-session").mkdir()
    first, second, third = summaries(folders)
    assert (first.id, first.turns, first.status, first.sandbox, first.model) == (good.name, 1, "failed", "demo", "m")
    assert (second.status, third.status) == ("damaged", "damaged")
    assert "line 1" in second.damaged


def test_a_session_that_runs_cannot_be_removed(folders: Folders):
    record = Record.create(folders)
    with pytest.raises(InUseError):
        remove(record.folder)
    assert record.path.exists()
    record.close()
    remove(record.folder)
    assert ids(folders) == []


def test_an_export_holds_record_and_outputs_and_no_links(folders: Folders):
    folder = made(folders, 1_000_000_000, Event("tool.end", {"id": "1", "output": "x" * 200_000}))
    (folder / "link").symlink_to("/etc/passwd")
    out = io.BytesIO()
    export(folder, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        names = {member.name for member in archive}
        assert {member.uname for member in archive.getmembers()} == {""}
    name = folder.name
    assert names == {name, f"{name}/record.jsonl", f"{name}/outputs", f"{name}/outputs/000002-output"}
