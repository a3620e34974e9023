"""What the gateway costs: the same requests directly on loopback and through wire and proxy, in one run.

    python bench/gateway.py [--requests N] [--mebibytes N]

The server and both ends of the wire are processes of their own, as in a real run: server | guest | host. Prints p50 of
a small request, the throughput of a large download, and the model relay's overhead; ratios are of this run.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, os.getcwd())

from runner.gateway.decisions import Entry
from runner.gateway.model import ModelRelay
from runner.gateway.proxy import EgressProxy
from runner.gateway.rules import build
from runner.guest import proxy as door
from runner.wire import messages
from runner.wire.messages import Dial, HttpRequest
from runner.wire.mux import Mux

CHUNK = b"x" * 65536


class Sock:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self, size: int) -> bytes:
        return await self.reader.read(size)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


def serve(ready: Any) -> None:
    """A small HTTP server: `/big/N` sends N MiB, everything else two bytes."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1]
                size = int(path.rpartition(b"/")[2]) * 1048576 if b"/big/" in path else 2
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
                while size:
                    piece = CHUNK[: min(size, len(CHUNK))]
                    writer.write(piece)
                    size -= len(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        listener = await asyncio.start_server(client, "127.0.0.1", 0)
        ready.send(listener.sockets[0].getsockname()[1])
        await listener.serve_forever()

    asyncio.run(main())


def host(end: socket.socket, port: int) -> None:
    """The host's end: proxy and model relay."""

    async def here(name: str) -> Sequence[Any]:
        return (ipaddress.ip_address("127.0.0.1"),)

    def log(entry: Entry) -> None:
        pass

    async def main() -> None:
        mux = Mux(Sock(*await asyncio.open_connection(sock=end, limit=1 << 20)), messages.decode_for_host, even=True)
        proxy = EgressProxy(build(allow=["bench.test:*", "127.0.0.1:*"]), log, lookup=here)
        relay = ModelRelay([f"http://127.0.0.1:{port}/v1"], "key")
        tasks = set()
        async for message in mux.run():
            if isinstance(message, Dial):
                tasks.add(task := asyncio.create_task(proxy.handle(message, mux)))
            elif isinstance(message, HttpRequest):
                tasks.add(task := asyncio.create_task(relay.handle(message, mux)))
            task.add_done_callback(tasks.discard)

    asyncio.run(main())


async def small(port: int, url: str, count: int) -> float:
    """Milliseconds of a small request, p50; each on a connection of its own, as programs do."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {url} HTTP/1.1\r\nHost: bench.test\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        times.append((time.perf_counter() - started) * 1000)
        writer.close()
        await writer.wait_closed()
    return statistics.median(times)


async def big(port: int, request: str, mebibytes: int, tunnel: str = "") -> float:
    """MiB per second of one download."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    if tunnel:
        writer.write(f"CONNECT {tunnel} HTTP/1.1\r\nHost: {tunnel}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    started = time.perf_counter()
    writer.write(request.encode())
    await reader.readuntil(b"\r\n\r\n")
    left = mebibytes * 1048576
    while left:
        left -= len(await reader.read(min(left, 1 << 20)))
    writer.close()
    await writer.wait_closed()
    return mebibytes / (time.perf_counter() - started)


async def many(port: int, url: str, count: int) -> int:
    """How many of `count` requests at once fail."""
    results = await asyncio.gather(*(small(port, url, 1) for _ in range(count)), return_exceptions=True)
    return sum(isinstance(result, BaseException) for result in results)


async def guest(end: socket.socket, port: int, arguments: argparse.Namespace) -> None:
    mux: Mux[Any] = Mux(
        Sock(*await asyncio.open_connection(sock=end, limit=1 << 20)), messages.decode_for_guest, even=False
    )
    heads: asyncio.Queue[Any] = asyncio.Queue()

    async def read() -> None:
        async for message in mux.run():
            heads.put_nowait(message)

    reading = asyncio.create_task(read())
    mib = arguments.mebibytes
    async with door.serve(mux, port=0) as via:
        there = f"http://bench.test:{port}"
        direct = await small(port, "/", arguments.requests)
        through = await small(via, f"{there}/", arguments.requests)
        print(
            f"small request, p50  direct {direct:6.2f} ms   gateway {through:6.2f} ms  more {through - direct:5.2f} ms"
        )
        line = f"GET /big/{mib} HTTP/1.1\r\nHost: bench.test\r\n\r\n"
        rate = await big(port, line, mib)
        plain = await big(via, line.replace("/big", f"{there}/big"), mib)
        tunnel = await big(via, line, mib, f"bench.test:{port}")
        print(f"{mib} MiB, plain HTTP   direct {rate:6.0f} MiB/s gateway {plain:6.0f} MiB/s   ratio {plain / rate:.2f}")
        print(
            f"{mib} MiB, CONNECT      direct {rate:6.0f} MiB/s gateway {tunnel:6.0f} MiB/s   ratio {tunnel / rate:.2f}"
        )
        print(f"200 at once          errors {await many(via, f'{there}/', 200)}")
    times = []
    for number in range(arguments.requests):
        started = time.perf_counter()
        mux.post(HttpRequest(number + 1, "GET", f"http://127.0.0.1:{port}/v1/models", []))
        stream = mux.accept((await heads.get()).body)
        await stream.read_all(100)
        times.append((time.perf_counter() - started) * 1000)
        stream.close()
    relay = statistics.median(times)
    print(f"model relay, p50     direct {direct:6.2f} ms   relay   {relay:6.2f} ms   more {relay - direct:5.2f} ms")
    reading.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--mebibytes", type=int, default=100)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("fork")
    mine, ready = context.Pipe()
    server = context.Process(target=serve, args=(ready,), daemon=True)
    server.start()
    port = mine.recv()
    left, right = socket.socketpair()
    gateway = context.Process(target=host, args=(right, port), daemon=True)
    gateway.start()
    right.close()
    try:
        asyncio.run(guest(left, port, arguments))
    finally:
        for process in (gateway, server):
            process.terminate()
            process.join()


if __name__ == "__main__":
    main()
