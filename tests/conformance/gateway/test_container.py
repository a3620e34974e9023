"""The gateway's proxy from inside a container without a network: real programs, real engine."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import subprocess
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import runner
from runner.gateway.credentials import Binding, Injector
from runner.gateway.decisions import Entry
from runner.gateway.environment import proxy_environment
from runner.gateway.interception import ServerTls
from runner.gateway.names import Address
from runner.gateway.policy import parse
from runner.gateway.proxy import EgressProxy
from runner.gateway.rules import build
from runner.kits.plan import Credential, Inject
from runner.wire import messages
from runner.wire.mux import Mux
from tests.conformance.plain import plain_image
from tests.unit.gateway.ends import HttpServer, SocketTransport, http_server
from tests.unit.gateway.test_proxy import AUTHORITY, client_tls

pytestmark = pytest.mark.engine

PATIENCE = 20.0
TOKEN = "a-real-token-0123456789"

GUEST = """
import asyncio, os, sys
sys.path.insert(0, "/opt/program")
from runner.guest import proxy
from runner.wire import messages
from runner.wire.mux import Mux

class Pipes:
    def __init__(self, reader): self.reader = reader
    async def read(self, size): return await self.reader.read(size)
    async def write(self, data):
        while data: data = data[os.write(1, data):]

async def main():
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    mux = Mux(Pipes(reader), messages.decode_for_guest, even=False)
    async with proxy.serve(mux, call=lambda: "call-1"):
        mux.post(messages.Ready(1, "test", 0, 0, ""))
        async for message in mux.run(): pass
asyncio.run(main())
"""


@dataclass
class Box:
    name: str
    log: list[Entry]

    async def run(self, *command: str, proxied: bool = True) -> tuple[int, str]:
        """A command in the container; its code and its output."""
        variables = [part for pair in proxy_environment().items() for part in ("-e", "=".join(pair))]
        process = await asyncio.create_subprocess_exec(
            "docker",
            "exec",
            *(variables if proxied else []),
            self.name,
            *command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode("utf-8", "replace")


async def here(name: str) -> Sequence[Address]:
    return (ipaddress.ip_address("127.0.0.1"),)


@contextlib.asynccontextmanager
async def box(injector: Injector | None = None) -> AsyncIterator[Box]:
    name = f"sbx-test-gateway-{uuid.uuid4().hex[:8]}"
    log: list[Entry] = []
    policy = build(allow=["web.test:*", "secure.test:*", "127.0.0.1:*"])
    proxy = EgressProxy(policy, log.append, lookup=here, intercept=injector.intercept if injector else None)
    process = await asyncio.create_subprocess_exec(
        *("docker", "run", "-i", "--rm", "--name", name, "--label", "dev.sbx.test=gateway", "--network", "none"),
        *("--log-driver", "none", "-v", f"{Path(runner.__file__).parent}:/opt/program/runner:ro"),
        *(plain_image(), "python3", "-c", GUEST),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    mux = Mux(SocketTransport(process.stdout, process.stdin), messages.decode_for_host, even=True)
    ready = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    async def host() -> None:
        async for message in mux.run():
            if isinstance(message, messages.Ready):
                ready.set()
            elif isinstance(message, messages.Dial):
                serving.add(asyncio.create_task(proxy.handle(message, mux)))

    running = asyncio.create_task(host())
    try:
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
        yield Box(name, log)
    finally:
        process.stdin.close()
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)
        for task in (running, *serving):
            task.cancel()
        await asyncio.gather(running, *serving, return_exceptions=True)
        await process.wait()


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with http_server() as running:
        yield running


async def test_programs_reach_what_is_allowed_and_are_told_the_rule_of_what_is_not(server: HttpServer) -> None:
    async with box() as sandbox:
        url = f"http://web.test:{server.port}/"
        assert await sandbox.run("curl", "-s", url) == (0, '{"data":[]}')
        script = f"import urllib.request as r; print(r.urlopen({url!r}).read().decode())"
        assert await sandbox.run("python3", "-c", script) == (0, '{"data":[]}\n')
        code, text = await sandbox.run("curl", "-s", "http://other.test/")
        assert code == 0
        assert "rule: default\n" in text
        code, text = await sandbox.run("curl", "-sS", "https://other.test/")
        assert code != 0
        assert "403" in text
        code, text = await sandbox.run("git", "ls-remote", "https://other.test/x.git")
        assert code != 0
        assert "403" in text
        assert [entry.outcome for entry in sandbox.log] == ["allowed", "allowed", "denied", "denied", "denied"]
        assert {entry.call for entry in sandbox.log} == {"call-1"}


async def test_past_the_proxy_there_is_no_way(server: HttpServer) -> None:
    async with box() as sandbox:
        attempts = [
            ["curl", "-s", "--max-time", "3", f"http://127.0.0.1:{server.port}/"],
            ["curl", "-s", "--max-time", "3", "http://1.1.1.1/"],
            ["curl", "-s", "--max-time", "3", "http://169.254.169.254/"],
            ["python3", "-c", "import socket; socket.getaddrinfo('example.com', 80)"],
            ["python3", "-c", "import socket; socket.socket(socket.AF_INET, 2).sendto(b'x', ('1.1.1.1', 53))"],
            ["python3", "-c", "import socket; socket.create_connection(('2606:4700::1111', 80), 3)"],
        ]
        for attempt in attempts:
            code, _ = await sandbox.run(*attempt, proxied=False)
            assert code != 0, attempt
        assert server.requests == []


async def test_a_token_arrives_at_its_server_and_is_not_in_the_container() -> None:
    credential = Credential("echo", "kit", env=("ECHO_TOKEN",), inject=(Inject("secure.test:*", "X-Token"),))
    binding = Binding("echo", "env", ("HERE",), (parse("secure.test:*", "test"),))
    injector = Injector([credential], {"echo": binding}, {"HERE": TOKEN}, ServerTls(client_tls))
    async with http_server(ssl=AUTHORITY.context("secure.test")) as server, box(injector) as sandbox:
        pem = injector.authority.pem.decode()
        await sandbox.run("sh", "-c", f"cat > /tmp/authority.pem <<'E'\n{pem}E")
        url = f"https://secure.test:{server.port}/"
        code, text = await sandbox.run("curl", "-sS", "--cacert", "/tmp/authority.pem", url)
        assert (code, text) == (0, '{"data":[]}')
        assert f"X-Token: {TOKEN}".encode() in server.requests[0]
        search = f"grep -rls {TOKEN} /tmp /home /etc /run /proc/1/environ; true"
        assert await sandbox.run("sh", "-c", search) == (0, "")
        assert await sandbox.run("sh", "-c", f"echo {TOKEN} > /tmp/leak; {search}") == (0, "/tmp/leak\n")
        code, _ = await sandbox.run("curl", "-sS", url)  # who does not trust the authority is not deceived
        assert code == 60
