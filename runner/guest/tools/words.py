"""How a command ended and what it printed, in words for the model."""

from __future__ import annotations

import signal
from typing import Any

from runner.guest.spawn.command import Captured, Exit, Result


def ending(end: Exit, timed_out: bool = False, timeout: float = 0) -> str:
    """How it ended, empty for plain success. Names an end it does not know as that."""
    parts = []
    if timed_out:
        parts.append(f"timed out after {timeout:g} s and was ended with everything it started")
    elif end.error:
        parts.append(f"could not be run: {end.error}")
    if end.oom:
        parts.append("out of memory: the kernel killed a process of it")
    if not timed_out and not end.error:
        if end.signal is not None:
            name = _signal_name(end.signal)
            if end.killed:
                parts.append("was ended before it finished")
            elif end.signal == signal.SIGKILL and not end.oom:
                parts.append(
                    f"was killed by {name}, not by us" + ("" if end.oom_counted else ": perhaps out of memory")
                )
            elif not end.oom or end.signal != signal.SIGKILL:
                parts.append(f"was ended by {name}")
        elif end.code is None:
            parts.append("ended, how is not known")
        elif end.code != 0:
            parts.append(f"exit code {end.code}" + _code_meaning(end))
    if end.ended and not end.killed:
        one = end.ended == 1
        parts.append(f"{end.ended} background process{'' if one else 'es'} {'was' if one else 'were'} ended")
    if end.stuck:
        parts.append(f"{end.stuck} could not be ended: the kernel holds them")
    return "; ".join(parts)


def _code_meaning(end: Exit) -> str:
    if end.oom or end.code is None or not 128 < end.code < 128 + signal.NSIG:
        return ""
    return f" (a process of it was ended by {_signal_name(end.code - 128)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shown(stream: Captured) -> str:
    """The text with what was cut told in its place. NUL is shown as U+2400, which every model server accepts."""
    head, tail = stream.parts()
    if not stream.truncated:
        return clean(head)
    missing = stream.size - len(stream.data)
    note = f"[… {missing:,} of {stream.size:,} bytes left out here"
    if stream.path:
        note += f"; the whole output is in {stream.path}"
        if stream.kept < stream.size:
            note += " up to byte " + f"{stream.kept:,}"
    return clean(head) + ("" if head.endswith("\n") else "\n") + note + " …]\n" + clean(tail)


def clean(text: str) -> str:
    return text.replace("\0", "\u2400")


def record(result: Result) -> dict[str, Any]:
    """The same for the record."""
    end = result.exit
    data: dict[str, Any] = {"exit": end.code, "ms": round(result.seconds * 1000, 1)}
    if end.signal is not None:
        data["signal"] = end.signal
    for key in ("error", "oom", "ended", "stuck"):
        if value := getattr(end, key):
            data[key] = value
    if result.timed_out:
        data["timed_out"] = True
    for name, stream in (("stdout", result.stdout), ("stderr", result.stderr)):
        data[name] = {"size": stream.size}
        if stream.truncated:
            data[name] |= {"truncated": True, "shown": len(stream.data), "path": stream.path, "kept": stream.kept}
    return data
