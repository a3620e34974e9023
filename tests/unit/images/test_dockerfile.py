"""The Dockerfile of a plan: readable, in the right order, and safe for any command."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from runner.images import dockerfile, program, tag
from runner.kits.plan import Base, CopiedFile, Install, Variable
from tests.unit.images.plans import layer, plan


def render(*commands: str, user: str = "0") -> list[str]:
    return dockerfile.render(plan(layer("one", *commands, user=user)), "debian:x", {}).splitlines()


def members(context: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(context)) as tar:
        return {member.name: member for member in tar}


def test_a_simple_command_stands_as_it_was_written() -> None:
    assert "RUN apt-get install -y tree && echo $HOME" in render("apt-get install -y tree && echo $HOME")


@pytest.mark.parametrize(
    "command",
    [
        "set -euo pipefail\necho two lines",
        "cat <<EOF\nhere\nEOF",
        "echo ends with a backslash \\",
        "--mount=type=bind true",
        '["looks", "like", "a", "list"]',
        "# only a comment\ntrue",
        "echo 'ünïcode'\n\ttab",
    ],
)
def test_a_command_that_a_dockerfile_would_misread_is_passed_exactly(command: str) -> None:
    runs = [line for line in render(command) if line.startswith("RUN [")]
    assert [json.loads(line.removeprefix("RUN "))[1] for line in runs] == [command]


def test_an_install_command_runs_as_the_user_it_names() -> None:
    lines = render("npm install", user="1000")
    at = lines.index("RUN npm install")
    assert lines[at - 1] == "USER agent"
    assert lines[at + 1] == "USER 0"


def test_kits_are_laid_in_merge_order_and_the_program_comes_last() -> None:
    text = dockerfile.render(plan(layer("zz", "echo first"), layer("aa", "echo second")), "debian:x", {"a": "b"})
    places = [text.index(part) for part in ("guest-needs", "echo first", "echo second", "COPY program/", "LABEL ")]
    assert places == sorted(places)


def test_home_files_belong_to_the_agent() -> None:
    text = dockerfile.render(plan(layer("one", home=(CopiedFile(".npmrc", b"x"),))), "debian:x", {})
    assert "COPY --chown=1000:1000 layers/01-one/home/ /home/agent/" in text


def test_a_label_cannot_leave_its_quotes() -> None:
    text = dockerfile.render(plan(), "debian:x", {"k": 'a"b\\c\nRUN evil $HOME'})
    assert 'k="a\\"b\\\\c RUN evil \\$HOME"' in text


def test_a_description_of_several_lines_stays_a_comment() -> None:
    one = layer("one")
    one = replace(one, install=(Install("true", "0", "what\nRUN evil"),))
    assert "# RUN evil" in dockerfile.render(plan(one), "debian:x", {}).splitlines()


def test_the_context_is_the_same_bytes_each_time() -> None:
    sample = plan(layer("one", "true", home=(CopiedFile("b/c", b"1"), CopiedFile("a", b"", 0o644, "b/c"))))
    text = dockerfile.render(sample, "debian:x", {})
    first, second = dockerfile.context(sample, text), dockerfile.context(sample, text)
    assert first == second
    found = members(first)
    assert {member.mtime for member in found.values()} == {0}
    assert {(member.uid, member.gid) for member in found.values()} == {(0, 0)}
    assert found["layers/01-one/home/a"].issym()


def test_the_program_holds_the_guests_libraries_and_nothing_compiled() -> None:
    paths = {file.path for file in program.files()}
    for wanted in ("httpx", "httpcore", "h11", "anyio", "idna", "certifi", "tenacity"):
        assert f"lib/{wanted}/__init__.py" in paths
    assert "lib/runner/wire/frames.py" in paths
    assert not [path for path in paths if path.endswith((".pyc", ".so")) or "docker" in path or "pydantic" in path]


def test_the_tag_is_made_of_name_and_content() -> None:
    name, _, version = tag(plan(layer("one", "true"), name="demo")).partition(":")
    assert name == "sbx/demo"
    assert len(version) == 12
    assert int(version, 16) >= 0


def test_the_tag_is_the_same_for_the_same_content() -> None:
    assert tag(plan(layer("one", "true"))) == tag(plan(layer("one", "true")))


@pytest.mark.parametrize(
    "changed",
    [
        plan(layer("one", "false")),
        plan(layer("one", "true", user="1000")),
        plan(layer("two", "true")),
        plan(layer("one", "true"), layer("two", "true")),
        plan(layer("one", "true", home=(CopiedFile("x", b"1"),))),
        plan(layer("one", "true"), base=Base("ubuntu:24.04")),
    ],
)
def test_the_tag_changes_with_what_shapes_the_image(changed: object) -> None:
    assert tag(changed) != tag(plan(layer("one", "true")))  # type: ignore[arg-type]


def test_the_tag_does_not_change_with_what_only_shapes_the_run() -> None:
    sample = plan(layer("one", "true"))
    assert tag(replace(sample, environment=(Variable("A", "b", "one"),))) == tag(sample)


def test_a_kits_own_base_counts_by_its_files(tmp_path: Path) -> None:
    tmp_path.joinpath("Dockerfile").write_text("FROM debian\n")
    sample = plan(base=Base(context=tmp_path))
    before = tag(sample)
    tmp_path.joinpath("more").write_text("x")
    assert tag(sample) != before


def test_versions_read_from_folder_names_are_those_of_the_metadata() -> None:
    told = {distribution.name.lower().replace("_", "-"): distribution.version for distribution in program.libraries()}
    assert program._versions() == told
    assert {"httpx", "tenacity", "anyio", "certifi"} <= set(told)
