"""Whole machines: a team's registry, podman, a disk that is full. Minutes, so not in the usual run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine
from tests.conformance.main.conftest import BUILD_TIMEOUT, Sbx
from tests.conformance.share import machines
from tests.conformance.share.conftest import NAME, Built, write_kit

pytestmark = [pytest.mark.engine, pytest.mark.slow]

QUESTION = ("--demo", "-p", "What is in todo.txt?")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder on a real disk: an engine's layers do not lie on every file system."""
    folder = Path("/var/tmp/sbx-test-machines")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def machine(place: Path, name: str, address: str) -> Sbx:
    """A user's folders on one of the machines."""
    root = place / name
    (root / "work").mkdir(parents=True)
    (root / "work" / "todo.txt").write_text("water the plants\n")
    (root / "home").mkdir()
    return Sbx(root, {"DOCKER_HOST": address, "HOME": str(root / "home")})


def give(engine: Engine, reference: str, address: str) -> None:
    """What a machine that reaches a mirror has: the base. No test builds it three times."""
    with subprocess.Popen(["docker", "save", reference], stdout=subprocess.PIPE) as save:
        subprocess.run(["docker", "--host", address, "load"], stdin=save.stdout, check=True, capture_output=True)
    assert save.returncode == 0


def test_one_machine_builds_and_pushes_and_another_runs_it(engine: Engine, built: Built, place: Path) -> None:
    with (
        machines.engine(place, "a") as first,
        machines.engine(place, "b") as second,
        machines.registry(place / "registry") as registry,
    ):
        alice, bob = machine(place, "alice", first), machine(place, "bob", second)
        # The first machine has the built image's layers; it makes its own recipe and lock of them.
        give(engine, built.tag, first)
        kit = write_kit(place / "alice" / "kit")
        loaded = alice("image", "verify", built.tag, built.kit)
        assert loaded.code == 0, loaded.said
        pushed = alice("image", "push", f"{registry}/team/{NAME}:1", built.tag)
        assert pushed.code == 0, pushed.said
        pinned = pushed.stdout.strip()
        shutil.rmtree(kit)

        ran = bob("run", pinned, bob.root / "work", *QUESTION, timeout=BUILD_TIMEOUT)
        assert ran.code == 0, ran.said
        assert "water the plants" in ran.stdout
        tar = bob.root / "image.tar"
        # By digest the image has no name here yet; a tag is one.
        assert bob("image", "pull", f"{registry}/team/{NAME}:1").code == 0
        assert bob("image", "save", tar, f"{registry}/team/{NAME}:1").code == 0
        proved = bob("image", "verify", pinned, built.kit, "--json")
        assert json.loads(proved.stdout)["faults"] == [], proved.said
    with machines.engine(place, "c") as third:
        carol = machine(place, "carol", third)
        assert carol("image", "load", tar).code == 0
        offline = carol("run", f"{registry}/team/{NAME}:1", carol.root / "work", *QUESTION)
        assert "water the plants" in offline.stdout, offline.said


def test_podman_builds_runs_and_shares(engine: Engine, built: Built, place: Path) -> None:
    with machines.podman(place) as address:
        user = machine(place, "user", address)
        give(engine, built.lock["base"]["from"], address)
        kit = write_kit(place / "user" / "kit")
        ran = user("run", kit, user.root / "work", *QUESTION, timeout=BUILD_TIMEOUT)
        assert ran.code == 0, ran.said
        assert "water the plants" in ran.stdout
        made = user("image", "build", kit, timeout=BUILD_TIMEOUT)
        assert made.code == 0, made.said
        proved = user("image", "verify", kit, kit)
        assert proved.code == 0, proved.said
        failing = kit / "four" / "spec.yaml"
        failing.write_text(failing.read_text().replace("echo four", "echo about to fail; exit 41; echo"))
        failed = user("run", kit, user.root / "work", *QUESTION)
        assert (failed.code, "about to fail" in failed.stderr) == (5, True), failed.said


def test_a_full_disk_is_named_and_leaves_nothing_to_take(engine: Engine, built: Built, place: Path) -> None:
    data = place / "small"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700m", "tmpfs", str(data)], check=True)
    try:
        with machines.engine(place, "small", data=data) as address:
            user = machine(place, "user", address)
            give(engine, built.tag, address)
            kit = write_kit(place / "user" / "kit")
            # On a base that has all a guest needs: this engine's containers reach no mirror.
            spec = kit / "spec.yaml"
            spec.write_text(spec.read_text().replace("debian:bookworm-slim", built.tag))
            fourth = kit / "four" / "spec.yaml"
            fourth.write_text(fourth.read_text().replace("echo four", "head -c 2000000000 /dev/zero >/big; echo"))
            done = user("run", kit, user.root / "work", *QUESTION, timeout=BUILD_TIMEOUT)
            assert done.code in (4, 5), done.said
            assert "disk is full" in done.stderr, done.said
            listed = json.loads(user("image", "ls", "--json").stdout)
            assert [image["tags"] for image in listed if image["tags"]] == [[built.tag]]
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def test_two_hundred_mebibytes_of_output_fail_with_the_end_of_it(engine: Engine, built: Built, place: Path) -> None:
    user = machine(place, "user", engine.endpoint.address)
    kit = write_kit(place / "user" / "kit")
    fourth = kit / "four" / "spec.yaml"
    fourth.write_text(fourth.read_text().replace("echo four", "yes | head -c 209715200; echo the end; exit 3; echo"))
    done = user("image", "build", kit, timeout=BUILD_TIMEOUT)
    assert done.code == 5, done.said[-2000:]
    assert "the end" in done.stderr
    assert "ended with 3" in done.stderr
