"""Stands in the place of `runner.guest.main` in the container: the true entry, then orders as JSON lines.

Each order has an `id`; each answer repeats it. Bytes travel as latin-1 text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

sys.path.insert(0, "/opt/sbx/lib")

from runner.guest import entry


def identities(owner):
    from runner.guest.spawn.command import HOOK

    return {"owner": owner, "hook": HOOK}


class Driver:
    def __init__(self, guest):
        from runner.guest.spawn.spawner import Spawner
        from runner.guest.tools.base import Place, environment_for
        from runner.guest.tools.bash import Jobs
        from runner.guest.tools.registry import tools_for

        self.guest = guest
        self.spawner = Spawner(guest.connection, guest.server_pid)
        self.jobs = Jobs()
        self.environment = environment_for(guest.owner, guest.workspace, {})
        place = Place(guest.workspace, guest.owner, self.environment)
        names = ("bash", "read_file", "write_file", "edit_file", "list_files", "search", "plan")
        self.tools = {tool.name: tool for tool in tools_for(names, self.spawner, place, self.jobs)}
        # The search that an image without ripgrep gets: the same tool where PATH holds no rg.
        bare = Place(guest.workspace, guest.owner, {**self.environment, "PATH": "/nowhere"})
        (self.tools["search_plain"],) = tools_for(["search"], self.spawner, bare)
        self.tasks = {}

    def command(self, order):
        from runner.guest.spawn.command import Command

        return Command(
            argv=order.get("argv") or ["bash", "-c", order["script"]],
            env=order.get("env", self.environment),
            cwd=order.get("cwd", self.guest.workspace),
            identity=identities(self.guest.owner)[order.get("identity", "owner")],
            fallback_cwd=order.get("fallback_cwd", ""),
            limits=order.get("limits", {}),
        )

    async def run(self, order):
        from runner.guest.spawn.command import Spill

        result = await self.spawner.run(
            self.command(order),
            input=order.get("input", "").encode("latin-1"),
            timeout=order.get("timeout", 20),
            limit=order.get("limit", 1 << 20),
            spill=Spill(**order["spill"]) if "spill" in order else None,
        )
        answer = {"timed_out": result.timed_out, "seconds": result.seconds, **vars(result.exit)}
        for name in ("stdout", "stderr"):
            stream = getattr(result, name)
            answer[name] = {**vars(stream), "data": stream.data.decode("latin-1"), "parts": stream.parts()}
        return answer

    async def tool(self, order):
        result = await self.tools[order["name"]].run(order["arguments"], order.get("call_id", "call"))
        return {"output": result.output, "is_error": result.is_error, "data": result.data}

    async def terminal(self, order):
        process = await self.spawner.start(
            self.command(order), stdin=-1, stdout=-1, stderr=-1, tty=(order["rows"], order["columns"])
        )
        end = asyncio.create_task(process.wait())
        shown = b""
        steps = list(order["steps"])
        while True:
            try:
                shown += os.read(process.terminal, 65536)
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except OSError:
                break
            if steps and steps[0][0].encode() in shown:
                _, what, value = steps.pop(0)
                if what == "resize":
                    process.resize(*value)
                    os.write(process.terminal, b"\n")
                else:
                    os.write(process.terminal, value.encode())
        os.close(process.terminal)
        return {"shown": shown.decode(), **vars(await end)}

    async def processes(self, order):
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/status", encoding="utf-8") as status:
                        fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
                except OSError:
                    continue
                uid = int(fields["Uid"].split()[0])
                found.append({"pid": int(name), "ppid": int(fields["PPid"]), "uid": uid, "name": fields["Name"]})
                found[-1] |= {key: fields[key] for key in fields if key.startswith("Cap") or key == "NoNewPrivs"}
                found[-1]["state"] = fields["State"][0]
        return found

    async def own(self, order):
        return {"server": self.spawner.server, "pid": os.getpid(), "owner": list(self.guest.owner)}

    async def shoot(self, order):
        os.kill(order["pid"], order["signal"])
        return {}

    async def cancel(self, order):
        self.tasks[order["task"]].cancel()
        return {}

    async def bench(self, order):
        import subprocess
        import time

        ours, plain = [], []
        for _ in range(order["times"]):
            began = time.perf_counter()
            await self.spawner.run(self.command(order), timeout=20, limit=1024)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            subprocess.run(order["argv"], stdin=subprocess.DEVNULL, capture_output=True)
            plain.append(time.perf_counter() - began)
        return {"spawner": sorted(ours)[len(ours) // 2], "plain": sorted(plain)[len(plain) // 2]}

    async def bench_tool(self, order):
        import time

        medians = {}
        for name, arguments in (("bash", {"command": "true"}), ("read_file", {"path": "here.txt"})):
            times = []
            for _ in range(order["times"]):
                began = time.perf_counter()
                await self.tools[name].run(arguments, "call")
                times.append(time.perf_counter() - began)
            medians[name] = sorted(times)[len(times) // 2]
        return medians

    async def answer(self, order):
        try:
            value = {"value": await getattr(self, order["op"])(order)}
        except asyncio.CancelledError:
            value = {"cancelled": True}
        except Exception as error:
            value = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps({"id": order["id"], **value}), flush=True)

    async def serve(self):
        reader = asyncio.StreamReader(limit=1 << 28)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            self.tasks[order["id"]] = asyncio.create_task(self.answer(order))
        await self.jobs.close()
        await self.spawner.close()


async def main(guest):
    await Driver(guest).serve()


asyncio.run(main(entry.become_guest(sys.argv[1])))
