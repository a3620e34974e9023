"""What the way out costs: the same program in a container on the engine's bridge, and in a sandbox, in one run.

    python bench/network.py [ROUNDS]

A server on this machine; in the containers curl, which downloads 100 MiB, and Python, which asks small requests, each
on a connection of its own, and 200 at once. Each number is the median of the rounds, which alternate.

    download   MiB/s through the gateway against the bridge, as plain HTTP and in a CONNECT tunnel (at least 0.6)
    small      milliseconds of a small request, p50 (at most 3 ms more)
    at once    errors of 200 requests at once (none)
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROUNDS = 5
MEBIBYTES = 100
PYTHON = sys.executable
MODULE = Path(__file__).resolve().parent.parent

INSIDE = f"""
import http.client, json, os, statistics, subprocess, sys, threading, time, urllib.parse
url = sys.argv[1]
proxied = "http_proxy" in os.environ
there = urllib.parse.urlsplit(url)
place = ("127.0.0.1", 3128) if proxied else (there.hostname, there.port)
def small():
    begun = time.perf_counter()
    connection = http.client.HTTPConnection(*place, timeout=60)
    connection.request("GET", url if proxied else "/")
    assert connection.getresponse().read() == b"ok"
    connection.close()
    return (time.perf_counter() - begun) * 1000
def big(*options):
    told = subprocess.run(["curl", "-sS", *options, "-o", "/dev/null", "-w", "%{{speed_download}} %{{size_download}}",
                           url + "big"], capture_output=True, text=True, check=True).stdout.split()
    assert int(told[1]) == {MEBIBYTES} << 20, told
    return float(told[0]) / (1 << 20)
small(); big()
answer = {{"plain": big(), "tunnel": big("-p") if proxied else 0}}
answer["small"] = statistics.median(small() for _ in range(200))
errors = []
def one():
    try:
        small()
    except Exception as error:
        errors.append(repr(error))
threads = [threading.Thread(target=one) for _ in range(200)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answer | {{"errors": len(errors), "first": errors[:1]}}))
"""

SCRIPT = """
models: [scripted]
answers:
  - question: (?s)run (?P<command>.+)
    round: 1
    call: {name: bash, input: {command: "{command}"}}
  - question: (?s)run (?P<command>.+)
    round: 2
    text: "{output}"
"""


def serve(ready: Any) -> None:
    """`/big` is 100 MiB, all else two bytes."""
    block = b"x" * (1 << 20)

    def client(end: socket.socket) -> None:
        with end:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := end.recv(65536)):
                    return
                head += piece
            blocks = MEBIBYTES if head.split(b" ")[1].endswith(b"big") else 0
            size = blocks << 20 or 2
            end.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
            for _ in range(blocks):
                end.sendall(block)
            if not blocks:
                end.sendall(b"ok")

    listener = socket.create_server(("0.0.0.0", 0), backlog=512)  # the bridge must reach it
    ready.send(listener.getsockname()[1])
    while True:
        threading.Thread(target=client, args=(listener.accept()[0],), daemon=True).start()


@contextmanager
def network() -> Iterator[tuple[str, str]]:
    """A bridge of the engine's, and this machine's address on it."""
    name = f"sbx-bench-{os.getpid()}"
    subprocess.run(
        ["docker", "network", "create", "--label", "dev.sbx.test=bench", name], check=True, capture_output=True
    )
    try:
        found = json.loads(subprocess.check_output(["docker", "network", "inspect", name]))
        yield name, found[0]["IPAM"]["Config"][0]["Gateway"]
    finally:
        subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


def bridge(image: str, work: Path, port: int, on: tuple[str, str]) -> dict[str, Any]:
    """Directly, from a container on a bridge of the engine's, with the limits of a sandbox."""
    options = ["--network", on[0], "--label", "dev.sbx.test=bench", "--cpus", "2", "-v", f"{work}:/w:ro"]
    run = ["docker", "run", "--rm", *options, image, "python3", "/w/inside.py", f"http://{on[1]}:{port}/"]
    return answer(subprocess.check_output(run, text=True))


def sandbox(kit: Path, work: Path, port: int) -> dict[str, Any]:
    """Through the gateway, from a sandbox, as a tool call."""
    place = f"host.docker.internal:{port}"
    question = f"run python3 inside.py http://{place}/"
    run = [PYTHON, "-m", "runner", "run", "-q", str(kit), str(work), "--demo", "--allow", place, "-p", question]
    return answer(subprocess.check_output(run, text=True, cwd=MODULE))


def answer(text: str) -> dict[str, Any]:
    return dict(json.loads(next(line for line in text.splitlines() if line.startswith("{"))))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    context = multiprocessing.get_context("fork")
    mine, ready = context.Pipe()
    server = context.Process(target=serve, args=(ready,), daemon=True)
    server.start()
    port = mine.recv()
    try:
        with tempfile.TemporaryDirectory(prefix="sbx-bench-") as folder:
            kit, work = Path(folder, "bench-kit"), Path(folder, "work")
            kit.mkdir()
            work.mkdir()
            (kit / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
            (kit / "demo.yaml").write_text(SCRIPT)
            (work / "inside.py").write_text(INSIDE)
            sandbox(kit, work, port)
            sys.path.insert(0, str(MODULE))
            from runner.images.build import tag
            from runner.launch.options import Options
            from runner.launch.prepared import prepare

            image = tag(prepare(Options(sandbox=str(kit), workspace=work)).what.plan)
            with network() as on:
                pairs = [(bridge(image, work, port, on), sandbox(kit, work, port)) for _ in range(rounds)]
    finally:
        server.terminate()
        server.join()

    def middle(side: int, key: str) -> float:
        return statistics.median(pair[side][key] for pair in pairs)

    direct, small, more = middle(0, "plain"), middle(0, "small"), middle(1, "small") - middle(0, "small")
    for name, key in (("plain HTTP", "plain"), ("CONNECT", "tunnel")):
        rate = middle(1, key)
        rates = f"bridge {direct:6.0f} MiB/s  gateway {rate:6.0f} MiB/s"
        print(f"download, {name:<11} {rates}  ratio {rate / direct:.2f}   (at least 0.6)")
    times = f"bridge {small:6.2f} ms     gateway {small + more:6.2f} ms"
    print(f"small request, p50    {times}     more {more:.2f} ms (at most 3)")
    errors = sum(through["errors"] for _, through in pairs)
    print(f"200 at once, {rounds} times  errors {errors}   (none)")
    if errors:
        print(next(through["first"] for _, through in pairs if through["errors"]))


if __name__ == "__main__":
    main()
