"""`trace`: every request to the model server and its answer, as files in the session's folder.

    trace/000001-request.json    what was sent, without the key, which is added after this
    trace/000001-answer.txt      what came, as it came: a stream of events, or a document
    trace/index.jsonl            one line each: number, URL, status, milliseconds, error

Everything passes the redactor of the record first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.session.record import Record
from runner.session.state import private
from runner.wire.messages import Trace
from runner.wire.mux import Mux, StreamReset

FOLDER = "trace"
MAX_EXCHANGE = 64 * 1024 * 1024 + 4096
"""Bytes of one request and its answer."""
MAX_TOTAL = 1024 * 1024 * 1024
"""Bytes of one session's traces; after that no more are kept, which is told once."""

Say = Callable[[str, str], None]


class Traces:
    """Writes the files.

    Args:
        record: the session's record; the files lie in its folder, and its redactor is used.
        say: takes notices.
    """

    def __init__(self, record: Record, say: Say) -> None:
        self._record = record
        self._say = say
        self._number = 0
        self._total = 0
        self._full = False

    async def take(self, message: Trace, mux: Mux[Any]) -> None:
        """Writes one exchange. A disk that refuses ends the tracing and nothing else."""
        stream = mux.accept(message.channel)
        stream.close()
        if self._full:
            stream.reset("no more traces")
            return
        self._number += 1
        number = self._number
        try:
            data = await stream.read_all(MAX_EXCHANGE)
        except (StreamReset, ValueError):
            return
        self._total += len(data)
        asked, answer = data[: max(message.request_bytes, 0)], data[max(message.request_bytes, 0) :]
        line = {
            "number": number,
            "method": message.method,
            "url": message.url,
            "status": message.status,
            "ms": message.ms,
            "request_bytes": len(asked),
            "answer_bytes": len(answer),
            "error": message.error,
        }
        try:
            folder = private(self._record.folder / FOLDER)
            if asked:
                self._write(folder / f"{number:06d}-request.json", asked)
            self._write(folder / f"{number:06d}-answer.txt", answer)
            self._write(folder / "index.jsonl", json.dumps(line).encode() + b"\n")
        except OSError as error:
            self._stop(f"the trace cannot be written: {error.strerror}")
        if self._total > MAX_TOTAL:
            self._stop(f"the traces of this session are over {MAX_TOTAL // 1024**2} MiB; no more are kept")

    def _write(self, path: Path, data: bytes) -> None:
        text = self._record.redact(data.decode("utf-8", "replace"))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8", "replace"))

    def _stop(self, why: str) -> None:
        if not self._full:
            self._full = True
            self._say("warning", why)
