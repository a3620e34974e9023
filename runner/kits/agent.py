"""`agent.yaml`: which model, which tools, which hooks.

Read and checked on the host, before anything starts. What the guest gets (`runner.wire.agent.Agent`) holds decisions
only: the provider's defaults are filled in, durations are seconds, every hook has a name and an identity.

An unknown key is an error, because a misspelt one would silently not count. A key that is known and not built yet is
taken with one warning that names it, so that a configuration written for a later version still runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from runner.errors import ConfigError
from runner.kits import hooks
from runner.kits.checking import Problem, check, duration, lines_of, nearest, one_of, read
from runner.kits.mcp import McpSpec, check_name
from runner.wire.agent import Agent, Hook
from runner.wire.mcp import McpServer

FILE_NAME = "agent.yaml"

HOST_NAME = "host.docker.internal"
"""The host, as a container on a bridge network reaches it."""

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class Provider:
    """A kind of model server and where it usually listens."""

    base_url: str
    fallback: str = ""
    key: str = ""
    """Variable of the host's environment that holds the key; it never enters the container."""
    title: str = ""

    @property
    def port(self) -> int | None:
        return urlsplit(self.base_url).port


def _local(title: str, port: int, path: str = "/v1") -> Provider:
    return Provider(f"http://127.0.0.1:{port}{path}", f"http://{HOST_NAME}:{port}{path}", title=title)


PROVIDERS: dict[str, Provider] = {
    "llmman": _local("llmman", 17434),
    "ollama": _local("Ollama", 11434),
    "llamacpp": _local("llama.cpp", 8080),
    "dmr": _local("Docker Model Runner", 12434, "/engines/v1"),
    "openai": Provider("https://api.openai.com/v1", key="OPENAI_API_KEY", title="OpenAI"),
    "demo": Provider("", title="scripted demo model"),
}
"""The demo model's port is a free one, so its URL is only known when it runs."""

TOOLS: dict[str, tuple[str, ...]] = {
    "bashTool": ("bash",),
    "editTools": ("read_file", "write_file", "edit_file", "list_files", "search"),
    "planTool": ("plan",),
    "fetchContentTool": ("fetch_content",),
    "askUserTool": ("ask_user",),
}
"""Which tools a key switches on or off. The guest offers `fetch_content` only where anything may leave the sandbox,
`ask_user` only where there is a person."""

NOT_BUILT = (
    "mmConfigs",
    "lsp",
    "tui",
    "acp",
    "sessions",
)
"""Keys that are read, checked and told to the guest, and that nothing acts on yet."""

_RESERVED = ("model", "messages", "tools", "tool_choice", "stream", "stream_options", "n", "response_format")
"""Keys of a request that are the agent loop's own."""

_SAMPLING: dict[str, tuple[type, float, float]] = {
    "temperature": (float, 0, 10),
    "top_p": (float, 0, 1),
    "top_k": (int, -1, 1_000_000),
    "min_p": (float, 0, 1),
    "typical_p": (float, 0, 1),
    "max_tokens": (int, 1, 100_000_000),
    "max_completion_tokens": (int, 1, 100_000_000),
    "presence_penalty": (float, -10, 10),
    "frequency_penalty": (float, -10, 10),
    "repeat_penalty": (float, 0, 10),
    "repetition_penalty": (float, 0, 10),
    "seed": (int, -(2**63), 2**63),
    "parallel_tool_calls": (bool, 0, 1),
}
"""Keys whose type and range are known. Others go to the server as they are, since every server has its own, unless
they are so near to one of these that they are a slip."""

_A_SLIP = 0.85
"""`temprature` is this near to `temperature`; `top_a` and `stop`, which some servers know, are not to `top_p`."""

_NOTHING: Mapping[str, str] = {}

_RULE = re.compile(r"[^()\s]+(?:\(.*\))?", re.DOTALL)
"""One entry of `consent`; `runner.guest.consent` reads it."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _url(value: str) -> str:
    text = value.strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Problem(f"{value!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Problem(f"{value!r} is not a URL; allowed: http://HOST[:PORT]/PATH and https://…")
    if parts.username is not None or parts.password is not None:
        raise Problem("a URL here holds no user or password: keys stay in the host's environment")
    if parts.query or parts.fragment:
        raise Problem(f"{value!r} has a query or fragment, which would be lost")
    if any(c.isspace() or ord(c) < 33 for c in text):
        raise Problem(f"{value!r} holds a space or control character")
    return urlunsplit(parts).rstrip("/")


def _sampling(value: dict[str, Any]) -> dict[str, Any]:
    for key, item in value.items():
        if key in _RESERVED:
            raise Problem(f"`{key}` is set by the agent loop itself")
        if key not in _SAMPLING:
            if near := nearest(key, _SAMPLING, likeness=_A_SLIP):
                raise Problem(f"unknown key {key!r}{near}")
            if not hooks.finite(item):
                raise Problem(f"`{key}`: {item!r} cannot be said in JSON")
            continue
        kind, low, high = _SAMPLING[key]
        fits = isinstance(item, bool) if kind is bool else isinstance(item, (int, kind)) and not isinstance(item, bool)
        if not fits or not low <= item <= high:
            wanted = (
                "true or false" if kind is bool else f"a {'whole ' if kind is int else ''}number from {low} to {high}"
            )
            raise Problem(f"`{key}` must be {wanted}, not {item!r}")
    return value


def _json_object(value: dict[str, Any]) -> dict[str, Any]:
    if not hooks.finite(value):
        raise Problem("holds what JSON cannot say (a date, NaN, a key that is no text)")
    return value


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _size(value: object) -> object:
    if isinstance(value, bool):
        raise Problem(f"must be a whole number, not {value!r}")
    return value


def _trace(value: object) -> object:
    return {"enabled": value} if isinstance(value, bool) else value


def _rule(value: str) -> str:
    if not _RULE.fullmatch(value.strip()):
        raise Problem(f"{value!r} is not a rule; allowed: TOOL or TOOL(PATTERN), for example bash(git status*)")
    return value.strip()


Rule = Annotated[str, AfterValidator(_rule)]
Url = Annotated[str, AfterValidator(_url)]
Seconds = Annotated[float, BeforeValidator(duration)]
Positive = Annotated[int, BeforeValidator(_size), Field(ge=1)]
Limit = Annotated[int, BeforeValidator(_size), Field(ge=0)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json_object)]


class ConsentSpec(BaseModel):
    """`consent`: rules that decide about tool calls without asking."""

    model_config = ConfigDict(extra="forbid", strict=True)

    allow: Annotated[list[Rule], BeforeValidator(_texts)] = []
    deny: Annotated[list[Rule], BeforeValidator(_texts)] = []


class TraceSpec(BaseModel):
    """`trace`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool = False


class AgentSpec(BaseModel):
    """`agent.yaml` as written. The docs' page *agent.yaml* describes every key."""

    model_config = ConfigDict(extra="forbid", strict=True)

    provider: Annotated[str, AfterValidator(one_of(tuple(PROVIDERS)))] = "llmman"
    model: str = ""
    """Empty: the first that the server lists."""
    base_url: Url | None = Field(None, alias="baseUrl")
    fallback: Url | None = None
    sampling: Annotated[dict[str, Any], AfterValidator(_sampling)] = {}
    first_token_timeout: Seconds = Field(180.0, alias="firstTokenTimeout")
    watchdog_timeout: Seconds = Field(180.0, alias="watchdogTimeout")
    max_turns: Positive = Field(50, alias="maxTurns")
    max_tool_calls: Limit = Field(0, alias="maxToolCalls")
    max_tokens: Limit = Field(0, alias="maxTokens")
    bash_tool: bool = Field(True, alias="bashTool")
    edit_tools: bool = Field(True, alias="editTools")
    plan_tool: bool = Field(True, alias="planTool")
    fetch_content_tool: bool = Field(True, alias="fetchContentTool")
    ask_user_tool: bool = Field(True, alias="askUserTool")
    skills_dir: Annotated[list[str], BeforeValidator(_texts)] = Field([], alias="skillsDir")
    yolo: bool = True
    permissions: Annotated[str, AfterValidator(one_of(("ask",)))] | None = None
    agents_md: bool = Field(True, alias="agentsMd")
    context: Annotated[list[str], BeforeValidator(_texts)] = []
    context_window: Positive | None = Field(None, alias="contextWindow")
    parallel_tools: bool = Field(False, alias="parallelTools")
    consent: ConsentSpec = ConsentSpec()
    trace: Annotated[TraceSpec, BeforeValidator(_trace)] = TraceSpec()
    structured_output: JsonObject | None = Field(None, alias="structuredOutput")
    system: str = ""
    hooks: Any = None
    sessions: Any = None
    mcp: dict[Annotated[str, AfterValidator(check_name)], McpSpec] = {}
    mm_configs: Any = Field(None, alias="mmConfigs")
    lsp: Any = None
    tui: Any = None
    acp: Any = None


@dataclass(frozen=True)
class AgentFile:
    """A checked `agent.yaml`, or the default agent of a kit that has none."""

    spec: AgentSpec
    hooks: Mapping[str, Sequence[hooks.HookSpec]] = field(default_factory=dict)
    path: Path | None = None
    """None for a default agent."""
    warnings: tuple[str, ...] = ()
    """One line each, for the banner."""
    yolo: bool = True
    """After `permissions` and `AGENT_YOLO`."""
    trace: bool = False
    """After `AGENT_TRACE`."""

    @property
    def provider(self) -> Provider:
        return PROVIDERS[self.spec.provider]

    @property
    def urls(self) -> tuple[str, ...]:
        """The model server's URLs in the order they are tried. Empty for the demo model until it runs."""
        spec = self.spec
        base = spec.base_url or self.provider.base_url
        fallback = spec.fallback
        if fallback is None:
            # A server named on the loopback is, from a bridge network, the same port of the host.
            fallback = self.provider.fallback if not spec.base_url else _on_host(base)
        return tuple(dict.fromkeys(url for url in (base, fallback) if url))

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the built-in tools that are on."""
        written = self.spec.model_dump(by_alias=True)
        return tuple(name for key, names in TOOLS.items() if written[key] for name in names)

    @property
    def mcp(self) -> tuple[McpServer, ...]:
        """The MCP servers, which the host speaks to."""
        return tuple(spec.server(name) for name, spec in self.spec.mcp.items())

    def to_wire(
        self,
        *,
        kit_hooks: Sequence[Hook] = (),
        cli_hooks: Sequence[Hook] = (),
        policy_hooks: Sequence[Hook] = (),
        urls: Sequence[str] = (),
        model: str = "",
        provider: str = "",
        yolo: bool | None = None,
    ) -> Agent:
        """What the guest is told.

        Args:
            kit_hooks: hooks that mixins bring; they run first.
            cli_hooks: hooks of `--hook`; they run after the agent's.
            policy_hooks: hooks that a policy file requires; they run last, so that they see what will really happen.
            urls: in place of the file's, for the demo model and for tests.
            model: in place of the file's.
            provider: in place of the file's, with `--demo`.
            yolo: in place of the file's, for a command line flag.
        """
        spec = self.spec
        own = hooks.to_wire(self.hooks, source="agent")
        return Agent(
            provider=provider or spec.provider,
            model=model or spec.model,
            urls=tuple(url.rstrip("/") for url in urls) or self.urls,
            sampling=dict(spec.sampling),
            first_token_timeout=spec.first_token_timeout,
            watchdog_timeout=spec.watchdog_timeout,
            max_turns=spec.max_turns,
            max_tool_calls=spec.max_tool_calls,
            max_tokens=spec.max_tokens,
            yolo=self.yolo if yolo is None else yolo,
            tools=self.tools,
            hooks=hooks.chain(kit_hooks, own, cli_hooks, policy_hooks),
            system=spec.system,
            agents_md=spec.agents_md,
            context=tuple(spec.context),
            context_window=spec.context_window or 0,
            parallel_tools=spec.parallel_tools,
            structured_output=spec.structured_output,
            trace=self.trace,
            extra={
                key: value
                for key, value in (
                    ("consent", spec.consent.model_dump(exclude_defaults=True)),
                    ("skills_dir", spec.skills_dir),
                )
                if value
            },
        )


def load(path: Path, environ: Mapping[str, str] = _NOTHING) -> AgentFile:
    """Reads and checks `agent.yaml`.

    Args:
        path: the file.
        environ: where `AGENT_YOLO` and `AGENT_TRACE` are looked up.

    Raises:
        ConfigError: with the file and the place.
    """
    document = read(path)
    with lines_of(document):
        return _agent({key: value for key, value in document.data.items() if value is not None}, path, environ)


def default_agent(environ: Mapping[str, str] = _NOTHING) -> AgentFile:
    """The agent of a kit that has only a `spec.yaml`: llmman, the first listed model, no hooks."""
    agent = _agent({}, None, environ)
    said = "no agent.yaml: a default agent is used (provider llmman, the first model it lists)"
    return AgentFile(agent.spec, warnings=(said, *agent.warnings), yolo=agent.yolo, trace=agent.trace)


def load_folder(folder: Path, environ: Mapping[str, str] = _NOTHING) -> AgentFile:
    """The kit folder's `agent.yaml`, or the default agent where there is none."""
    path = folder / FILE_NAME
    return load(path, environ) if path.exists() or path.is_symlink() else default_agent(environ)


def _agent(document: dict[str, Any], path: Path | None, environ: Mapping[str, str]) -> AgentFile:
    where = str(path or FILE_NAME)
    spec = check(AgentSpec, document, where=where)
    specs = hooks.check_hooks(document.get("hooks"), where=where)
    chain = hooks.to_wire(specs, source=where)  # names clash here, not when the session starts
    warnings = [
        f"{where}: `{key}` is not built yet: it is read and has no effect" for key in NOT_BUILT if document.get(key)
    ]
    warnings += hooks.warnings(chain, where=where)
    yolo = spec.yolo
    if spec.permissions:
        warnings.append(f"{where}: `permissions: ask` is deprecated: write `yolo: false`")
        yolo = False
    if spec.structured_output is not None:
        from runner.kits.answer_schema import Schema

        Schema(spec.structured_output, f"{where}: structuredOutput")
    trace = spec.trace.enabled
    if (value := _switch(environ, "AGENT_YOLO")) is not None:
        yolo = value
    if (value := _switch(environ, "AGENT_TRACE")) is not None:
        trace = value
    return AgentFile(spec, specs, path, tuple(warnings), yolo, trace)


def _switch(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").strip().lower()
    if not text:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f"{environ[name]!r} is not allowed; allowed: 1, true, yes, on, 0, false, no, off", place=name)


def _on_host(url: str) -> str:
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(SplitResult(parts.scheme, HOST_NAME + port, parts.path, "", ""))


def foreign_model_urls(agent: AgentFile) -> list[str]:
    """The URLs of `agent` that need the grant `model-url`, in the order they are tried.

    A kit must not choose where prompts go. The host's own loopback and `host.docker.internal`, on the port of a known
    provider, pass; anything else, a hosted service too, is for the user to grant.
    """
    ports = {provider.port for provider in PROVIDERS.values() if provider.port}
    trusted = LOOPBACK | {HOST_NAME}
    return [
        url
        for url in agent.urls
        if (parts := urlsplit(url)).hostname not in trusted or parts.scheme != "http" or parts.port not in ports
    ]


def host_hooks(agent: AgentFile) -> list[str]:
    """Names of the hooks with `where: host`, which need the grant `host-hooks`."""
    return [hook.name for hook in hooks.to_wire(agent.hooks, source="agent") if hook.where == "host"]
