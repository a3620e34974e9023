"""A place in which the commands of a page can run: folders, kits and a model of its own, and `sbx` on the PATH."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runner.scripted.server import ScriptedServer
from tests.conformance.main.conftest import BUILD_TIMEOUT, REPO, Sbx

PLAIN = "provider: llmman\nmodel: scripted\n"
WITHIN = 240.0
"""Seconds for a line on a terminal."""
SHIM = """\
#!/bin/sh
# As typed, but where the page's model server is not this test's, `run` is told of the test's.
[ "$1" = run ] && [ -n "$DOCS_MODEL" ] && shift && set -- run --base-url "$DOCS_MODEL" "$@"
exec {python} -m runner "$@"
"""


class Stage:
    """Runs lines of a page as a user would type them.

    Args:
        sbx: with folders of its own.
        server: the model.
        expected: where the pages say that the model is.
    """

    def __init__(self, sbx: Sbx, server: ScriptedServer, expected: str) -> None:
        self.sbx = sbx
        self.root = sbx.root
        self.home = self.root / "home"
        self.folder = self.home / "project"
        self.folder.mkdir(parents=True)
        programs = self.root / "bin"
        programs.mkdir()
        self.program(programs / "sbx", SHIM.format(python=sys.executable))
        self.program(programs / "pass", "#!/bin/sh\necho a-token-from-a-password-store\n")
        self.env = sbx.env(
            {
                "HOME": str(self.home),
                "DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG", str(Path.home() / ".docker")),
                "PATH": f"{programs}:{os.environ['PATH']}",
                "TERM": "xterm",
                "DOCS_MODEL": "" if server.url == expected else server.url,
                "GITHUB_TOKEN": "a-token-from-a-variable",
            }
        )

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def kit(self, name: str, agent: str = PLAIN, spec: str = "") -> Path:
        """A kit on the base image, in the page's folder."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "agent.yaml").write_text(agent)
        if spec:
            (folder / "spec.yaml").write_text(spec)
        return folder

    def repo(self, path: Path) -> None:
        """A git repository with one file in `src/`."""
        (path / "src").mkdir(parents=True)
        (path / "src" / "a.txt").write_text("a\n")
        for command in ("init -q", "add .", "-c user.name=n -c user.email=n@example.invalid commit -q -m first"):
            subprocess.run(["git", *command.split()], cwd=path, check=True, env=self.env)

    def run(self, line: str, stdin: str = "") -> tuple[int, str]:
        """A line without a terminal: its exit code, and all that it said."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.env, input=stdin, text=True, timeout=BUILD_TIMEOUT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def type(self, line: str, typed: Sequence[tuple[str, str]]) -> tuple[int, str]:
        """A line on a terminal; each text is typed when its pattern has been shown since the one before."""
        fd, child = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.env, stdin=child, stdout=child, stderr=child
        )
        os.close(child)
        waiting = list(typed)
        text, since = "", 0
        end = time.monotonic() + WITHIN
        try:
            while True:
                assert time.monotonic() < end, text[-3000:]
                if select.select([fd], [], [], 0.5)[0]:
                    try:
                        piece = os.read(fd, 65536)
                    except OSError:  # the last process has closed the terminal
                        break
                    text += piece.decode("utf-8", "replace")
                if waiting and re.search(waiting[0][0], text[since:]):
                    os.write(fd, waiting.pop(0)[1].encode() + b"\r")
                    since = len(text)
                elif process.poll() is not None and not select.select([fd], [], [], 0)[0]:
                    break
            code = process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
            os.close(fd)
        assert not waiting, f"never asked for {waiting}: {text[-3000:]}"
        return code, text

    def remove_sandboxes(self) -> None:
        """Those that conversations left, as they do."""
        listed = json.loads(self.run("sbx ls --json")[1])
        names = [each["name"] for each in listed if each["workspace"].startswith(str(self.root))]
        if names:
            code, said = self.run(f"sbx rm {' '.join(names)}")
            assert code == 0, said


def block(page: str, first: str) -> str:
    """The text of the code block of a page that begins with a line, taken out of its indentation."""
    found: list[str] = []
    for line in (REPO / page).read_text(encoding="utf-8").splitlines():
        if found and not line.startswith("    "):
            if line.strip():
                break
            found.append("")
        elif found or line.strip() == first:
            found.append(line[4:])
    assert found, f"{page} has no block that begins with {first!r}"
    return "\n".join(found).rstrip() + "\n"
