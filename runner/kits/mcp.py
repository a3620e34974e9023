"""`mcp` of `agent.yaml`: servers of tools."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from runner.kits.checking import Problem, duration
from runner.wire.mcp import McpServer

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,30}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

Seconds = Annotated[float, BeforeValidator(duration)]


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value.strip())
    except ValueError as error:
        raise Problem(f"{value!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise Problem(f"{value!r} is not a URL; allowed: http://HOST[:PORT]/PATH and https://…, without user")
    return value.strip()


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or not text.isascii() or not text.isprintable():
            raise Problem(f"{name!r} is no header with a value of one line")
    return value


class McpSpec(BaseModel):
    """One server as written: `command` (with `args`) or `url`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command: Annotated[list[str], BeforeValidator(_texts)] = []
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: Annotated[str, AfterValidator(_url)] | None = None
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = {}
    allow: Annotated[list[str], BeforeValidator(_texts)] = []
    deny: Annotated[list[str], BeforeValidator(_texts)] = []
    timeout: Seconds = 60.0
    start_timeout: Seconds = Field(30.0, alias="startTimeout")

    @model_validator(mode="after")
    def _one_way(self) -> Any:
        if bool(self.command) == bool(self.url):
            raise Problem("needs either `command`, for a server in the sandbox, or `url`")
        if self.url and (self.args or self.env or self.cwd):
            raise Problem("`args`, `env` and `cwd` go with `command`")
        if self.command and self.headers:
            raise Problem("`headers` go with `url`")
        if any("\0" in text for text in [*self.command, *self.args, *self.env, *self.env.values(), self.cwd]):
            raise Problem("holds a NUL byte")
        return self

    def server(self, name: str) -> McpServer:
        """What the session is told."""
        return McpServer(
            name=name,
            argv=(*self.command, *self.args),
            env=dict(self.env),
            cwd=self.cwd,
            url=self.url or "",
            headers=dict(self.headers),
            allow=tuple(self.allow),
            deny=tuple(self.deny),
            timeout=self.timeout,
            start_timeout=self.start_timeout,
        )


def check_name(name: str) -> str:
    """A server's name, as it stands before its tools'. Raises Problem."""
    if not _NAME.fullmatch(name):
        raise Problem(f"{name!r} is no name for a server: letters, digits, - and single _, at most 31")
    return name
