"""What a sandbox's archive may write on the host: files inside the destination, and nothing else."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.errors import EngineError, UsageError
from runner.sandbox.transfer import Limits, Pieces, Report, pack, remove, unpack


def member(name: str, content: bytes = b"x", *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    info.mtime = 1_700_000_000
    return info, content


def folder(name: str, mode: int = 0o755):
    return member(name, kind=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str):
    return member(name, kind=tarfile.SYMTYPE, link=target)


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as out:
        for info, content in members:
            out.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def take(destination: Path, *members: tuple[tarfile.TarInfo, bytes], **options: object) -> Report:
    return unpack(io.BytesIO(archive(*members)), destination, **options)  # type: ignore[arg-type]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The destination, with a neighbour that must stay as it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept.txt").write_text("mine")
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def outside(there: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in (there.parent / "outside").iterdir()}


def test_files_folders_and_links_inside_arrive(there: Path) -> None:
    report = take(there, folder("a"), member("a/b.txt", b"hello"), link("a/c", "b.txt"), link("d", "a"))
    assert (there / "a/b.txt").read_bytes() == b"hello"
    assert (there / "d/c").read_text() == "hello"
    assert report.refused == []
    assert report.written == ["a/b.txt", "a/c", "d"]


HOSTILE: dict[str, Sequence[tuple[tarfile.TarInfo, bytes]]] = {
    "a name that climbs": [member("../outside/kept.txt", b"evil")],
    "a name that climbs in its middle": [folder("a"), member("a/../../outside/kept.txt", b"evil")],
    "an absolute name": [member("/tmp/sbx-evil", b"evil")],
    "a link out, then a file through it": [link("a", "../outside"), member("a/kept.txt", b"evil")],
    "an absolute link": [link("a", "/etc"), member("a/passwd", b"evil")],
    "a chain of links, each inside by its text": [
        folder("x"),
        link("x/d", ".."),
        link("x/e", "d/../outside"),
        member("x/e/kept.txt", b"evil"),
    ],
    "a link over a folder that was made": [folder("a"), link("a", "../outside"), member("a/kept.txt", b"evil")],
    "a file through a link that stays inside": [folder("b"), link("a", "b"), member("a/kept.txt", b"evil")],
    "a hard link to a file outside": [member("a", kind=tarfile.LNKTYPE, link="../outside/kept.txt")],
    "a hard link to an absolute file": [member("a", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "a character device": [member("a", kind=tarfile.CHRTYPE)],
    "a block device": [member("a", kind=tarfile.BLKTYPE)],
    "a named pipe": [member("a", kind=tarfile.FIFOTYPE)],
    "a file in the folder's own place": [member(".", b"evil")],
    "a link without a target": [link("a", "./")],
}


@pytest.mark.parametrize("what", [w for w in HOSTILE if w != "a link without a target"])
def test_what_would_leave_the_destination_is_refused(what: str, there: Path) -> None:
    report = take(there, *HOSTILE[what])
    assert report.refused, what
    assert outside(there) == {"kept.txt": "mine"}
    assert not Path("/tmp/sbx-evil").exists()
    for path in there.rglob("*"):
        assert stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
        assert path.resolve().is_relative_to(there), path


def test_no_setuid_no_sticky_nothing_writable_for_others(there: Path) -> None:
    take(there, member("s", b"#!", mode=0o6777), folder("t", 0o1777), member("p", b"", mode=0o600), member("n", mode=0))
    modes = {p.name: stat.S_IMODE(p.lstat().st_mode) for p in there.iterdir()}
    assert modes == {"s": 0o755, "t": 0o755, "p": 0o600, "n": 0o600}


def test_a_hard_link_within_the_copy_becomes_a_file_of_its_own(there: Path) -> None:
    report = take(there, member("a", b"one"), member("b", kind=tarfile.LNKTYPE, link="a"))
    assert (there / "b").read_text() == "one"
    assert (there / "a").stat().st_nlink == 1
    assert report.size == 6


def test_a_hard_link_to_a_file_that_was_there_before_is_refused(there: Path) -> None:
    (there / "private").write_text("secret")
    report = take(there, member("b", kind=tarfile.LNKTYPE, link="private"))
    assert not (there / "b").exists()
    assert [r.name for r in report.refused] == ["b"]


def test_a_file_of_the_users_is_replaced_and_never_written_through(there: Path) -> None:
    os.link(there.parent / "outside/kept.txt", there / "a")
    (there / "b").symlink_to("../outside/kept.txt")
    take(there, member("a", b"new"), member("b", b"new"))
    assert (there / "a").read_text() == (there / "b").read_text() == "new"
    assert outside(there) == {"kept.txt": "mine"}


def test_a_link_of_the_users_that_leads_out_is_not_walked_through(there: Path) -> None:
    (there / "docs").symlink_to("../outside")
    report = take(there, member("docs/kept.txt", b"evil"), member("docs/new.txt", b"evil"))
    assert outside(there) == {"kept.txt": "mine"}
    assert [r.reason for r in report.refused] == ["docs is there and is no folder"] * 2


def test_any_name_that_a_file_may_have_arrives(there: Path) -> None:
    names = ["new\nline", "\x1b]0;title\x07", "-rf", "ü", "b\udcff", " ", "..."]
    report = take(there, *(member(name) for name in names))
    assert sorted(os.listdir(there)) == sorted(names)
    assert report.refused == []


def test_a_name_that_is_too_long_is_refused_and_the_rest_arrives(there: Path) -> None:
    report = take(there, member("n" * 300), member("/".join("d" * 250)), member("ok"))
    assert os.listdir(there) == ["ok"]
    assert len(report.refused) == 2


def test_names_are_mapped_before_they_are_checked(there: Path) -> None:
    take(there, member("src/a"), member("src/b"), name=lambda n: "../a" if n == "src/a" else n.removeprefix("src/"))
    assert os.listdir(there) == ["b"]
    assert not (there.parent / "a").exists()


@pytest.mark.parametrize("cut", [100, 512, 700, 1024, 1536])
def test_a_cut_archive_is_an_error(cut: int, there: Path) -> None:
    data = archive(member("a", b"\0" * 512), member("b", b"y"))
    with pytest.raises(EngineError):
        unpack(io.BytesIO(data[:cut]), there)


@pytest.mark.parametrize("data", [b"", b"not an archive" * 100, b"\xff" * 2048], ids=["empty", "text", "bytes"])
def test_what_is_no_archive_is_an_error(data: bytes, there: Path) -> None:
    with pytest.raises(EngineError):
        unpack(io.BytesIO(data), there)


def test_garbage_after_a_member_is_an_error(there: Path) -> None:
    data = archive(member("a", b"z" * 512))
    with pytest.raises(EngineError):
        unpack(io.BytesIO(data[:1024] + b"\x7f" * 512 + data[1536:]), there)


def test_a_header_that_asks_for_gigabytes_takes_no_memory(there: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 8 * 1024**3
    header = info.tobuf(tarfile.GNU_FORMAT)
    endless = Pieces(header if n == 0 else bytes(65536) for n in range(200_000))
    tracemalloc.start()
    with pytest.raises(EngineError):
        unpack(endless, there)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 1024**2


def test_the_bounds_on_number_and_size_hold(there: Path) -> None:
    with pytest.raises(EngineError, match="more than 3 files"):
        take(there, *(member(f"f{n}") for n in range(4)), limits=Limits(files=3))
    with pytest.raises(EngineError, match="over 1000 bytes"):
        take(there, member("big", b"x" * 1001), limits=Limits(size=1000))
    assert not (there / "big").exists()


def test_a_sparse_file_of_an_exabyte_is_refused_or_an_error(there: Path) -> None:
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": str(2**60),
    }
    info.size = 1
    with pytest.raises(EngineError):
        take(there, (info, b"x"))
    assert os.listdir(there) == []


def test_an_archive_in_pieces_of_any_size_is_read(there: Path) -> None:
    data = archive(member("a", b"1" * 1000), member("n" * 150, b"2" * 512), folder("d"), member("d/e", b""))
    for size in (1, 7, 511, 512, 513, 100_000):
        target = there / str(size)
        target.mkdir()
        unpack(Pieces(data[i : i + size] for i in range(0, len(data), size)), target)
        assert (target / "a").read_bytes() == b"1" * 1000
        assert (target / ("n" * 150)).read_bytes() == b"2" * 512
        assert (target / "d/e").read_bytes() == b""


def test_removing_walks_through_no_link_and_never_out(there: Path) -> None:
    (there / "a").write_text("")
    (there / "docs").symlink_to("../outside")
    (there / "full").mkdir()
    (there / "full/x").write_text("")
    report = remove(there, ["a", "../outside/kept.txt", "docs/kept.txt", "full", "missing", "/etc/passwd"])
    assert report.written == ["a"]
    assert [r.name for r in report.refused] == ["../outside/kept.txt", "docs/kept.txt", "full", "/etc/passwd"]
    assert outside(there) == {"kept.txt": "mine"}
    assert (there / "full/x").exists()


def test_a_missing_destination_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        unpack(io.BytesIO(archive()), tmp_path / "nowhere")


def test_what_is_packed_arrives_the_same(tmp_path: Path, there: Path) -> None:
    source = tmp_path / "source"
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/run").write_text("#!/bin/sh\n")
    (source / "a/b/run").chmod(0o755)
    (source / "out").symlink_to("/etc/passwd")
    (source / "in").symlink_to("a/b")
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("x")
    os.mkfifo(source / "pipe")
    raw = io.BytesIO()
    report = pack(source, raw, root="top", keep=lambda name: name != ".git")
    assert [r.name for r in report.refused] == ["pipe"]
    raw.seek(0)
    taken = unpack(raw, there)
    assert sorted(taken.written) == ["top/a/b/run", "top/in"]
    assert [r.name for r in taken.refused] == ["top/out"]  # packed as the link that it is, never followed
    assert os.access(there / "top/in/run", os.X_OK)


def test_a_single_file_is_packed_under_its_name(tmp_path: Path, there: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    raw = io.BytesIO()
    pack(tmp_path / "one.txt", raw)
    raw.seek(0)
    assert unpack(raw, there).written == ["one.txt"]
