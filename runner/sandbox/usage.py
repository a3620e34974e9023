"""What running sandboxes use, asked once; all at the same time, so that a wedged one holds up no other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from runner.engine import Engine
from runner.errors import SbxError
from runner.sandbox.listing import Listed
from runner.sandbox.profile import MIB

TIMEOUT = 10.0
"""Seconds for one sandbox; the engine itself looks twice, a second apart, to tell the processor's share."""
AT_ONCE = 16
COLUMNS = (
    ("name", "NAME"),
    ("cpu", "CPU %"),
    ("memory_mib", "MEM MiB"),
    ("limit_mib", "LIMIT MiB"),
    ("pids", "PROCESSES"),
    ("received", "RECEIVED"),
    ("sent", "SENT"),
    ("problem", "PROBLEM"),
)


@dataclass(frozen=True)
class Usage:
    """One sandbox's; `problem` says why there are no numbers."""

    name: str
    cpu: float = 0.0
    """Percent of one processor, over the last second."""
    memory_mib: float = 0.0
    """Without the page cache that could be given back."""
    limit_mib: float = 0.0
    pids: int = 0
    received: int = 0
    """Bytes over the engine's network; the gateway's are in the session's record."""
    sent: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


FIELDS = tuple(Usage.__dataclass_fields__)


def usage(engine: Engine, asked: Sequence[Listed]) -> list[Usage]:
    """In the order asked."""

    def one(listed: Listed) -> Usage:
        if not listed.running:
            return Usage(listed.name, problem=f"does not run ({listed.state})")
        path = f"/containers/{listed.container}/stats?stream=false"
        try:
            return read(listed.name, engine.get(path, doing="asking what the sandbox uses", timeout=TIMEOUT))
        except SbxError as error:
            return Usage(listed.name, problem=error.message)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, asked))


def read(name: str, document: dict[str, Any]) -> Usage:
    """The engine's numbers as `docker stats` shows them."""
    now, before = document.get("cpu_stats") or {}, document.get("precpu_stats") or {}
    busy = _number(now, "cpu_usage", "total_usage") - _number(before, "cpu_usage", "total_usage")
    whole = _number(now, "system_cpu_usage") - _number(before, "system_cpu_usage")
    cpus = _number(now, "online_cpus") or 1
    memory = document.get("memory_stats") or {}
    details = memory.get("stats") or {}
    cache = _number(details, "inactive_file") or _number(details, "total_inactive_file")
    networks = (document.get("networks") or {}).values()
    return Usage(
        name,
        cpu=round(busy / whole * cpus * 100, 1) if whole > 0 and busy > 0 else 0.0,
        memory_mib=round(max(_number(memory, "usage") - cache, 0) / MIB, 1),
        limit_mib=round(_number(memory, "limit") / MIB, 1),
        pids=int(_number(document, "pids_stats", "current")),
        received=int(sum(_number(n, "rx_bytes") for n in networks)),
        sent=int(sum(_number(n, "tx_bytes") for n in networks)),
    )


def _number(document: dict[str, Any], *keys: str) -> float:
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) else 0.0
