"""`files/`: what is copied, and that nothing from outside the kit comes along."""

from __future__ import annotations

import os

import pytest

from runner.errors import ConfigError
from runner.kits import copied
from runner.kits.copied import read_copied_files
from runner.kits.plan import CopiedFile


@pytest.fixture
def kit(tmp_path):
    folder = tmp_path / "kit"
    (folder / "files/home").mkdir(parents=True)
    (folder / "files/workspace").mkdir()
    (tmp_path / "secret").write_text("a private key")
    return folder


def test_a_kit_without_files_copies_none(tmp_path):
    assert read_copied_files(tmp_path, {}) == copied.CopiedFiles()


def test_other_folders_are_a_warning(kit):
    (kit / "files/etc").mkdir()
    (kit / "files/readme").write_text("x")
    warnings = read_copied_files(kit, {}).warnings
    assert [w.partition(": ")[0] for w in warnings] == [str(kit / "files/etc"), str(kit / "files/readme")]
    assert "only files/home and files/workspace are copied" in warnings[0]


LINKS = {
    "up": "../../../secret",
    "absolute": "/etc/passwd",
    "through a folder": "sub/../../../../secret",
}


@pytest.mark.parametrize("target", LINKS.values(), ids=LINKS.keys())
def test_a_link_that_leads_out_is_refused(kit, target):
    (kit / "files/home/sub").mkdir()
    (kit / "files/home/link").symlink_to(target)
    with pytest.raises(ConfigError, match="is a link that leads out of the kit's folder") as caught:
        read_copied_files(kit, {})
    assert caught.value.place == str(kit / "files/home/link")


def test_a_chain_of_links_that_leads_out_is_refused(kit):
    (kit / "files/home/a").symlink_to("b")
    (kit / "files/home/b").symlink_to("../../../secret")
    with pytest.raises(ConfigError, match="leads out"):
        read_copied_files(kit, {})


@pytest.mark.parametrize("place", ["files", "files/home", "files/home/sub"])
def test_a_folder_that_is_a_link_out_is_refused(kit, tmp_path, place):
    outside = tmp_path / "outside"
    (outside / "home").mkdir(parents=True)
    path = kit / place
    if path.is_dir():
        for child in sorted(path.rglob("*"), reverse=True):
            child.rmdir()
        path.rmdir()
    path.symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link that leads out of the kit's folder"):
        read_copied_files(kit, {})


def test_a_link_to_nothing_is_refused(kit):
    (kit / "files/home/link").symlink_to("missing")
    with pytest.raises(ConfigError, match="is a link to missing, which is not there"):
        read_copied_files(kit, {})


def test_links_inside_stay_links_and_links_to_elsewhere_in_the_kit_become_files(kit):
    (kit / "files/home/sub").mkdir()
    (kit / "files/home/sub/real").write_text("x")
    (kit / "files/home/inside").symlink_to("sub/real")
    (kit / "files/home/folder").symlink_to("sub")
    (kit / "shared.txt").write_text("shared")
    (kit / "files/home/shared").symlink_to("../../shared.txt")
    assert read_copied_files(kit, {}).home == (
        CopiedFile("folder", link="sub"),
        CopiedFile("inside", link="sub/real"),
        CopiedFile("shared", b"shared"),
        CopiedFile("sub/real", b"x"),
    )


def test_an_absolute_link_into_the_kit_becomes_a_file(kit):
    (kit / "files/home/real").write_text("x")
    (kit / "files/home/link").symlink_to(kit / "files/home/real")
    assert read_copied_files(kit, {}).home[0] == CopiedFile("link", b"x")


def test_a_fifo_is_refused_and_not_waited_for(kit):
    os.mkfifo(kit / "files/workspace/pipe")
    with pytest.raises(ConfigError, match="is neither a file, a folder nor a link"):
        read_copied_files(kit, {})


@pytest.mark.parametrize("name", [b"new\nline", b"caf\xe9", b"esc\x1b[31m"])
def test_a_name_that_cannot_be_shown_is_refused(kit, name):
    with open(os.fsencode(kit / "files/home") + b"/" + name, "w"):
        pass
    with pytest.raises(ConfigError, match="holds characters that cannot be shown"):
        read_copied_files(kit, {})


def test_modes_are_those_that_git_keeps(kit):
    for name, mode in (("a", 0o600), ("b", 0o4755), ("c", 0o664), ("d", 0o700)):
        (kit / "files/home" / name).write_text("")
        (kit / "files/home" / name).chmod(mode)
    assert [(f.path, f.mode) for f in read_copied_files(kit, {}).home] == [
        ("a", 0o644),
        ("b", 0o755),
        ("c", 0o644),
        ("d", 0o755),
    ]


def test_binary_files_are_copied_whole_even_with_the_marks_of_an_argument(kit):
    content = b"\x00\xff${{ kit.args.a }}\x80"
    (kit / "files/home/blob").write_bytes(content)
    assert read_copied_files(kit, {"a": "x"}).home[0].content == content


def test_too_much_is_refused(kit, monkeypatch):
    monkeypatch.setattr(copied, "MAX_TOTAL", 1024 * 1024)
    (kit / "files/home/a").write_bytes(b"x" * 700_000)
    (kit / "files/home/b").write_bytes(b"x" * 700_000)
    with pytest.raises(ConfigError, match="may hold 1 MiB together"):
        read_copied_files(kit, {})
    monkeypatch.setattr(copied, "MAX_FILES", 1)
    (kit / "files/home/a").write_bytes(b"")
    with pytest.raises(ConfigError, match="holds more than 1 files"):
        read_copied_files(kit, {})
