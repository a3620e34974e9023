"""`sbx cp` copies what is there, and nothing that comes out of a sandbox reaches beyond the copy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.conformance.life.conftest import NAME
from tests.conformance.main.conftest import Sbx

pytestmark = pytest.mark.engine

ODD = [
    b"plain",
    b"two words",
    b"line\nend",
    b"-dash",
    b"\xff\xfe not utf-8",
    b"quote'\"`$(x)",
    b"a" * 240,
    "ü-日本".encode(),
]


def tree(folder: Path) -> dict[bytes, tuple[str, object, int]]:
    """Every file, link and folder below: kind, content, and rights of files."""
    found: dict[bytes, tuple[str, object, int]] = {}
    for path, folders, files in os.walk(os.fsencode(folder)):
        for name in [*folders, *files]:
            full = os.path.join(path, name)
            status = os.lstat(full)
            relative = os.path.relpath(full, os.fsencode(folder))
            if stat.S_ISLNK(status.st_mode):
                found[relative] = ("link", os.readlink(full), 0)
            elif stat.S_ISDIR(status.st_mode):
                found[relative] = ("folder", None, 0)
            else:
                with open(full, "rb") as file:
                    found[relative] = ("file", file.read(), stat.S_IMODE(status.st_mode))
    return found


def test_a_tree_goes_in_and_comes_out_the_same(up: Sbx, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    for name in ODD:
        (Path(os.fsdecode(os.fsencode(source) + b"/sub/" + name))).write_bytes(name * 7)
    (source / "large").write_bytes(os.urandom(1_500_000))
    (source / "nothing").touch()
    (source / "program").write_text("#!/bin/sh\n")
    (source / "program").chmod(0o755)
    (source / "secret").write_text("x")
    (source / "secret").chmod(0o600)
    (source / "link").symlink_to("sub/plain")
    (source / "sub" / "up").symlink_to("../large")
    os.utime(source / "large", (1_000_000_000, 1_000_000_000))
    assert up("cp", source, f"{NAME}:/tmp/tree").code == 0
    done = up("cp", "--json", f"{NAME}:/tmp/tree", tmp_path / "back")
    assert done.code == 0, done.said
    assert tree(tmp_path / "back") == tree(source)
    assert (tmp_path / "back" / "large").stat().st_mtime == 1_000_000_000
    assert json.loads(done.stdout)["left_out"] == []


def test_what_goes_in_belongs_to_the_workspaces_owner(up: Sbx, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert up("cp", tmp_path / "file", f"{NAME}:/tmp/owned").code == 0
    owner, uid = up("exec", NAME, "sh", "-c", "stat -c %u /tmp/owned; id -u").stdout.split()
    assert owner == uid


def test_what_would_reach_beyond_the_copy_is_left_out_and_named(up: Sbx, tmp_path: Path) -> None:
    hostile = (
        "mkdir -p /tmp/hostile/sub; cd /tmp/hostile; ln -s /etc/passwd absolute; ln -s ../../outside above; "
        "ln -s ../../.. sub/far; ln -s .. sub/near; mkfifo pipe; cp /bin/true setuid; chmod 6755 setuid; "
        "echo one > first; ln first second; ln -s sub inner; ln -s inner/../../.. round"
    )
    assert up("exec", NAME, "sh", "-c", hostile).code == 0
    done = up("cp", "--json", f"{NAME}:/tmp/hostile", tmp_path)
    assert done.code == 0, done.said
    told = {line.split(":")[0] for line in json.loads(done.stdout)["left_out"]}
    assert told == {f"hostile/{name}" for name in ("absolute", "above", "sub/far", "pipe", "round")}
    out = tmp_path / "hostile"
    assert {p.name for p in out.iterdir()} == {"sub", "setuid", "first", "second", "inner"}
    assert stat.S_IMODE((out / "setuid").stat().st_mode) == 0o755
    assert [(out / n).read_text() for n in ("first", "second")] == ["one\n", "one\n"]
    assert (out / "first").stat().st_nlink == 1
    assert os.readlink(out / "sub" / "near") == ".."


@pytest.fixture(scope="module")
def places(up: Sbx) -> Sbx:
    done = up("exec", NAME, "sh", "-c", "mkdir -p /tmp/p/d/s; echo F > /tmp/p/f; echo G > /tmp/p/d/g; echo W > in-work")
    assert done.code == 0
    return up


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("/tmp/p/f", "new", {b"new"}),
        ("/tmp/p/f", "there", {b"there/f"}),
        ("/tmp/p/d", "new", {b"new/g", b"new/s"}),
        ("/tmp/p/d", "there", {b"there/d/g", b"there/d/s"}),
        ("/tmp/p/d/.", "there", {b"there/g", b"there/s"}),
        ("/tmp/p/d/", "there", {b"there/d/g", b"there/d/s"}),
        ("in-work", ".", {b"in-work"}),
    ],
)
def test_names_out_are_those_of_docker_cp(
    places: Sbx, tmp_path: Path, source: str, target: str, expected: set[bytes]
) -> None:
    (tmp_path / "there").mkdir()
    done = places("cp", f"{NAME}:{source}", target, cwd=tmp_path)
    assert done.code == 0, done.said
    leaves = {name for name in tree(tmp_path) if not any(o.startswith(name + b"/") for o in tree(tmp_path))}
    assert leaves - {b"there"} == expected - {b"there"}


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        (f"{NAME}:/no/such", "x", 3, "there is no /no/such in the sandbox"),
        (f"{NAME}:/tmp/p/f", "missing/folder/x", 2, "there is no folder"),
        (f"{NAME}:/tmp/p/d", "a-file", 2, "a-file is a file"),
        ("no-such-file", f"{NAME}:/tmp", 2, "there is no no-such-file"),
        ("a-file", f"{NAME}:/no/such/x", 3, "there is no folder /no/such"),
        ("a-file", f"{NAME}:/usr/x", 1, "not everything could be copied"),
        ("a-file", "b-file", 2, "neither is in a sandbox"),
        ("a-file", "no-such-sandbox:/tmp", 3, "no sandbox 'no-such-sandbox'"),
    ],
)
def test_what_cannot_be_copied_is_told(
    places: Sbx, tmp_path: Path, source: str, target: str, code: int, words: str
) -> None:
    (tmp_path / "a-file").write_text("x")
    done = places("cp", source, target, cwd=tmp_path)
    assert (done.code, words in done.stderr) == (code, True), done.said


def test_a_tar_goes_through_stdin_and_stdout(places: Sbx, tmp_path: Path) -> None:
    out = subprocess.run(places.command("cp", f"{NAME}:/tmp/p", "-"), env=places.env(), capture_output=True, check=True)
    listed = subprocess.run(["tar", "t"], input=out.stdout, capture_output=True, check=True).stdout.split()
    assert sorted(listed) == [b"p/", b"p/d/", b"p/d/g", b"p/d/s/", b"p/f"]
    back = subprocess.run(places.command("cp", "-", f"{NAME}:/tmp"), input=out.stdout, env=places.env(), check=False)
    assert back.returncode == 0


@pytest.mark.slow
def test_a_hundred_thousand_files_go_both_ways(up: Sbx, tmp_path: Path) -> None:
    for folder in range(100):
        (tmp_path / "many" / str(folder)).mkdir(parents=True)
        for name in range(1000):
            (tmp_path / "many" / str(folder) / str(name)).write_bytes(b"x")
    assert up("cp", tmp_path / "many", f"{NAME}:/tmp/").code == 0
    assert up("cp", f"{NAME}:/tmp/many", tmp_path / "back").code == 0
    assert len(tree(tmp_path / "back")) == 100_100
