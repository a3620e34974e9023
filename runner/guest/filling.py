"""Fills a private workspace with the copy that the host sends, as U."""

from __future__ import annotations

import asyncio
import os

from runner.guest.spawn.command import Command
from runner.guest.spawn.spawner import Spawner, open_pipe
from runner.guest.tools.base import Place
from runner.wire.mux import Stream, StreamReset
from runner.wire.pipes import PipeTransport

RESET_WITHIN = 300.0
"""Seconds for making git's index."""
_KEPT = 4096


async def fill(stream: Stream, spawner: Spawner, place: Place) -> str:
    """Unpacks the tar. Returns what went wrong; empty when nothing did."""
    source, end = os.pipe2(os.O_CLOEXEC)
    errors, give_errors = open_pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    argv = ["tar", "-x", "-f", "-", "--no-same-owner", "-C", place.workspace]
    environment = {**place.environment, "LC_ALL": "C"}
    try:
        process = await spawner.start(
            Command(argv, environment, place.workspace, place.owner), stdin=source, stdout=null, stderr=give_errors
        )
    finally:
        for descriptor in (source, give_errors, null):
            os.close(descriptor)
    said = asyncio.create_task(_read(errors))
    pipe = PipeTransport(end, end)
    try:
        async for data in stream:
            await pipe.write(data)
        reason = ""
    except StreamReset as error:
        reason = str(error)
    except OSError:
        reason = "it was not taken to its end"
    finally:
        os.close(end)
    stream.close()
    ended = await process.wait()
    text = await said
    if ended.error or ended.code != 0 or reason:
        return ended.error or text.strip() or reason or f"tar ended with {ended.code}"
    return await _index(spawner, place)


async def _index(spawner: Spawner, place: Place) -> str:
    """Of a copied repository: the files are there, git's index of them is not."""
    if not await asyncio.to_thread(os.path.isdir, f"{place.workspace}/.git"):
        return ""
    result = await spawner.run(
        Command(["git", "reset", "-q"], place.environment, place.workspace, place.owner),
        timeout=RESET_WITHIN,
        limit=_KEPT,
    )
    # A repository without a commit has nothing to reset to.
    head = await spawner.run(
        Command(["git", "rev-parse", "-q", "--verify", "HEAD"], place.environment, place.workspace, place.owner),
        timeout=RESET_WITHIN,
        limit=_KEPT,
    )
    if result.exit.ok or not head.exit.ok:
        return ""
    return result.stderr.data.decode("utf-8", "replace").strip() or result.exit.error or "git reset failed"


async def _read(descriptor: int) -> str:
    pipe = PipeTransport(descriptor, descriptor)
    kept = b""
    try:
        while data := await pipe.read(_KEPT):
            kept = (kept + data)[-_KEPT:]
    finally:
        os.close(descriptor)
    return kept.decode("utf-8", "replace")
