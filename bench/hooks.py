"""What hooks cost, as ratios measured in one run. Run as root: `python bench/hooks.py [ROUNDS]`.

It uses the guest's own spawner and chain, with their identities. `--in-container IMAGE [ROUNDS]` does the same in a
container of that image, with the repository mounted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from runner.guest.hooks import HookChain, TextFilter, ToolCall  # noqa: E402
from runner.guest.spawn import server  # noqa: E402
from runner.guest.spawn.command import HOOK, Identity  # noqa: E402
from runner.guest.spawn.spawner import Spawner  # noqa: E402
from runner.wire.agent import Hook  # noqa: E402

OWNER = Identity(1000, 1000, "agent")
CALL = ToolCall("c1", "bash", {"command": "ls"})
NODE = """
const lines = require('readline').createInterface({input: process.stdin});
lines.on('line', line => { const asked = JSON.parse(line);
  console.log(JSON.stringify(asked.event === 'textDelta' ? {text: asked.text} : {})); });
"""


async def median_ms(rounds: int, once: Callable[[], Awaitable[Any]]) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        await once()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def plain_ms() -> float:
    began = time.perf_counter()
    subprocess.run(["sh", "-c", "true"], input=b"{}", capture_output=True, check=True)
    return (time.perf_counter() - began) * 1000


async def main(rounds: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="sbx-bench-"))
    os.chmod(root, 0o755)
    for name, uid in (("workspace", OWNER.uid), ("tmp", HOOK.uid), ("empty", 0), ("config", 0)):
        (root / name).mkdir()
        os.chown(root / name, uid, uid)
    (root / "config" / "echo.js").write_text(NODE)
    script = f'node "{root}/config/echo.js"'
    spawner = Spawner(*server.launch())
    chains: list[HookChain] = []

    def chain(*hooks: Hook) -> HookChain:
        made = HookChain(
            hooks,
            spawner,
            workspace=str(root / "workspace"),
            config_dir=str(root / "config"),
            hooks_dir=str(root / "config"),
            owner=OWNER,
            emit=lambda name, data: None,
            home=str(root / "empty"),
            guard_tmp=str(root / "tmp"),
        )
        chains.append(made)
        return made

    def shells(number: int) -> HookChain:
        return chain(*(Hook("preToolCall", "true", f"h{n}") for n in range(number)))

    try:
        none, one, ten = shells(0), shells(1), shells(10)
        await one.pre_tool_call(CALL)
        base, single, many = [], [], []
        for _ in range(rounds):  # turn about, so that a busy machine disturbs all alike
            base.append(plain_ms())
            single.append(await median_ms(1, lambda: one.pre_tool_call(CALL)))
            many.append(await median_ms(1, lambda: ten.pre_tool_call(CALL)))
        shell, hook, hooks = map(statistics.median, (base, single, many))
        print(f"subprocess.run(['sh', '-c', 'true'])   {shell:8.2f} ms")
        print(f"one sh hook                            {hook:8.2f} ms   {hook / shell:.2f} times (bound 3)")
        print(f"ten sh hooks                           {hooks:8.2f} ms   {hooks / shell:.2f} times (bound 30)")
        print(
            f"no hooks                               {await median_ms(2000, lambda: none.pre_tool_call(CALL)):8.4f} ms"
        )

        fresh = chain(Hook("preToolCall", script, "fresh"))
        stays = chain(Hook("preToolCall", "exec " + script, "stays", persistent=True))
        node = await median_ms(max(5, rounds // 10), lambda: fresh.pre_tool_call(CALL))
        await stays.pre_tool_call(CALL)
        kept = await median_ms(500, lambda: stays.pre_tool_call(CALL))
        print(f"node, started each time                {node:8.2f} ms")
        print(f"node, persistent                       {kept:8.3f} ms   1/{node / kept:.0f} (bounds 1 ms and 1/30)")

        text = TextFilter(chain(Hook("textDelta", "exec " + script, "deltas", persistent=True)))
        await text.feed("warm up")
        began = time.perf_counter()
        for _ in range(1000):
            await text.feed("word ")
        took = time.perf_counter() - began
        print(
            f"1,000 deltas, one persistent hook      {took * 1000:8.0f} ms   {1000 / took:.0f} a second (bound 1,000)"
        )
    finally:
        for made in chains:
            await made.close()
        await spawner.close()
        shutil.rmtree(root)


def in_container(image: str, arguments: list[str]) -> int:
    docker = ["docker", "run", "--rm", "--label", "dev.sbx.test=bench-hooks", "--network", "none"]
    place = ["-v", f"{REPOSITORY}:/bench:ro", "-w", "/bench", "--entrypoint", "python3", image]
    return subprocess.run([*docker, *place, "-B", "bench/hooks.py", *arguments], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-container"]:
        sys.exit(in_container(sys.argv[2], sys.argv[3:]))
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
