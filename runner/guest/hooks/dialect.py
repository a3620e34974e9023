"""What a hook is told, in our names or in those of another agent.

A guard written for another agent asks for *its* names: one that looks for `Bash` and gets `bash` would allow
everything. So a dialect is a table of events, tools and keys, used in both directions: what the hook reads, and the
input that it may send back.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.guest.spawn.command import HOME

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class ToolNames:
    """One tool in another agent's words."""

    name: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Our key → theirs; a key that is not here keeps its name."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """Our key → how many of their units are one of ours."""
    paths: frozenset[str] = frozenset()
    """Our keys whose values are always absolute paths there."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Their key → what stands there when our call leaves it out: a guard of theirs reads it without asking."""
    convert: Mapping[str, tuple[Convert, Convert]] = field(default_factory=dict)
    """Our key → how its value becomes theirs, and comes back."""


@dataclass(frozen=True)
class Dialect:
    """Another agent's names."""

    events: Mapping[str, str]
    """Our event → theirs. A hook under an event that is not here cannot use the dialect."""
    tools: Mapping[str, ToolNames]
    text_is_context: frozenset[str] = frozenset()
    """Our events in which plain text on stdout becomes context; in the others it is ignored. Without a dialect it is a
    failure."""
    end_ends_the_turn: bool = False
    """`continue: false` before a call does not only deny it: nothing more happens in the turn."""

    def tool_name(self, name: str) -> str:
        """A tool that the table does not know, such as an MCP server's, keeps its name."""
        return self.tools[name].name if name in self.tools else name

    def to_theirs(self, tool: str, given: Mapping[str, Any], cwd: str) -> dict[str, Any]:
        """A tool's input as the hook reads it."""
        names = self.tools.get(tool, _SAME)
        theirs = dict(names.defaults)
        for key, value in given.items():
            if key in names.convert:
                value = names.convert[key][0](value)
            elif key in names.paths:
                value = absolute(value, cwd)
            theirs[names.keys.get(key, key)] = _scaled(value, names.scale.get(key, 1))
        return theirs

    def to_ours(self, tool: str, given: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's input as the hook sent it back.

        Args:
            asked: the input that the hook was told, in our names: what was added for the hook's sake is taken out.
        """
        names = self.tools.get(tool, _SAME)
        back = {theirs: ours for ours, theirs in names.keys.items()}
        ours = {}
        for key, value in given.items():
            our = back.get(key, key)
            if key in names.defaults and our not in asked and value == names.defaults[key]:
                continue
            if our in names.convert:
                value = names.convert[our][1](value)
            ours[our] = _scaled(value, 1 / names.scale.get(our, 1))
        return ours


_SAME = ToolNames("")


def absolute(path: Any, cwd: str) -> Any:
    """A path as an absolute one, `..` left as it is: folding it would change where a link leads."""
    if not isinstance(path, str) or not path:
        return path
    if path == "~" or path.startswith("~/"):
        path = HOME + path[1:]
    return path if path.startswith("/") else posixpath.join(cwd, path.removeprefix("./"))


def _scaled(value: Any, factor: float) -> Any:
    if factor == 1 or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    scaled = value * factor
    return int(scaled) if scaled == int(scaled) else scaled


def _todos(steps: Any) -> Any:
    """A plan's steps as Claude Code's todos."""
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return steps
    states = {"done": "completed"}
    return [
        {
            "content": step.get("step", ""),
            "status": states.get(str(step.get("status")), step.get("status")),
            "activeForm": step.get("step", ""),
        }
        for step in steps
    ]


def _steps(todos: Any) -> Any:
    if not isinstance(todos, list) or not all(isinstance(todo, dict) for todo in todos):
        return todos
    states = {"completed": "done"}
    return [
        {"step": todo.get("content", ""), "status": states.get(str(todo.get("status")), todo.get("status"))}
        for todo in todos
    ]


CLAUDE = Dialect(
    events={
        "sessionStart": "SessionStart",
        "sessionEnd": "SessionEnd",
        "preGeneration": "UserPromptSubmit",
        "preToolCall": "PreToolUse",
        "permissionRequest": "PermissionRequest",
        "postToolCall": "PostToolUse",
        "stop": "Stop",
    },
    tools={
        "bash": ToolNames("Bash", {"background": "run_in_background"}, {"timeout": 1000}),
        "read_file": ToolNames("Read", {"path": "file_path"}, paths=frozenset({"path"})),
        "write_file": ToolNames("Write", {"path": "file_path"}, paths=frozenset({"path"})),
        "edit_file": ToolNames(
            "Edit",
            {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"},
            paths=frozenset({"path"}),
            defaults={"replace_all": False},
        ),
        "list_files": ToolNames("Glob", paths=frozenset({"path"}), defaults={"pattern": "*"}),
        "search": ToolNames("Grep", {"ignore_case": "-i"}, paths=frozenset({"path"})),
        "plan": ToolNames("TodoWrite", {"steps": "todos"}, convert={"steps": (_todos, _steps)}),
        "ask_user": ToolNames("AskUserQuestion"),
        "fetch_content": ToolNames("WebFetch"),
        "read_skill": ToolNames("Skill"),
    },
    text_is_context=frozenset({"preGeneration", "sessionStart"}),
    end_ends_the_turn=True,
)

DIALECTS: Mapping[str, Dialect] = {"claude": CLAUDE}


def payload(dialect: str, event: str, data: Mapping[str, Any], *, session: str, cwd: str, model: str) -> dict[str, Any]:
    """The object a hook reads.

    Args:
        dialect: empty for our own names.
        event: our name of the event.
        data: the event's own fields in our names; a tool event's under `tool` with `id`, `name`, `input`.
    """
    if dialect:
        return _claude(event, data, session, cwd, model)
    return {"event": event, "cwd": cwd, "model": model, "session": session, **data}


def _claude(event: str, data: Mapping[str, Any], session: str, cwd: str, model: str) -> dict[str, Any]:
    common: dict[str, Any] = {
        "session_id": session,
        "transcript_path": "/dev/null",
        "cwd": cwd,
        "permission_mode": "default",
        "hook_event_name": CLAUDE.events[event],
    }
    tool = data.get("tool")
    if tool:
        common["tool_name"] = CLAUDE.tool_name(tool["name"])
        common["tool_input"] = CLAUDE.to_theirs(tool["name"], tool["input"], cwd)
        if tool["name"] == "bash" and isinstance(folder := tool["input"].get("cwd"), str) and folder:
            common["cwd"] = absolute(folder, cwd)  # there is no such key there: what a guard resolves starts here
        common["tool_use_id"] = tool["id"]
    match event:
        case "preGeneration":
            common["prompt"] = data["prompt"]
        case "postToolCall":
            common["tool_response"] = _response(data, cwd)
        case "sessionStart":
            common |= {"source": "startup", "model": model}
        case "sessionEnd":
            common["reason"] = "other"
        case "stop":
            common |= {"stop_hook_active": data["pushed"] > 0, "last_assistant_message": data["answer"]}
    return common


def _response(data: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """A tool's answer in the shape that hooks look into: `stdout` for a shell, `content` and `success` otherwise."""
    output, is_error = data["output"], data["isError"]
    if data["tool"]["name"] == "bash":
        return {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "is_error": is_error}
    response: dict[str, Any] = {"content": output, "success": not is_error, "is_error": is_error}
    path = data["tool"]["input"].get("path")
    if isinstance(path, str):
        response["filePath"] = absolute(path, cwd)
    return response
