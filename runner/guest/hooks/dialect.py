"""What a hook is told, in our names or in those of another agent.

A guard written for another agent asks for *its* names: one that looks for `Bash` and gets `bash` would allow
everything. So a dialect is a table of events, tools and keys, used in both directions: what the hook reads, and the
input that it may send back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolNames:
    """One tool in another agent's words."""

    name: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Our key → theirs; a key that is not here keeps its name."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """Our key → how many of their units are one of ours."""


@dataclass(frozen=True)
class Dialect:
    """Another agent's names."""

    events: Mapping[str, str]
    """Our event → theirs. A hook under an event that is not here cannot use the dialect."""
    tools: Mapping[str, ToolNames]
    text_is_context: frozenset[str] = frozenset()
    """Our events in which plain text on stdout becomes context; in the others it is ignored. Without a dialect it is a
    failure."""

    def tool_name(self, name: str) -> str:
        """A tool that the table does not know, such as an MCP server's, keeps its name."""
        return self.tools[name].name if name in self.tools else name

    def to_theirs(self, tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's input as the hook reads it."""
        names = self.tools.get(tool, _SAME)
        return {names.keys.get(key, key): _scaled(value, names.scale.get(key, 1)) for key, value in given.items()}

    def to_ours(self, tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's input as the hook sent it back."""
        names = self.tools.get(tool, _SAME)
        back = {theirs: ours for ours, theirs in names.keys.items()}
        ours = {back.get(key, key): value for key, value in given.items()}
        return {key: _scaled(value, 1 / names.scale.get(key, 1)) for key, value in ours.items()}


_SAME = ToolNames("")


def _scaled(value: Any, factor: float) -> Any:
    if factor == 1 or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    scaled = value * factor
    return int(scaled) if scaled == int(scaled) else scaled


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
        "read_file": ToolNames("Read", {"path": "file_path"}),
        "write_file": ToolNames("Write", {"path": "file_path"}),
        "edit_file": ToolNames(
            "Edit",
            {
                "path": "file_path",
                "old": "old_string",
                "new": "new_string",
                "old_text": "old_string",
                "new_text": "new_string",
                "all": "replace_all",
            },
        ),
        "list_files": ToolNames("Glob"),
        "search": ToolNames("Grep"),
        "plan": ToolNames("TodoWrite"),
        "ask_user": ToolNames("AskUserQuestion"),
        "fetch_content": ToolNames("WebFetch"),
        "read_skill": ToolNames("Skill"),
    },
    text_is_context=frozenset({"preGeneration", "sessionStart"}),
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
        common["tool_input"] = CLAUDE.to_theirs(tool["name"], tool["input"])
        common["tool_use_id"] = tool["id"]
    match event:
        case "preGeneration":
            common["prompt"] = data["prompt"]
        case "postToolCall":
            common["tool_response"] = _response(data)
        case "sessionStart":
            common |= {"source": "startup", "model": model}
        case "sessionEnd":
            common["reason"] = "other"
        case "stop":
            common |= {"stop_hook_active": data["pushed"] > 0, "last_assistant_message": data["answer"]}
    return common


def _response(data: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's answer in the shape that hooks look into: `stdout` for a shell, `content` and `success` otherwise."""
    output, is_error = data["output"], data["isError"]
    if data["tool"]["name"] == "bash":
        return {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "is_error": is_error}
    response: dict[str, Any] = {"content": output, "success": not is_error, "is_error": is_error}
    path = data["tool"]["input"].get("path")
    if isinstance(path, str):
        response["filePath"] = path
    return response
