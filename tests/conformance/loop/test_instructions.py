"""What files add to the system prompt, read as the owner of the workspace: `AGENTS.md`, `context`, skills."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runner.guest.context import Loaded, Reader
from runner.guest.spawn.spawner import Spawner
from runner.guest.tools.asking import AskUser, ReadSkill
from runner.guest.tools.base import Place
from runner.guest.tools.documents import MAX_DOCUMENT, front_matter
from tests.conformance.loop.conftest import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")

Read = tuple[Reader, list[tuple[str, dict[str, Any]]]]


async def load(reader: Read, **more: Any) -> Loaded:
    return await reader[0].load(**{"agents_md": True, "files": (), "skills_dirs": (), **more})


def notices(reader: Read) -> list[str]:
    return [data["text"] for name, data in reader[1] if name == "notice"]


async def test_agents_md_is_in_the_prompt_and_its_tokens_are_told(reader: Read, root: Path) -> None:
    (root / "workspace" / "AGENTS.md").write_text("Use tabs. " * 40)
    loaded = await load(reader)
    assert loaded.parts == ["[AGENTS.md of the workspace]\n" + ("Use tabs. " * 40).strip()]
    assert reader[1] == [("context.loaded", {"file": "AGENTS.md", "bytes": 400, "tokens": 100, "cut": False})]


async def test_it_can_be_switched_off(reader: Read, root: Path) -> None:
    (root / "workspace" / "AGENTS.md").write_text("Use tabs.")
    assert (await load(reader, agents_md=False)).parts == []


async def test_a_workspace_without_one_says_nothing(reader: Read) -> None:
    assert (await load(reader)).parts == []
    assert reader[1] == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../config/secret", "/proc/self/environ"])
async def test_a_link_out_of_the_workspace_is_refused(reader: Read, root: Path, target: str) -> None:
    (root / "config" / "secret").write_text("secret")
    (root / "workspace" / "AGENTS.md").symlink_to(target)
    assert (await load(reader)).parts == []
    assert notices(reader) == ["AGENTS.md is left out: it leads out of its folder"]


async def test_a_link_within_the_workspace_is_followed(reader: Read, root: Path) -> None:
    (root / "workspace" / "CLAUDE.md").write_text("Use tabs.")
    (root / "workspace" / "AGENTS.md").symlink_to("CLAUDE.md")
    assert (await load(reader)).parts == ["[AGENTS.md of the workspace]\nUse tabs."]


async def test_binary_and_special_files_are_refused(reader: Read, root: Path) -> None:
    path = root / "workspace" / "AGENTS.md"
    path.write_bytes(b"\x7fELF\0\1\2")
    await load(reader)
    path.unlink()
    path.write_bytes(bytes(range(128, 256)) * 10)
    await load(reader)
    path.unlink()
    os.mkfifo(path)
    await load(reader)
    path.unlink()
    path.mkdir()
    await load(reader)
    assert [text.removeprefix("AGENTS.md is left out: ") for text in notices(reader)] == [
        "it is binary",
        "it is not UTF-8 text",
        "it is not a regular file",
        "it is not a regular file",
    ]


async def test_fifty_megabytes_are_cut(reader: Read, root: Path) -> None:
    with (root / "workspace" / "AGENTS.md").open("wb") as file:
        file.write(b"line of text\n" * 4096)
        file.truncate(50 * 1024 * 1024)
    (part,) = (await load(reader)).parts
    assert len(part) < MAX_DOCUMENT + 200
    assert part.endswith("[cut: the file has 52,428,800 bytes, of which 32,768 are shown]")
    assert reader[1][0][1]["cut"] is True


async def test_what_the_owner_may_not_read_reaches_no_prompt(reader: Read, root: Path) -> None:
    path = root / "workspace" / "AGENTS.md"
    path.write_text("root's own")
    path.chmod(0o600)
    os.chown(path, 0, 0)
    assert (await load(reader)).parts == []
    assert notices(reader) == ["AGENTS.md is left out: permission denied"]


async def test_context_files_come_from_the_kit_first_then_the_workspace(reader: Read, root: Path) -> None:
    (root / "config" / "style.md").write_text("of the kit")
    (root / "workspace" / "style.md").write_text("of the workspace")
    (root / "workspace" / "notes.md").write_text("notes")
    loaded = await load(reader, files=("style.md", "notes.md", "missing.md", "../../etc/passwd"))
    assert loaded.parts == ["[style.md]\nof the kit", "[notes.md]\nnotes"]
    assert notices(reader) == [
        "context: missing.md is neither in the kit nor in the workspace",
        "context: ../../etc/passwd is neither in the kit nor in the workspace",
    ]


def skill(folder: Path, name: str, text: str) -> Path:
    made = folder / name
    made.mkdir(parents=True)
    (made / "SKILL.md").write_text(text)
    return made


async def test_skills_are_listed_by_name_and_description_and_read_on_demand(
    reader: Read, root: Path, spawner: Spawner
) -> None:
    pdf = skill(
        root / "config" / "skills", "pdf", "---\nname: pdf-forms\ndescription: Fill in PDF forms.\n---\nDo this.\n"
    )
    (pdf / "fill.py").write_text("…")
    skill(root / "workspace" / "team", "deploy", "---\ndescription: >\n  How we\n  deploy.\n---\nDo that.\n")
    loaded = await load(reader, skills_dirs=("team",))
    assert loaded.parts[-1].splitlines()[-2:] == ["- pdf-forms: Fill in PDF forms.", "- deploy: How we deploy."]
    assert "Do this" not in loaded.parts[-1]
    tool = ReadSkill(spawner, Place(str(root / "workspace"), OWNER, {}), loaded.skills)
    result = await tool.run({"name": "pdf-forms"}, "1")
    assert "Do this." in result.output
    assert result.output.endswith(str(pdf / "fill.py"))
    result = await tool.run({"name": "none"}, "2")
    assert (result.is_error, result.output) == (True, "there is no skill 'none'; there are: pdf-forms, deploy")


async def test_a_bad_skill_spoils_no_other(reader: Read, root: Path) -> None:
    skills = root / "config" / "skills"
    skill(skills, "good", "---\nname: good\ndescription: d\n---\n")
    skill(skills, "again", "---\nname: good\ndescription: d\n---\n")
    (skills / "empty").mkdir()
    (skills / "out").mkdir()
    (skills / "out" / "SKILL.md").symlink_to("/etc/passwd")
    loaded = await load(reader)
    assert [each.name for each in loaded.skills] == ["good"]
    assert len(notices(reader)) == 3


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("no front matter", {}),
        ("---\nname: never ends", {}),
        ("---\nname: 'quoted: text'\n---", {"name": "quoted: text"}),
        (
            "---\n# comment\ndescription: |\n  one\n  two\nlicense: MIT\n---",
            {"description": "one two", "license": "MIT"},
        ),
        ("---\n- a list\n---", {}),
    ],
)
async def test_front_matter(text: str, keys: dict[str, str]) -> None:
    assert front_matter(text) == keys


async def test_ask_user_gives_the_persons_words(reader: Read) -> None:
    asked = []

    async def ask(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        asked.append((kind, data))
        return {"answer": "blue"}

    result = await AskUser(ask).run({"question": "Which colour?", "choices": ["blue", "red"]}, "1")
    assert (result.output, result.is_error) == ("blue", False)
    assert asked == [("question", {"question": "Which colour?", "choices": ["blue", "red"]})]


async def test_ask_user_without_an_answer_lets_the_model_go_on(reader: Read) -> None:
    async def ask(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {"answer": None}

    assert (await AskUser(ask).run({"question": "Which?"}, "1")).is_error
    assert (await AskUser(ask).run({"question": " "}, "1")).output == "the question is empty"
