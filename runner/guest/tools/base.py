"""What a tool is, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.guest.spawn.command import HOME, Identity

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ToolResult:
    """The answer to one call."""

    output: str
    """What the model reads."""
    is_error: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    """For the record: `exit`, `signal`, sizes, what was cut. JSON."""


class Tool(Protocol):
    """One tool, as the model is told it and as the loop calls it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of an object."""
    changing: bool
    """Whether it may change anything, and so is asked about without `yolo`."""

    async def run(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Does it. Wrong arguments and failures are results with `is_error`; cancelling ends all that it started."""


@dataclass(frozen=True)
class Place:
    """Where and as whom the tools act.

    Args:
        workspace: absolute path; relative paths are meant from here.
        owner: the tool identity.
        environment: the whole environment (`environment_for`).
    """

    workspace: str
    owner: Identity
    environment: Mapping[str, str]


def environment_for(
    owner: Identity, workspace: str, image: Mapping[str, str], added: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The tools' environment: made for nobody at the keyboard. Nothing of the guest's own gets in.

    Args:
        image: the variables that the image sets for its programs (`PATH`, `JAVA_HOME`, …).
        added: what the kit and the user add; wins over all.
    """
    environment = {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        **image,
        "HOME": HOME,
        "USER": owner.name or str(owner.uid),
        "LOGNAME": owner.name or str(owner.uid),
        "SHELL": "/bin/bash",
        "PWD": workspace,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "true",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "MANPAGER": "cat",
        "SYSTEMD_PAGER": "cat",
        "EDITOR": "true",
        "VISUAL": "true",
        "GIT_EDITOR": "true",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
        "NPM_CONFIG_YES": "true",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": workspace,
    }
    if owner.uid == 0:
        environment["TAR_OPTIONS"] = "--no-same-owner"  # root unpacks with foreign owners, and may not give files away
    environment.update(added or {})
    return environment
