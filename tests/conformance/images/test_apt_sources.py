"""A build takes the distribution's packages from the host's mirror, and its sources read as before afterwards."""

from __future__ import annotations

import io
import tarfile

import pytest

from runner.engine import Engine
from runner.images import Image
from runner.kits.data import data_folder

pytestmark = pytest.mark.engine

SETUP = """
set -e
mkdir -p /f /etc/apt/sources.list.d
cat >/f/sources <<X
bookworm http://mirror.corp/debian/ main
bookworm-updates http://mirror.corp/debian/ main
bookworm-security http://safe.corp/debian-security/ main
X
echo 'deb http://deb.example/debian bookworm main' >/etc/apt/sources.list
cat >/etc/apt/sources.list.d/own.sources <<X
Types: deb
URIs: http://own.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/other.gpg
X
echo 'deb [arch=amd64] https://dl.example/linux/debian bookworm stable' >/etc/apt/sources.list.d/third.list
cp -a /etc/apt /before
perl /apt-sources put /f
"""


def run(engine: Engine, image: str, script: str) -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        program = (data_folder("images") / "build" / "apt-sources").read_bytes()
        member = tarfile.TarInfo("apt-sources")
        member.size = len(program)
        tar.addfile(member, io.BytesIO(program))
    with engine.call("running a test's command"):
        container = engine.api.create_container(
            image, ["sh", "-c", SETUP + script], labels={"dev.sbx.test": "images"}, network_disabled=True, user="0"
        )
        try:
            engine.api.put_archive(container, "/", packed.getvalue())
            engine.api.start(container)
            code = engine.api.wait(container)["StatusCode"]
            output = engine.api.logs(container).decode()
        finally:
            engine.api.remove_container(container, force=True, v=True)
    assert code == 0, output
    return output


def test_the_archive_comes_from_the_hosts_mirror_with_its_security_updates(engine: Engine, built: Image) -> None:
    assert run(engine, built.id, "cat /etc/apt/sources.list").splitlines() == [
        "deb http://mirror.corp/debian/ bookworm main",
        "deb http://safe.corp/debian-security/ bookworm-security main",
    ]


def test_other_archives_are_left_alone(engine: Engine, built: Image) -> None:
    shown = run(engine, built.id, "cat /etc/apt/sources.list.d/*")
    assert "URIs: https://other.example/debian" in shown
    assert "deb [arch=amd64] https://dl.example/linux/debian bookworm stable" in shown
    assert "own.example" not in shown


def test_afterwards_the_sources_are_byte_for_byte_as_before(engine: Engine, built: Image) -> None:
    script = "perl /apt-sources back /f; diff -r /before /etc/apt && ls -l --time-style=full-iso /etc/apt/sources.list"
    shown = run(engine, built.id, f"{script}; ls -l --time-style=full-iso /before/sources.list")
    assert len({line.split()[6] for line in shown.splitlines()}) == 1, "the time is kept too"


def test_what_the_command_adds_stays_without_the_mirrors_name(engine: Engine, built: Image) -> None:
    script = "echo 'deb http://new.example/ x main' >>/etc/apt/sources.list; perl /apt-sources back /f"
    assert run(engine, built.id, f"{script}; cat /etc/apt/sources.list").splitlines() == [
        "deb http://deb.example/debian bookworm main",
        "deb http://new.example/ x main",
    ]


def test_a_host_of_another_release_changes_nothing(engine: Engine, built: Image) -> None:
    script = "rm -r /etc/apt; cp -a /before /etc/apt; echo 'trixie http://mirror.corp/debian/ main' >/f/sources"
    assert run(engine, built.id, f"{script}; perl /apt-sources put /f; diff -r /before /etc/apt") == ""
