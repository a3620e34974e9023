"""What comes out of a sandbox is hostile: no archive, however made, writes or reads beyond the folder of the copy."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.session.copying import archive
from runner.session.copying.archive import ArchiveError, Reader
from runner.session.copying.folder import Unpacker, Written, pack


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as file:
        for info, content in members:
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return out.getvalue()


def reader(data: bytes, piece: int = 1000) -> Reader:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), piece):
            yield data[start : start + piece]

    return Reader(pieces())


async def unpack(data: bytes, folder: Path, rename: tuple[bytes, bytes] = (b"top", b"top")) -> Written:
    unpacker = Unpacker(folder, rename)
    try:
        return await unpacker.unpack(reader(data))
    finally:
        unpacker.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


HOSTILE: dict[str, tuple[tarfile.TarInfo, bytes]] = {
    "an absolute name": (member("/top/x"), b"x"),
    "a name with ..": (member("top/../../secret"), b"x"),
    "another top": (member("other/x"), b"x"),
    "a character device": (member("top/dev", tarfile.CHRTYPE), b""),
    "a block device": (member("top/dev", tarfile.BLKTYPE), b""),
    "a pipe": (member("top/pipe", tarfile.FIFOTYPE), b""),
    "an absolute link": (member("top/l", tarfile.SYMTYPE, "/etc/passwd"), b""),
    "a link above the copy": (member("top/l", tarfile.SYMTYPE, "../secret"), b""),
    "a link that goes in and out": (member("top/l", tarfile.SYMTYPE, "a/../../../secret"), b""),
    "a link for the top": (member("top", tarfile.SYMTYPE, "secret"), b""),
    "a hard link to a file outside": (member("top/h", tarfile.LNKTYPE, "../secret"), b""),
    "an absolute hard link": (member("top/h", tarfile.LNKTYPE, "/etc/passwd"), b""),
    "a hard link to what is not there": (member("top/h", tarfile.LNKTYPE, "top/nothing"), b""),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_member_is_left_out_and_those_around_it_are_not(name: str, out: Path) -> None:
    written = await unpack(tar((member("top/a"), b"1"), HOSTILE[name], (member("top/z"), b"2")), out)
    assert written.left_out_count == 1
    assert {p.name for p in out.rglob("*")} == {"top", "a", "z"}
    assert (out.parent / "secret").read_text() == "secret"
    assert {p.name for p in out.parent.iterdir()} == {"secret", "out"}


async def test_no_file_is_written_through_a_link_that_came_before_it(out: Path) -> None:
    through = tar(
        (member("top/d", tarfile.DIRTYPE, mode=0o755), b""),
        (member("top/l", tarfile.SYMTYPE, "d"), b""),
        (member("top/l/file"), b"x"),
    )
    with pytest.raises(OSError):
        await unpack(through, out)
    assert list((out / "top" / "d").iterdir()) == []


async def test_no_link_that_was_there_before_is_followed(out: Path) -> None:
    elsewhere = out.parent / "elsewhere"
    elsewhere.mkdir()
    (out / "top").mkdir()
    (out / "top" / "sub").symlink_to(elsewhere)
    (out / "top" / "file").symlink_to(out.parent / "secret")
    written = await unpack(tar((member("top/file"), b"new")), out)
    assert (written.files, (out / "top" / "file").is_symlink()) == (1, False)
    with pytest.raises(OSError):
        await unpack(tar((member("top/sub/x"), b"x")), out)
    assert list(elsewhere.iterdir()) == []
    assert (out.parent / "secret").read_text() == "secret"


async def test_a_file_with_a_second_name_outside_is_replaced_and_not_written_into(out: Path) -> None:
    (out / "top").mkdir()
    os.link(out.parent / "secret", out / "top" / "file")
    await unpack(tar((member("top/file"), b"new")), out)
    assert (out.parent / "secret").read_text() == "secret"


async def test_rights_that_would_act_on_the_host_do_not_travel(out: Path) -> None:
    await unpack(tar((member("top/su", mode=0o6755), b"x"), (member("top/d", tarfile.DIRTYPE, mode=0o7777), b"")), out)
    assert stat.S_IMODE((out / "top" / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((out / "top" / "d").stat().st_mode) == 0o777


async def test_a_folder_without_rights_does_not_keep_what_is_in_it(out: Path) -> None:
    closed = tar((member("top/d", tarfile.DIRTYPE, mode=0o000), b""), (member("top/d/file"), b"x"))
    assert (await unpack(closed, out)).files == 1
    assert stat.S_IMODE((out / "top" / "d").stat().st_mode) == 0


async def test_a_second_name_of_a_file_becomes_a_file_of_its_own(out: Path) -> None:
    await unpack(tar((member("top/a"), b"same"), (member("top/b", tarfile.LNKTYPE, "top/a"), b"")), out)
    assert (out / "top" / "b").read_text() == "same"
    assert (out / "top" / "a").stat().st_nlink == 1


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
async def test_every_form_of_the_format_is_read(form: int, out: Path) -> None:
    long = "top/" + ("x" * 90 + "/") * 2 + "end"
    data = tar((member(long), b"1" * 1000), (member("top/l", tarfile.SYMTYPE, "x" * 90), b""), form=form)
    written = await unpack(data, out, (b"top", b"called"))
    assert (written.files, written.links) == (1, 1)
    assert (out / "called" / ("x" * 90) / ("x" * 90) / "end").read_bytes() == b"1" * 1000


def _header(**changes: bytes) -> bytes:
    data = bytearray(tar((member("top/x"), b"content"))[:512])
    for field, value in changes.items():
        start = {"size": 124, "kind": 156, "mode": 100}[field]
        data[start : start + len(value)] = value
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data):06o}\0 ".encode()
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"not an archive at all" * 100,
        b"",
        tar((member("top/x"), b"content" * 300))[:700],
        _header(kind=b"x", size=b"77777777777\0"),
        _header(kind=b"L", size=b"77777777777\0"),
        _header(mode=b"9999999\0"),
        _header(kind=b"x", size=b"00000000010\0") + b"99999 x=".ljust(512, b"\0"),
    ],
    ids=["text", "nothing", "cut off", "a huge header", "a huge name", "no number", "a broken record"],
)
async def test_what_is_no_archive_is_an_error_and_takes_no_memory(data: bytes, out: Path) -> None:
    with pytest.raises(ArchiveError):
        await unpack(data, out)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=600), where=st.integers(0, 1200))
async def test_broken_bytes_end_in_no_other_way(data: bytes, where: int, out: Path) -> None:
    whole = bytearray(tar((member("top/x"), b"content"), (member("top/l", tarfile.SYMTYPE, "x"), b"")))
    whole[where : where + len(data)] = data
    with contextlib.suppress(ArchiveError, OSError):
        await unpack(bytes(whole), out)
    assert {p.name for p in out.parent.iterdir()} == {"secret", "out"}


async def test_what_is_packed_is_what_is_read_again(tmp_path: Path, out: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / ("n" * 200)).write_bytes(b"1" * 5000)
    (source / "sub" / "line\nend").write_text("x")
    (source / "link").symlink_to("sub")
    os.mkfifo(source / "pipe")
    left_out, data = Written(), b""
    for each, fd in pack(source, b"top", left_out):
        content = os.read(fd, each.size) if fd >= 0 else b""
        data += archive.header(each) + content + b"\0" * (-len(content) % archive.BLOCK)
    written = await unpack(data + archive.END, out)
    assert (written.files, written.folders, written.links) == (2, 2, 1)
    assert left_out.left_out == ["top/pipe: neither a file, a folder nor a link"]
    assert (out / "top" / "sub" / "line\nend").read_text() == "x"


@pytest.mark.parametrize(
    ("text", "sandbox", "path"),
    [
        ("box:/a", "box", "/a"),
        ("box:", "box", "."),
        ("./box:/a", "", "./box:/a"),
        ("/a:b", "", "/a:b"),
        ("plain", "", "plain"),
        ("box:a:b", "box", "a:b"),
    ],
)
def test_which_end_is_the_sandbox(text: str, sandbox: str, path: str) -> None:
    from runner.session.copying.copy import parse

    place = parse(text)
    assert (place.sandbox, place.path) == (sandbox, path)
