"""The decision log: one entry for each request that reached the gateway, allowed or not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self


@dataclass
class Entry:
    """One request: what was decided, and what then went through."""

    time: str
    """When it was decided: UTC, RFC 3339, milliseconds."""
    host: str
    port: int
    method: str
    """`CONNECT`, or the method of a plain HTTP request. The path is not kept: it may hold secrets."""
    outcome: str
    """`allowed`, `denied`, or `failed` (allowed, but the connection did not come to be)."""
    rule: str
    source: str
    reason: str = ""
    address: str = ""
    """The address that was checked and connected to."""
    via: str = ""
    """The company's proxy that it went through; the addresses were then that proxy's to choose."""
    sent: int = 0
    """Bytes from the sandbox to the server."""
    received: int = 0
    """Bytes from the server to the sandbox."""
    seconds: float = 0.0
    call: str = ""
    """The id of the tool call that was running."""
    credential: str = ""
    """The service whose credential was set on it."""


Sink = Callable[[dict[str, object]], None]
"""Takes an entry as JSON; must not block."""


def now() -> str:
    """The time as the record writes it."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


class DecisionLog:
    """A file of entries, one JSON line each, and sinks beside it.

    Args:
        path: None for no file. It is made readable by its owner only.
        sinks: each gets every entry.
    """

    def __init__(self, path: Path | None = None, *sinks: Sink) -> None:
        self._file: IO[str] | None = None
        self._sinks = sinks
        if path is not None:
            path.touch(mode=0o600, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1)

    def __call__(self, entry: Entry) -> None:
        """Writes an entry down."""
        document: dict[str, object] = asdict(entry)
        if self._file is not None:
            self._file.write(json.dumps(document, ensure_ascii=True) + "\n")
        for sink in self._sinks:
            sink(document)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_log(path: Path) -> Iterator[Entry]:
    """The entries of a decision log; a last line that was cut off is left out."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield Entry(**json.loads(line))


def learned(entries: Iterable[Entry]) -> list[str]:
    """The shortest allow list under which the requests of a `--learn` run would pass again, sorted."""
    places = {(entry.host, entry.port) for entry in entries if entry.outcome != "denied"}
    return sorted(_rule(host, port) for host, port in places)


def _rule(host: str, port: int) -> str:
    if port == 443:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
