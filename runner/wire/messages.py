"""The messages of channel 0. Each is a dataclass; on the wire it is a JSON object whose `type` names it.

Decoding checks what a peer sent: an unknown type, an unknown or missing field, or a value of another type is an
error. Nothing further on needs to doubt a message's shape. The host still trusts no *content* of the guest's.

Host to guest: Hello, Tools, Turn, Compact, Steer, Cancel, New, Reply, HttpHead, HttpFail, Exec, Signal, Resize,
               Forward, TryHook, HostHookDone, Shutdown
Guest to host: Ready, Event, Ask, Withdraw, Trace, HostHook, HookTried, HttpRequest, HttpAbort, Dial, Exited,
               TurnDone, Failed
Both ways:     Credit, Reset (about byte streams; the mux deals with them). The end of a byte stream is an empty
               frame on its own channel: a message would overtake the bytes before it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Union

from runner.wire.agent import Agent, Hook
from runner.wire.setup import KitSetup


class MessageError(Exception):
    """A message is not one of this wire's."""


# ---- byte streams, both ways ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Credit:
    """The receiver of a byte stream has consumed `bytes` more."""

    channel: int
    bytes: int


@dataclass(frozen=True)
class Reset:
    """One end gives the byte stream up, in both directions."""

    channel: int
    reason: str = ""


# ---- host to guest ----------------------------------------------------------------------------------------------


def workspace_mark(path: str) -> str:
    """What tells a folder from every other one of the same kernel's; the same on both sides of a mount."""
    found = os.stat(path)  # noqa: PTH116 - the guest starts without pathlib
    return f"{found.st_dev} {found.st_ino} {found.st_ctime_ns}"


@dataclass(frozen=True)
class Hello:
    """First message of the host.

    `snapshot` is the channel of a tar of the kit's folder (0: none), laid under `/run/sbx/config`. `workspace` is the
    folder in the container; `canary` is the name of a file that must be in it (empty: no check) with `canary_text`.
    `environment` is added to the tools' environment. `session` is the record's name. `history` are the messages of a
    resumed session. `setup` is what the kit does at start. `disk` and `disk_files` are what
    each folder of `volumes` may hold, in bytes and in files (0: no bound). `trust` are PEM certificates for the tools
    to trust beside the image's own, `truststore` the same for Java, in base64.
    """

    version: int
    session: str
    agent: Agent
    workspace: str
    snapshot: int = 0
    canary: str = ""
    canary_text: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    network: str = "none"
    interactive: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    today: str = ""
    trust: str = ""
    truststore: str = ""
    setup: KitSetup = field(default_factory=KitSetup)
    volumes: list[str] = field(default_factory=list)
    disk: int = 0
    disk_files: int = 0


@dataclass(frozen=True)
class Tools:
    """Tools that the host runs for the guest (of MCP servers): each a name, a description, a JSON schema.

    Sent between turns; replaces those of the message before it.
    """

    tools: list[dict[str, Any]]


@dataclass(frozen=True)
class Compact:
    """Make room in the conversation now. Answered, like a Turn, by a TurnDone of this id; only between turns."""

    id: int


@dataclass(frozen=True)
class Turn:
    """A user's question."""

    id: int
    prompt: str


@dataclass(frozen=True)
class Steer:
    """What a person typed while a turn runs."""

    text: str


@dataclass(frozen=True)
class Cancel:
    """End the turn that runs; the session goes on."""

    turn: int


@dataclass(frozen=True)
class New:
    """Forget the conversation and go on with `history`, usually an empty one. Only between turns.

    `session` is the record that what follows belongs to; empty: the same as before.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    session: str = ""


@dataclass(frozen=True)
class Reply:
    """The answer to an Ask."""

    id: int
    value: dict[str, Any]


@dataclass(frozen=True)
class HttpHead:
    """The model server's answer begins; `body` is the channel of its bytes."""

    id: int
    status: int
    headers: list[list[str]]
    body: int


@dataclass(frozen=True)
class HttpFail:
    """No answer: `reason` is one of `refused`, `unresolvable`, `connect-timeout`, `timeout`, `denied`, `broken`."""

    id: int
    reason: str
    message: str


@dataclass(frozen=True)
class Exec:
    """Start a command as U (`user: owner`) or another allowed identity. Channels of 0 mean /dev/null.

    With `tty`, `stdout` carries the terminal both programs share and `stderr` is 0.
    """

    id: int
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    user: str = "owner"
    tty: bool = False
    rows: int = 24
    columns: int = 80
    stdin: int = 0
    stdout: int = 0
    stderr: int = 0
    timeout: float = 0.0


@dataclass(frozen=True)
class Signal:
    """Send a signal to what an Exec started."""

    id: int
    number: int


@dataclass(frozen=True)
class Resize:
    """The window of an Exec with a terminal changed."""

    id: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Forward:
    """A client connected to a published port: join `channel` to `port` on the container's loopback.

    With `protocol` udp, `channel` carries one client's datagrams, each behind its length (2 bytes, big-endian).
    """

    channel: int
    port: int
    protocol: str = "tcp"


@dataclass(frozen=True)
class TryHook:
    """Run one hook as a turn would, outside of any turn: `sbx hook test`.

    `data` are the event's own fields, or with `exact` all that the hook reads.
    """

    id: int
    hook: Hook
    data: dict[str, Any]
    exact: bool = False


@dataclass(frozen=True)
class HostHookDone:
    """How a hook on the host ended; the guest reads its answer as it reads any other hook's."""

    id: int
    code: int | None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    size: int = 0
    timed_out: bool = False
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Shutdown:
    """End everything and exit."""


# ---- guest to host ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """First message of the guest, as soon as it can read: which wire it speaks, who owns the workspace, and by what
    that can be known again (`workspace_mark`)."""

    version: int
    program: str
    uid: int
    gid: int
    python: str
    workspace: str = ""


@dataclass(frozen=True)
class Event:
    """Something for the record and the front ends. `name` is dotted, `data` is JSON."""

    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """Something that the host answers with a Reply of the same id.

    For a person: `kind` is `consent` or `question`. For the host itself: `mcp` (call a tool of an MCP server),
    `schema` (is this text an answer as `structuredOutput` wants it), `recorded` (answered at once: messages are dealt
    with in their order, so the record has every event before it).
    """

    id: int
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class HostHook:
    """Run the hook of this name on the host. Only what the host itself knows by that name runs; `body` is its stdin."""

    id: int
    name: str
    body: int


@dataclass(frozen=True)
class HookTried:
    """What a TryHook came to."""

    id: int
    outcome: dict[str, Any]


@dataclass(frozen=True)
class Withdraw:
    """The guest no longer waits for the answer to an Ask."""

    id: int


@dataclass(frozen=True)
class Trace:
    """A request to the model server and its answer, for a file of the host's.

    `channel` carries the request's body (`request_bytes`), then the answer's.
    """

    channel: int
    method: str
    url: str
    status: int
    ms: float
    request_bytes: int
    error: str = ""


@dataclass(frozen=True)
class HttpRequest:
    """A request to the model server, which the host checks, adds the key to and sends. `body` 0: no body."""

    id: int
    method: str
    url: str
    headers: list[list[str]]
    body: int = 0


@dataclass(frozen=True)
class HttpAbort:
    """The guest no longer wants the answer: close the connection at once."""

    id: int


@dataclass(frozen=True)
class Dial:
    """A program in the container connected to the gateway's proxy; `channel` is its connection, both ways.

    `call` is the id of the tool call that was running, for the decision log, or empty.
    """

    channel: int
    service: str = "proxy"
    call: str = ""


@dataclass(frozen=True)
class Exited:
    """An Exec is over. `code` is None when a signal ended it or it never started (then `error` says why)."""

    id: int
    code: int | None
    signal: int | None = None
    error: str = ""
    oom: bool = False
    timed_out: bool = False
    ended: int = 0


@dataclass(frozen=True)
class TurnDone:
    """A turn is over. `status`: `completed`, `stopped` (by a hook), `failed`, `cancelled`.

    `reason` names why in one word of the record (`answer`, `hook`, `max-turns`, `model-error`, …), `error` in words.
    """

    turn: int
    status: str
    answer: str = ""
    reason: str = ""
    error: str = ""
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The guest cannot go on; it exits after this. `kind`: `config`, `workspace`, `version`, `refused` (by a hook),
    `startup`, `limit`, `internal`."""

    kind: str
    message: str


ToGuest = (
    (Hello | Tools | Turn | Compact | Steer | Cancel | New | Reply | HttpHead | HttpFail)
    | (Exec | Signal | Resize | Forward | Shutdown)
    | (TryHook | HostHookDone)
    | (Credit | Reset)
)
ToHost = (
    (Ready | Event | Ask | Withdraw | Trace | HttpRequest | HttpAbort | Dial | Exited | TurnDone | Failed)
    | (HostHook | HookTried)
    | (Credit | Reset)
)
Message = ToGuest | ToHost

_GUEST_READS: dict[str, type] = {t.__name__: t for t in typing.get_args(ToGuest)}
_HOST_READS: dict[str, type] = {t.__name__: t for t in typing.get_args(ToHost)}


def encode(message: Message) -> bytes:
    """The message as the payload of a control frame."""
    document = {"type": type(message).__name__, **_plain(message)}
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def decode_for_guest(payload: bytes) -> ToGuest:
    """A message that the host sent. Raises MessageError."""
    return typing.cast(ToGuest, _decode(payload, _GUEST_READS))


def decode_for_host(payload: bytes) -> ToHost:
    """A message that the guest sent. Raises MessageError."""
    return typing.cast(ToHost, _decode(payload, _HOST_READS))


def _plain(value: Any) -> dict[str, Any]:
    return {f.name: _plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _plain_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain(value)
    if isinstance(value, tuple):
        return [_plain_value(v) for v in value]
    return value


def _decode(payload: bytes, known: dict[str, type]) -> object:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"a control frame is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise MessageError("a control frame is not an object")
    name = document.pop("type", None)
    cls = known.get(name) if isinstance(name, str) else None
    if cls is None:
        raise MessageError(f"unknown message {str(name)[:80]!r}")
    return _build(cls, document, cls.__name__)


@functools.cache
def _shape(cls: type) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    required = frozenset(
        f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    )
    return {f.name: hints[f.name] for f in fields}, required


def _build(cls: type, document: dict[str, Any], where: str) -> Any:
    hints, required = _shape(cls)
    if unknown := document.keys() - hints.keys():
        raise MessageError(f"{where} has an unknown field {sorted(map(str, unknown))[0][:80]!r}")
    if missing := required - document.keys():
        raise MessageError(f"{where} lacks {sorted(missing)[0]!r}")
    return cls(**{key: _check(hints[key], value, f"{where}.{key}") for key, value in document.items()})


def _check(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in arguments:
            return None
        hint = next(a for a in arguments if a is not type(None))
        return _check(hint, value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, dict):
            return _build(hint, value, where)
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_check(arguments[0], v, where) for v in value)
    elif origin is list:
        if isinstance(value, list):
            return [_check(arguments[0], v, where) for v in value]
    elif origin is dict:
        if isinstance(value, dict):
            return {key: _check(arguments[1], v, where) for key, v in value.items()}
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise MessageError(f"{where} is too large a number") from None
    elif hint is bool:
        if isinstance(value, bool):
            return value
    elif isinstance(hint, type) and isinstance(value, hint) and not isinstance(value, bool):
        return value
    raise MessageError(f"{where} is {type(value).__name__}, not {getattr(hint, '__name__', hint)}")
