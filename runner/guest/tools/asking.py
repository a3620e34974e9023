"""The tools that need somebody else: `ask_user` a person, `read_skill` the kit's instructions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from runner.guest.context import Skill
from runner.guest.tools import arguments as checking
from runner.guest.tools.base import ToolResult
from runner.guest.tools.files import FileTool

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
MAX_QUESTION = 10_000
MAX_CHOICES = 10


class AskUser:
    """Puts a question to the person at the terminal. Offered only where there is one."""

    name = "ask_user"
    changing = False
    description = (
        "Ask the user one question and wait for the answer. Only for what you cannot find out yourself "
        "and cannot decide well without the user."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012 - a constant
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question, in one or two sentences."},
            "choices": {"type": "array", "items": {"type": "string"}, "description": "Possible answers, if few."},
        },
        "required": ["question"],
    }

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            checked = checking.check(self.parameters, arguments)
            question = checked["question"].strip()
            choices = [str(each) for each in checked["choices"] or ()]
            if not question:
                raise checking.ArgumentError("the question is empty")
            if len(question) > MAX_QUESTION or len(choices) > MAX_CHOICES:
                raise checking.ArgumentError(f"at most {MAX_QUESTION} characters and {MAX_CHOICES} choices")
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        reply = await self._ask("question", {"question": question, "choices": choices})
        answer = reply.get("answer")
        if not isinstance(answer, str):
            return ToolResult("Nobody answered. Go on as you think best.", True)
        return ToolResult(answer if answer.strip() else "[the user gave an empty answer]")


class ReadSkill(FileTool):
    """Gives a skill's instructions, and where its further files are."""

    name = "read_skill"
    description = "Read the instructions of a skill by its name."
    parameters: dict[str, Any] = {  # noqa: RUF012 - a constant
        "type": "object",
        "properties": {"name": {"type": "string", "description": "The skill's name."}},
        "required": ["name"],
    }

    def __init__(self, spawner: Any, place: Any, skills: Sequence[Skill]) -> None:
        super().__init__(spawner, place)
        self._skills = {skill.name: skill for skill in skills}

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        try:
            name = checking.check(self.parameters, arguments)["name"]
        except checking.ArgumentError as error:
            return ToolResult(str(error), True, {"error": "arguments"})
        skill = self._skills.get(name)
        if skill is None:
            return ToolResult(f"there is no skill {name!r}; there are: {', '.join(self._skills)}", True)
        return await self.work({"name": name, "path": skill.path})
