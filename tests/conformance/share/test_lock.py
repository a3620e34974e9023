"""`sbx image build` and its lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import Sbx
from tests.conformance.share.conftest import NAME, Built

pytestmark = pytest.mark.engine


def test_the_lock_tells_what_the_build_came_to(built: Built) -> None:
    lock = built.lock
    assert lock["image"] == built.id
    assert lock["base"]["image"] == "debian:bookworm-slim"
    assert lock["base"]["digest"].startswith("sha256:")
    assert [kit["name"] for kit in lock["kits"]] == [
        NAME,
        f"{NAME}-one",
        f"{NAME}-two",
        f"{NAME}-three",
        f"{NAME}-four",
    ]
    assert lock["kits"][1]["arguments"] == {"word": "plain"}
    assert set(lock["packages"]) == {"dpkg", "pip", "npm"}
    assert {"bash", "git", "python3"} <= set(lock["packages"]["dpkg"])
    assert len(lock["layers"]) == len(lock["contents"]) + 1


def test_the_layers_are_those_of_the_engine(engine: Engine, built: Built) -> None:
    document = engine.get(f"/images/{built.tag}/json", doing="asking")
    assert document["RootFS"]["Layers"] == built.lock["layers"]


def test_a_second_build_is_the_same_image_and_lock(sbx: Sbx, built: Built, kit: Path) -> None:
    before = (kit / "sbx.lock").read_bytes()
    done = sbx("image", "build", kit, "--json")
    assert done.code == 0, done.said
    assert json.loads(done.stdout)["id"] == built.id
    assert (kit / "sbx.lock").read_bytes() == before


def test_a_locked_build_of_the_same_kit_passes(sbx: Sbx, built: Built, kit: Path) -> None:
    done = sbx("image", "build", kit, "--locked")
    assert (done.code, "held to" in done.stdout) == (0, True), done.said


def test_a_locked_build_says_which_mixin_drifted(sbx: Sbx, built: Built, kit: Path) -> None:
    spec = kit / "four" / "spec.yaml"
    spec.write_text(spec.read_text().replace("echo four", "echo  four"))
    done = sbx("image", "build", kit, "--locked")
    assert done.code == 5
    assert f"{NAME}-four: its content changed" in done.stderr


def test_a_locked_build_says_which_argument_drifted(sbx: Sbx, built: Built, kit: Path) -> None:
    done = sbx("image", "build", kit, "--locked", "--kit-arg", f"{NAME}-two.word=other")
    assert done.code == 5
    assert f"{NAME}-two: argument word: 'plain' in the lock, now 'other'" in done.stderr


def test_a_locked_build_says_which_package_drifted_and_leaves_the_image(
    sbx: Sbx, engine: Engine, built: Built, kit: Path
) -> None:
    lock = json.loads((kit / "sbx.lock").read_text())
    true = lock["packages"]["dpkg"]["git"]
    lock["packages"]["dpkg"]["git"] = "0.1"
    (kit / "sbx.lock").write_text(json.dumps(lock))
    done = sbx("image", "build", kit, "--locked")
    assert done.code == 5
    assert f"dpkg git: 0.1 → {true}" in done.stderr
    assert engine.get(f"/images/{built.tag}/json", doing="asking")["Id"] == built.id


def test_a_locked_build_without_a_lock_is_a_usage_error(sbx: Sbx, built: Built, kit: Path) -> None:
    (kit / "sbx.lock").unlink()
    done = sbx("image", "build", kit, "--locked")
    assert (done.code, "there is no lock" in done.stderr) == (2, True)


def test_a_byte_in_the_last_of_four_mixins_builds_only_its_layer(sbx: Sbx, built: Built, kit: Path) -> None:
    spec = kit / "four" / "spec.yaml"
    spec.write_text(spec.read_text().replace("echo four", "echo fouR"))
    done = sbx("image", "build", kit)
    assert done.code == 0, done.said
    now = json.loads((kit / "sbx.lock").read_text())["layers"]
    same = [a == b for a, b in zip(built.lock["layers"], now, strict=True)]
    # base, build scripts, guest's needs, three mixins | the fourth, the program twice, the recipe
    assert same == [True] * 6 + [False] + same[7:]


def test_print_shows_the_dockerfile_and_asks_no_engine(sbx: Sbx, kit: Path) -> None:
    done = sbx("image", "build", kit, "--print", env={"DOCKER_HOST": "unix:///nowhere"})
    assert done.code == 0, done.said
    assert "RUN echo four > /srv/four" in done.stdout
