"""Guards as people write them for Claude Code, from its public documentation and with nothing of ours in them.

Each is run twice on the same event: alone, fed what Claude Code documents as its input and judged by Claude Code's
documented rules; and by the chain with `dialect: claude`. Both must come to the same verdict.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.guest.hooks import ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUARDS = Path(__file__).parents[2] / "fixtures" / "claude_guards"


def alone(guard: Path, workspace: Path, event: dict[str, Any]) -> tuple[str, Any]:
    """Runs a guard by itself and reads it as Claude Code documents: (verdict, reason, context or new input)."""
    common = {"session_id": "s", "transcript_path": "/t", "cwd": str(workspace), "permission_mode": "default"}
    environment = {**os.environ, "CLAUDE_PROJECT_DIR": str(workspace)}
    done = subprocess.run(
        [str(guard)],
        input=json.dumps(common | event),
        capture_output=True,
        text=True,
        cwd=workspace,
        env=environment,
        timeout=60,
        check=False,
    )
    if done.returncode == 2:
        return "deny", done.stderr.strip()
    assert done.returncode == 0, done.stderr
    try:
        said = json.loads(done.stdout)
    except ValueError:
        text = done.stdout.strip()
        return ("context", text) if text and event["hook_event_name"] == "UserPromptSubmit" else ("continue", "")
    specific = said.get("hookSpecificOutput", {})
    if said.get("continue") is False:
        return "stop", said["stopReason"]
    if said.get("decision") == "block":
        return "deny", said["reason"]
    if specific.get("permissionDecision") == "deny":
        return "deny", specific["permissionDecisionReason"]
    if specific.get("permissionDecision") == "ask":
        return "ask", ""
    if "updatedInput" in specific:
        return "rewrite", specific["updatedInput"]
    return "continue", ""


@pytest.fixture
def guard(bench):
    def lay(name: str) -> Path:
        target = bench.config / name
        shutil.copy(GUARDS / name, target)
        return target

    return lay


TOOLS = [
    ("bash_command_validator.py", "bash", {"command": "grep -r x ."}, "Bash", {"command": "grep -r x ."}),
    ("bash_command_validator.py", "bash", {"command": "rg x"}, "Bash", {"command": "rg x"}),
    ("bash_command_validator.py", "jobs", {}, "jobs", {}),
    ("protect_files.sh", "write_file", {"path": "{w}/.env", "content": ""}, "Write", {"file_path": "{w}/.env"}),
    (
        "protect_files.sh",
        "edit_file",
        {"path": ".git/config", "old": "a", "new": "b"},
        "Edit",
        {"file_path": "{w}/.git/config"},
    ),
    (
        "protect_files.sh",
        "edit_file",
        {"path": "main.py", "old": "a", "new": "b"},
        "Edit",
        {"file_path": "{w}/main.py"},
    ),
    ("inside_project.py", "read_file", {"path": "notes.md"}, "Read", {"file_path": "{w}/notes.md"}),
    ("inside_project.py", "read_file", {"path": "../x"}, "Read", {"file_path": "{w}/../x"}),
    ("inside_project.py", "read_file", {"path": "/etc/passwd"}, "Read", {"file_path": "/etc/passwd"}),
    ("inside_project.py", "read_file", {"path": "~/.ssh/id"}, "Read", {"file_path": "/home/agent/.ssh/id"}),
    ("inside_project.py", "list_files", {}, "Glob", {"pattern": "*"}),
    ("inside_project.py", "search", {"pattern": "x", "path": "/"}, "Grep", {"pattern": "x", "path": "/"}),
    ("ask_before_network.sh", "bash", {"command": "curl x"}, "Bash", {"command": "curl x"}),
    ("ask_before_network.sh", "bash", {"command": "cat README"}, "Bash", {"command": "cat README"}),
    ("ask_before_network.sh", "bash", {"command": "ls"}, "Bash", {"command": "ls"}),
    ("dry_run.py", "bash", {"command": "npm publish"}, "Bash", {"command": "npm publish"}),
    (
        "dry_run.py",
        "bash",
        {"command": "npm publish", "timeout": 60},
        "Bash",
        {"command": "npm publish", "timeout": 60000},
    ),
    ("dry_run.py", "bash", {"command": "npm test"}, "Bash", {"command": "npm test"}),
    ("stop_everything.py", "bash", {"command": "make deploy"}, "Bash", {"command": "make deploy"}),
    ("stop_everything.py", "bash", {"command": "make"}, "Bash", {"command": "make"}),
]
"""Guard, our tool and input; Claude Code's tool, and of its input what the guard looks at."""


def filled(given: dict[str, Any], workspace: Path) -> dict[str, Any]:
    return {k: v.replace("{w}", str(workspace)) if isinstance(v, str) else v for k, v in given.items()}


@pytest.mark.parametrize(("name", "tool", "given", "their_tool", "their_input"), TOOLS)
async def test_the_same_verdict_before_a_tool(bench, guard, name, tool, given, their_tool, their_input):
    given, their_input = filled(given, bench.workspace), filled(their_input, bench.workspace)
    program = guard(name)
    event = {"hook_event_name": "PreToolUse", "tool_name": their_tool, "tool_input": their_input}
    expected, said = alone(program, bench.workspace, event)
    chain = bench.one("preToolCall", str(program), dialect="claude", on_error="fail", timeout=60.0)
    done = await chain.pre_tool_call(ToolCall("c1", tool, given))
    assert (done.denied is not None) is (expected in ("deny", "stop"))
    assert done.terminate is (expected == "stop")
    assert done.ask is (expected == "ask")
    if done.denied is not None:
        assert done.denied == said
    if expected == "rewrite":
        seconds = {"timeout": said["timeout"] / 1000} if "timeout" in said else {}
        assert done.input == {**said, **seconds}
    else:
        assert done.input == given


@pytest.mark.parametrize("prompt", ["my password: hunter2", "which files are here?"])
async def test_the_same_verdict_on_a_question(bench, guard, prompt):
    program = guard("prompt_check.py")
    event = {"hook_event_name": "UserPromptSubmit", "prompt": prompt}
    expected, said = alone(program, bench.workspace, event)
    chain = bench.one("preGeneration", str(program), dialect="claude", on_error="fail", timeout=60.0)
    done = await chain.pre_generation(prompt)
    assert (done.stopped is not None) is (expected == "deny")
    assert done.context == ((said,) if expected == "context" else ())
    if done.stopped:
        assert done.stopped.reason == said


@pytest.mark.parametrize("active", [False, True])
async def test_the_same_verdict_at_a_stop(bench, guard, active):
    program = guard("keep_going.py")
    expected, said = alone(program, bench.workspace, {"hook_event_name": "Stop", "stop_hook_active": active})
    chain = bench.one("stop", str(program), dialect="claude", on_error="fail", timeout=60.0)
    done = await chain.stop("done", int(active))
    assert done.reason == (said if expected == "deny" else "")


@pytest.mark.parametrize("matcher", ["Edit|Write", "edit_file|write_file", "^Edit$"])
async def test_a_matcher_finds_either_name_of_a_tool(bench, matcher):
    chain = bench.one("preToolCall", "exit 2", dialect="claude", matcher=matcher)
    call = ToolCall("c1", "edit_file", {"path": "a", "old": "b", "new": "c"})
    assert (await chain.pre_tool_call(call)).denied is not None


async def test_a_plan_is_their_list_of_todos_and_comes_back(bench):
    steps = [{"step": "read", "status": "done"}, {"step": "write", "status": "in_progress"}]
    reply = """python3 -c '
import json, sys
asked = json.load(sys.stdin)
given = asked["tool_input"]
assert asked["tool_name"] == "TodoWrite" and given["todos"][0]["status"] == "completed", asked
given["todos"][1]["content"] = "write it down"
print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": given}}))'"""
    chain = bench.one("preToolCall", reply, dialect="claude", on_error="fail", timeout=60.0)
    done = await chain.pre_tool_call(ToolCall("c1", "plan", {"steps": steps}))
    assert done.denied is None
    assert done.input == {"steps": [steps[0], {"step": "write it down", "status": "in_progress"}]}


async def test_a_command_in_another_folder_has_that_folder_as_its_cwd(bench, call):
    chain = bench.one("preToolCall", "jq -r .cwd >&2; exit 2", dialect="claude", timeout=60.0)
    done = await chain.pre_tool_call(call(command="ls", cwd="sub"))
    assert done.denied == f"{bench.workspace}/sub"
