"""Reading an image back: every layer and file hashed, hostile tars refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from runner.errors import ImageError
from runner.images import content
from runner.images.packages import installed
from tests.unit.images.saved import digest, image, tar


def read(data: bytes) -> content.Content:
    (found,) = content.read(chunked(data))
    return found


def chunked(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1000] for at in range(0, len(data), 1000))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("packed", [False, True], ids=["docker", "oci"])
def test_layers_and_files_carry_their_hashes(packed: bool) -> None:
    layers = [tar({"etc": None, "etc/a": b"one", "bin": "usr/bin"}), tar({"etc/b": b"two"})]
    found = read(image(layers, packed=packed))
    assert found.digests == tuple(map(digest, layers)) == found.claimed()
    files, _ = found.files()
    assert files["etc/a"].said == sha(b"one")
    assert files["etc/b"].said == sha(b"two")
    assert files["bin"][::3] == ("link", "usr/bin")
    assert found.tags == ("sbx/x:1",)


def test_what_a_later_layer_removes_is_gone() -> None:
    first = tar({"a": None, "a/x": b"1", "a/y": b"2", "b": None, "b/z": b"3", "keep": b"4"})
    second = tar({"a/.wh.x": b"", "b/.wh..wh..opq": b"", "b/new": b"5"})
    files, _ = read(image([first, second])).files()
    assert sorted(files) == ["a", "a/y", "b", "b/new", "keep"]


def test_a_folder_that_is_removed_takes_all_below_along() -> None:
    files, _ = read(image([tar({"a": None, "a/b": None, "a/b/c": b"1"}), tar({".wh.a": b""})])).files()
    assert files == {}


def test_a_hard_link_is_the_file_it_links_to() -> None:
    files, _ = read(image([tar({"one": b"same"}, links={"two": "one"})])).files()
    assert files["two"] == files["one"]


def test_a_manifest_reads_back_as_what_it_was_made_of() -> None:
    files, _ = read(image([tar({"a\nb": b"1", "ünï": b"2", "l": "a"})])).files()
    text = content.manifest(files)
    assert content.parse_manifest(text) == files
    assert len(text.splitlines()) == 3


def test_the_recipe_is_not_in_its_own_manifest() -> None:
    files, _ = read(image([tar({"opt/sbx/recipe/lock.json": b"{}", "opt/sbx/lib": b""})])).files()
    assert [line for line in content.manifest(files).splitlines() if b"recipe" in line] == []


def test_package_versions_are_read_without_running_anything() -> None:
    status = b"Package: bash\nStatus: install ok installed\nVersion: 5.2-1\n\nPackage: gone\nStatus: deinstall ok\n"
    layer = tar(
        {
            "var/lib/dpkg/status": status,
            "usr/lib/python3/dist-packages/Rich_Text-1.0.dist-info/METADATA": b"Name: Rich_Text\nVersion: 1.0\n\nText",
            "usr/lib/node_modules/tool/package.json": b'{"name": "tool", "version": "3.0.0"}',
            "usr/lib/node_modules/tool/node_modules/dep/package.json": b'{"name": "dep", "version": "1.0.0"}',
            "usr/lib/node_modules/other/node_modules/dep/package.json": b'{"name": "dep", "version": "2.0.0"}',
            "usr/lib/node_modules/broken/package.json": b"{",
        }
    )
    _, kept = read(image([layer])).files()
    assert installed(kept) == {
        "dpkg": {"bash": "5.2-1"},
        "pip": {"rich-text": "1.0"},
        "npm": {"dep": "1.0.0, 2.0.0", "tool": "3.0.0"},
    }


WHOLE = image([tar({"a": b"x" * 5000})])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an image|not a whole image"),
        (b"\x00" * 1024, "not an image"),
        (b"not a tar at all" * 100, "not a whole image"),
        (WHOLE[:3000], "not a whole image"),
        (tar({"readme": b"hello"}), "not an image|not a whole image"),
        (tar({"manifest.json": b"[1]"}), "not an image"),
        (tar({"manifest.json": b"{}"}), "not an image"),
        (tar({"manifest.json": b"[" * 100}), "not an image"),
        (tar({"manifest.json": b'[{"Config": "none.json", "Layers": []}]'}), "none.json is not in it"),
        (tar({"manifest.json": b'[{"Config": "../../etc/passwd"}]'}), "hostile"),
        (tar({"../up": b"x"}), "hostile"),
        (tar({"/abs": b"x"}), "hostile"),
        (image([tar({"../../up": b"x"})]), "hostile"),
        (image([tar({"a": b"x"}, links={"b": "../../../etc/shadow"})]), "hostile"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message) as caught:
        content.read(chunked(data))
    assert caught.value.exit_code == 5


def test_a_layer_that_is_not_what_its_name_says_shows() -> None:
    found = read(image([tar({"a": b"tampered"})], claimed=[digest(tar({"a": b"honest"}))]))
    assert found.digests != found.claimed()
