"""What is added to the system prompt from files: the workspace's `AGENTS.md`, `context` files, the list of skills.

The files are read once, at the start, by a process of U's, as a tool would read them: nothing that U may not read
reaches the prompt, and a link that leads out of its folder is refused. What is too large is cut, what is binary is left
out; both are told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.guest.room import tokens_of
from runner.guest.spawn.command import Command
from runner.guest.spawn.spawner import Spawner
from runner.guest.tools.base import Place

SECONDS = 20.0
"""For the reading of one file, or of the list of skills."""
ANSWER_LIMIT = 4 * 1024 * 1024
AGENTS_MD = "AGENTS.md"
SKILLS = "skills"
"""The kit's folder of skills."""

Emit = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Skill:
    """A skill as it is listed."""

    name: str
    description: str
    path: str
    """Its folder."""


@dataclass
class Loaded:
    """What was found."""

    parts: list[str] = field(default_factory=list)
    """Parts of the system prompt, each labelled."""
    skills: list[Skill] = field(default_factory=list)


class Reader:
    """Reads as U.

    Args:
        spawner: starts processes.
        place: as whom, and where the workspace is.
        config: the copy of the kit's folder.
        emit: takes each event.
    """

    def __init__(self, spawner: Spawner, place: Place, config: str, emit: Emit) -> None:
        self._spawner = spawner
        self._place = place
        self._config = config
        self._emit = emit

    async def load(self, *, agents_md: bool, files: Sequence[str], skills_dirs: Sequence[str]) -> Loaded:
        """Everything, in a fixed order. Problems are notices; none of them ends the session."""
        loaded = Loaded()
        if agents_md and (text := await self._file(AGENTS_MD, (self._place.workspace,), optional=True)):
            loaded.parts.append(f"[{AGENTS_MD} of the workspace]\n{text}")
        for name in files:
            if text := await self._file(name, (self._config, self._place.workspace)):
                loaded.parts.append(f"[{name}]\n{text}")
        loaded.skills = await self._skills([SKILLS, *skills_dirs])
        if loaded.skills:
            lines = [f"- {skill.name}: {skill.description}" for skill in loaded.skills]
            loaded.parts.append(
                "[skills]\nInstructions for special tasks. When one fits, read it with read_skill before you begin:\n"
                + "\n".join(lines)
            )
        return loaded

    async def _file(self, name: str, roots: Sequence[str], *, optional: bool = False) -> str:
        answer = await self._ask("file", {"name": name, "roots": list(roots)})
        if answer.get("missing"):
            if not optional:
                self._notice(f"context: {name} is neither in the kit nor in the workspace")
            return ""
        if wrong := answer.get("error"):
            self._notice(f"{name} is left out: {wrong}")
            return ""
        text = str(answer.get("text", ""))
        said = {"file": name, "bytes": answer.get("size", 0), "tokens": tokens_of(len(text)), "cut": answer.get("cut")}
        self._emit("context.loaded", said)
        return text.strip()

    async def _skills(self, folders: Sequence[str]) -> list[Skill]:
        found: dict[str, Skill] = {}
        for folder in dict.fromkeys(folders):
            answer = await self._ask("skills", {"name": folder, "roots": [self._config, self._place.workspace]})
            if answer.get("missing") and folder != SKILLS:
                self._notice(f"skillsDir: {folder} is neither in the kit nor in the workspace")
            if wrong := answer.get("error"):
                self._notice(f"skills of {folder} are left out: {wrong}")
            for problem in answer.get("problems", ()):
                self._notice(f"skill left out: {problem}")
            for each in answer.get("skills", ()):
                if each["name"] in found:
                    self._notice(f"skill left out: {each['path']}: there is a skill {each['name']} already")
                else:
                    found[each["name"]] = Skill(each["name"], each["description"], each["path"])
        return list(found.values())

    async def _ask(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        order = Command(
            argv=[operation],
            env=self._place.environment,
            cwd="/",
            identity=self._place.owner,
            call="runner.guest.tools.documents:main",
            grace=0,
        )
        given = json.dumps(arguments).encode("ascii")
        result = await self._spawner.run(order, input=given, timeout=SECONDS, limit=ANSWER_LIMIT)
        if not result.exit.ok or result.stdout.truncated:
            return {"error": "it took too long to read" if result.timed_out else "it cannot be read"}
        answer: dict[str, Any] = json.loads(result.stdout.data)
        return answer

    def _notice(self, text: str) -> None:
        self._emit("notice", {"level": "warning", "text": text})
