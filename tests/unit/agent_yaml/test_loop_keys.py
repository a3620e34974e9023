"""Keys that the loop and the session act on: consent, MCP servers, structured output, traces, tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError
from runner.kits.agent import AgentFile, load
from runner.wire.mcp import McpServer


def read(folder: Path, text: str, **environ: str) -> AgentFile:
    path = folder / "agent.yaml"
    path.write_text(text)
    return load(path, environ)


def test_every_tool_is_on_and_each_key_switches_its_own_off(tmp_path: Path):
    tools = read(tmp_path, "provider: llmman\n").tools
    assert tools[:3] == ("bash", "read_file", "write_file")
    assert set(tools) > {"edit_file", "list_files", "search", "plan", "fetch_content", "ask_user"}
    off = "editTools: false\nplanTool: false\nfetchContentTool: false\naskUserTool: false\n"
    assert read(tmp_path, off).tools == ("bash",)


def test_what_acts_is_not_told_as_unbuilt(tmp_path: Path):
    text = """
editTools: true
skillsDir: team
context: [a.md]
trace: true
structuredOutput: {type: object}
consent: {allow: bash}
mcp: {t: {command: x}}
"""
    assert read(tmp_path, text).warnings == ()


def test_an_mcp_server_is_a_command_or_a_url(tmp_path: Path):
    text = """
mcp:
  local: {command: npx, args: [-y, server], env: {A: b}, allow: "list_*", deny: [list_all], timeout: 5s}
  web: {url: "https://example.org/mcp", headers: {X-Team: red}, startTimeout: 1m}
"""
    assert read(tmp_path, text).mcp == (
        McpServer("local", ("npx", "-y", "server"), {"A": "b"}, allow=("list_*",), deny=("list_all",), timeout=5.0),
        McpServer("web", url="https://example.org/mcp", headers={"X-Team": "red"}, start_timeout=60.0),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcp: {t: {}}", "needs either `command`"),
        ("mcp: {t: {command: x, url: 'http://a/'}}", "needs either `command`"),
        ("mcp: {t: {url: 'file:///etc/passwd'}}", "is not a URL"),
        ("mcp: {t: {url: 'https://user:pw@a/'}}", "is not a URL"),
        ("mcp: {t: {url: 'http://a/', args: [x]}}", "go with `command`"),
        ("mcp: {t: {command: x, headers: {A: b}}}", "go with `url`"),
        ('mcp: {t: {url: "http://a/", headers: {A: "b\\r\\nC: d"}}}', "is no header"),
        ("mcp: {t: {comand: x}}", "unknown key 'comand'; did you mean command?"),
        ("mcp: {t: {command: x, timeout: never}}", "is not a positive duration"),
        ("mcp: {a__b: {command: x}}", "is no name for a server"),
        ("mcp: {'': {command: x}}", "is no name for a server"),
        ("mcp: [x]", "must be a mapping"),
        ("consent: {allow: ['bash(']}", "is not a rule"),
        ("consent: {alow: [bash]}", "did you mean allow?"),
        ("consent: {deny: [1]}", "must be"),
        ("structuredOutput: {type: nothing}", "no JSON schema"),
        ("trace: {enabled: 1}", "must be true or false"),
        ("trace: sometimes", "must be a mapping"),
        ("askUserTool: maybe", "must be true or false"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert "agent.yaml" in str(error.value.place)


def test_a_trace_is_switched_on_in_three_ways(tmp_path: Path):
    assert read(tmp_path, "trace: true\n").trace
    assert read(tmp_path, "trace: {enabled: true}\n").trace
    assert read(tmp_path, "provider: llmman\n", AGENT_TRACE="1").trace
    assert not read(tmp_path, "trace: true\n", AGENT_TRACE="0").trace


def test_rules_reach_the_guest_and_servers_do_not(tmp_path: Path):
    """What a server is started with is the host's business."""
    agent = read(
        tmp_path, "consent: {allow: bash, deny: ['bash(rm *)']}\nmcp: {t: {command: x, env: {A: b}}}\n"
    ).to_wire()
    assert agent.extra == {"consent": {"allow": ["bash"], "deny": ["bash(rm *)"]}}
