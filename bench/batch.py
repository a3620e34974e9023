"""Many runs at once, against what the engine needs for as many containers.

Prints, measured in turn in one run, medians and their ratio:

    batch    runs a second of `sbx batch`, LINES scripted lines at -j 8, against as many `docker run --rm IMAGE true`
    pool     from a line's start to its first model request, with a sandbox from the pool, against one `docker run`
    ls       `sbx ls` with 50 sandboxes, minus `docker ps -a`
    memory   of the host process for each further sandbox that runs, and of a guest

Usage: python bench/batch.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from runner.engine import Engine, connect
from runner.images.build import Image, ensure
from runner.launch.locks import locks_of
from runner.launch.options import Options
from runner.launch.orders import order_ahead
from runner.launch.prepared import Prepared, prepare
from runner.launch.shared import Shared
from runner.sandbox.container import Sandbox
from runner.scripted.answers import Answer, Pause, Raw, Say
from runner.scripted.request import Request
from runner.scripted.server import ScriptedServer
from runner.session.state import Folders

ROUNDS = 3
LINES = 32
PARALLEL = 8
SANDBOXES = 50
SBX = [sys.executable, "-m", "runner"]


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def bare(image: str, count: int = 1) -> float:
    """`docker run` so often, as many at once as the batch."""
    started = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(timed, [["docker", "run", "--rm", "--network", "none", image, "true"]] * count))
    return time.perf_counter() - started


def batch(kit: Path, folder: Path, pool: int) -> float:
    path = folder / "batch.jsonl"
    with path.open("w") as file:
        for index in range(LINES):
            work = folder / "ws" / str(index)
            work.mkdir(parents=True, exist_ok=True)
            (work / "todo.txt").write_text("nothing\n")
            file.write(json.dumps({"prompt": "What is in todo.txt?", "workspace": str(work)}) + "\n")
    return timed([*SBX, "batch", str(path), "--sandbox", str(kit), "-j", str(PARALLEL), "--demo", "--pool", str(pool)])


async def first_requests(engine: Engine, kit: Path, work: Path, image: Image, rounds: int) -> list[float]:
    """Seconds from the start of a line whose sandbox waits to its first model request."""
    times: list[float] = []
    came: list[float] = []

    def answer(request: Request) -> Answer:
        came.append(time.perf_counter())
        return Say("done")

    with ScriptedServer(answer) as server:
        prepared = prepare(Options(sandbox=str(kit), workspace=work, base_url=server.url, model="m", new=True))
        one = (prepared, image)
        async with Shared(engine, Folders.of(), ahead=1, upcoming=lambda: repeat(one)) as shared:
            for _ in range(rounds):
                while not shared.ready:
                    await asyncio.sleep(0.05)
                started = time.perf_counter()
                async with shared.session(*one) as session:
                    async for _event in session.ask("go"):
                        pass
                times.append(came[-1] - started)
    return times


async def memory(engine: Engine, kit: Path, work: Path, image: Image, few: int, many: int) -> tuple[float, float]:
    """MiB of this process for each further sandbox that runs, and of one guest."""
    with ScriptedServer(lambda request: Raw([Pause(120)])) as server:
        prepared = prepare(Options(sandbox=str(kit), workspace=work, base_url=server.url, model="m", new=True))
        async with Shared(engine, Folders.of()) as shared, asyncio.TaskGroup() as group:
            hold = asyncio.Event()

            async def run() -> None:
                async with shared.session(prepared, image) as session:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(None):
                            asking = asyncio.create_task(_ask(session))
                            await hold.wait()
                            await session.cancel()
                            await asking

            tasks = [group.create_task(run()) for _ in range(few)]
            while len(server.chats) < few:
                await asyncio.sleep(0.05)
            before = _rss()
            tasks += [group.create_task(run()) for _ in range(many - few)]
            while len(server.chats) < many:
                await asyncio.sleep(0.05)
            after = _rss()
            guests = _guests(engine, str(work))
            hold.set()
    return (after - before) / (many - few), statistics.median(guests)


async def _ask(session: Any) -> None:
    async for _event in session.ask("go"):
        pass


def _rss() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def _guests(engine: Engine, workspace: str) -> list[float]:
    query = "filters=" + "%7B%22label%22%3A%5B%22dev.sbx.workspace%3D" + workspace.replace("/", "%2F") + "%22%5D%7D"
    used = []
    for container in engine.get(f"/containers/json?{query}", doing="listing"):
        stats = engine.get(f"/containers/{container['Id']}/stats?stream=0&one-shot=1", doing="measuring", timeout=30)
        memory = stats["memory_stats"]
        inner = memory.get("stats", {})
        file = inner.get("inactive_file", inner.get("total_inactive_file", 0))
        used.append((memory["usage"] - file) / 1024**2)
    return used


@contextlib.contextmanager
def sandboxes(engine: Engine, prepared: Prepared, image: Image, count: int) -> Iterator[None]:
    """So many that are created and not started."""
    order = order_ahead(prepared, image)
    made = []
    try:
        for _ in range(count):
            from dataclasses import replace

            named = replace(order, name=f"{order.name}-{secrets.token_hex(4)}")
            made.append(asyncio.run(Sandbox.create(engine, named, locks_of(prepared.folders))))
        yield
    finally:
        for each in made:
            asyncio.run(each.end(None))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        folder = Path(name)
        kit, work = folder / "bench-kit", folder / "work"
        kit.mkdir()
        work.mkdir()
        (kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        engine = connect()
        prepared = prepare(Options(sandbox=str(kit), workspace=work))
        image = ensure(engine, prepared.what.plan)

        for pool in (0, 4):
            pairs = [(batch(kit, folder, pool), bare(image.tag, LINES)) for _ in range(rounds)]
            ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"batch    {LINES / ours:6.2f}/s with --pool {pool}   against {LINES / theirs:6.2f}/s"
                f"   ratio {theirs / ours:5.2f}   (at least 0.5)",
                flush=True,
            )
        first, run = [], []
        for _ in range(max(rounds, 3)):
            first += asyncio.run(first_requests(engine, kit, work, image, 2))
            run.append(bare(image.tag))
        print(
            f"pool     {statistics.median(first) * 1000:6.0f} ms   against {statistics.median(run) * 1000:6.0f} ms"
            f"   ratio {statistics.median(first) / statistics.median(run):5.2f}   (at most 1.0)",
            flush=True,
        )
        with sandboxes(engine, prepared, image, SANDBOXES):
            pairs = [(timed([*SBX, "ls"]), timed(["docker", "ps", "-a"])) for _ in range(5)]
        more = statistics.median(a - b for a, b in pairs)
        print(f"ls       {more * 1000:6.0f} ms more than docker ps -a   (at most 250)", flush=True)
        host, guest = asyncio.run(memory(engine, kit, work, image, 2, 10))
        print(f"memory   {host:6.2f} MiB a sandbox on the host (at most 8), {guest:6.1f} MiB a guest (at most 40)")


if __name__ == "__main__":
    main()
