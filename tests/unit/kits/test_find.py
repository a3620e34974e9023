"""From what is written to the kit's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits import find
from runner.kits.compose import compose
from runner.kits.data import NAMES, data_folder
from runner.kits.find import Finder, Location, find_kit

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def shelves(tmp_path, write_kit, monkeypatch):
    """A ready-made folder and a user's one; returns a finder that looks there."""
    for kind in ("sbx", "mixins"):
        (tmp_path / "ready" / kind).mkdir(parents=True)
    monkeypatch.setattr(find, "data_folder", lambda name: tmp_path / "ready" / name)
    write_kit("ready/sbx/coder", "kind: sandbox\nsandbox: {image: debian}\n")
    write_kit("ready/mixins/node")
    write_kit("config/sbx/kits/mine", "kind: sandbox\nsandbox: {image: debian}\n")
    write_kit("config/sbx/kits/node")
    return Finder({"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path / "home")}, tmp_path)


def test_a_bare_word_is_ready_made_first_and_then_the_users(shelves, tmp_path):
    assert shelves.locate("coder", "sandbox").folder == tmp_path / "ready/sbx/coder"
    assert shelves.locate("node", "mixin").folder == tmp_path / "ready/mixins/node"
    assert shelves.locate("mine", "sandbox").folder == tmp_path / "config/sbx/kits/mine"


def test_an_unknown_word_lists_what_there_is(shelves):
    with pytest.raises(NotFoundError, match="no sandbox kit is called 'codr'; did you mean 'coder'") as caught:
        shelves.locate("codr", "sandbox")
    assert caught.value.hint == "there are: coder, mine, node"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("word", ["Coder", "a_b", "-x", "x" * 65, "", "x y"])
def test_a_word_that_no_kit_can_be_called_is_refused(shelves, word):
    with pytest.raises(UsageError, match="is not a kit name"):
        shelves.locate(word, "sandbox")


def test_a_slash_or_a_leading_point_is_a_path(shelves, tmp_path, write_kit):
    write_kit("here/kit")
    for text in ("here/kit", "./here/kit", str(tmp_path / "here/kit"), "here/../here/kit/", "here/kit/spec.yaml"):
        assert shelves.locate(text).folder == tmp_path / "here/kit"
    with pytest.raises(NotFoundError, match=r"no such folder: .*kitt; did you mean 'kit'"):
        shelves.locate("./here/kitt")


def test_a_tilde_is_the_users_home_but_never_a_kits(shelves, tmp_path, write_kit):
    write_kit("home/kit")
    assert shelves.locate("~/kit").folder == tmp_path / "home/kit"
    with pytest.raises(UsageError, match="a kit cannot name a folder of its reader's home"):
        shelves.locate("~/kit", beside=Location(tmp_path, "x"))


def test_an_image_goes_to_the_resolver(shelves, tmp_path):
    asked = []
    finder = Finder(shelves.environ, tmp_path, lambda reference: asked.append(reference) or tmp_path)
    for text in ("team:1", f"name@{DIGEST}", "host.example:5000/team/kit:1", f"oci://ghcr.example/team/kit@{DIGEST}"):
        assert finder.locate(text).folder == tmp_path
    assert asked == ["team:1", f"name@{DIGEST}", "host.example:5000/team/kit:1", f"ghcr.example/team/kit@{DIGEST}"]
    with pytest.raises(UsageError, match="names an image, and a kit is wanted here"):
        shelves.locate("team:1")


def test_an_image_in_a_kit_must_be_pinned(shelves, tmp_path):
    finder = Finder(shelves.environ, tmp_path, lambda reference: tmp_path)
    with pytest.raises(UsageError, match="is not pinned"):
        finder.locate("oci://ghcr.example/team/kit:1")
    with pytest.raises(UsageError, match="is not pinned"):
        finder.locate("team:1", beside=Location(tmp_path, "x"))


def test_a_kit_from_elsewhere_stays_in_what_was_fetched(shelves, tmp_path, write_kit):
    inside = write_kit("checkout/a")
    write_kit("checkout/b")
    write_kit("outside")
    (tmp_path / "checkout/link").symlink_to(tmp_path / "outside")
    kit = Location(inside, "git+https://x", tmp_path / "checkout")
    assert shelves.locate("../b", beside=kit).folder == tmp_path / "checkout/b"
    assert shelves.locate("../b", beside=kit).root == tmp_path / "checkout"
    for text in ("../../outside", "../link"):
        with pytest.raises(ConfigError, match="leads out of what was fetched"):
            shelves.locate(text, beside=kit)
    with pytest.raises(UsageError, match="cannot name a folder of this machine"):
        shelves.locate("/etc", beside=kit)


def test_find_kit_answers_with_the_folder(write_kit):
    folder = write_kit("kit")
    assert find_kit(str(folder)) == folder


def test_a_relative_xdg_folder_is_ignored(tmp_path):
    finder = Finder({"XDG_CONFIG_HOME": "relative", "HOME": str(tmp_path)})
    assert finder.user_folder() == tmp_path / ".config/sbx/kits"


def test_the_data_folders_of_a_checkout_are_found(tmp_path, monkeypatch):
    import runner.kits.data as data

    checkout = tmp_path / "checkout"
    (checkout / "runner/kits").mkdir(parents=True)
    (checkout / "mixins").mkdir()
    monkeypatch.setattr(data, "__file__", str(checkout / "runner/kits/data.py"))
    with pytest.raises(NotFoundError):
        data_folder("mixins")
    (checkout / "pyproject.toml").touch()
    assert data_folder("mixins") == checkout / "mixins"
    (checkout / "runner/_data/mixins").mkdir(parents=True)
    assert data_folder("mixins") == checkout / "runner/_data/mixins"
    assert set(NAMES) == {"images", "mixins", "hooks", "sbx"}


def test_a_ready_made_agent_without_a_spec_is_found(shelves, tmp_path):
    folder = tmp_path / "ready/sbx/plain"
    folder.mkdir()
    (folder / "agent.yaml").write_text("provider: llmman\n")
    plan = compose("plain", finder=shelves)
    assert (plan.name, Path(plan.kits[0].path)) == ("plain", folder)
