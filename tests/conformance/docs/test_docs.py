"""Every command that README, tutorial and how-to pages show, run for real, in the page's order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner import scripted
from runner.errors import UsageError
from runner.scripted.script import load_script
from runner.scripted.server import ScriptedServer
from tests.conformance.docs.shown import command_lines
from tests.conformance.docs.stage import PLAIN, Stage, block
from tests.conformance.main.conftest import REPO, Sbx, engine, nothing_is_left, sbx

__all__ = ["engine", "nothing_is_left", "sbx"]

pytestmark = pytest.mark.engine

MODEL_PORT = 17434
DEMO = Path(scripted.__file__).with_name("demo.yaml")
SPEC = 'schemaVersion: "2"\nkind: sandbox\nname: %s\nsandbox: {image: "debian:bookworm-slim"}\n'
KIT = f"shown-{os.getpid()}"
NAME = f"try-{os.getpid()}"

ELSEWHERE = {
    "docs/how-to/shell.md": "tests/conformance/pipelines runs its blocks",
    "docs/how-to/batch.md": "tests/conformance/pipelines runs its blocks",
    "docs/how-to/github-actions.md": "YAML of GitHub's; tests/conformance/pipelines runs its shell parts",
    "docs/how-to/gitlab-ci.md": "YAML of GitLab's; tests/conformance/pipelines runs its shell parts",
}
NOT_RUN = {
    r"registry\.example": "needs a registry; tests/conformance/share has one",
    r"image prune": "takes images away that others on this machine need; tests/conformance/share prunes its own",
}
"""Lines that only have to be understood (`test_shown`), and why."""

READY = "/help lists"
ANSWERED = r"\(scripted answer\)"
QUIT = ((READY, "/quit"),)
TYPED = {
    "docs/tutorial/first-run.md sbx run hooks-demo --demo": (
        (READY, "Which files are here, and what is today's date?"),
        (ANSWERED, "What is in todo.txt?"),
        (ANSWERED, "Delete the old-drafts directory with rm -rf."),
        (ANSWERED, "My password: hunter2 — can you store it in a file?"),
        ("no-secrets", "/quit"),
    ),
    "docs/how-to/workspace-modes.md sbx run coder ~/project --mode clone --keep --name try": (
        (READY, "Run `mkdir -p src; echo new > src/b.txt; echo more > top.txt`"),
        (ANSWERED, "/quit"),
    ),
    "docs/how-to/workspace-modes.md sbx apply try src/ -i": ((r"\[y/N", "y"),),
}
"""What is typed where there is a terminal; `/quit` for every other line that needs one."""

STDIN = {"sbx secret set github --domain api.github.example": "a-token-from-stdin\n"}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """The scripted model, where the pages say that the model server is; elsewhere when something is there."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(ScriptedServer(load_script(DEMO), port=MODEL_PORT))
        except UsageError:
            yield stack.enter_context(ScriptedServer(load_script(DEMO)))


@pytest.fixture
def stage(sbx: Sbx, server: ScriptedServer) -> Stage:
    return Stage(sbx, server, f"http://127.0.0.1:{MODEL_PORT}/v1")


def readme(stage: Stage) -> None:
    (stage.home / "src" / "project").mkdir(parents=True)


def tutorial(stage: Stage) -> None:
    (stage.folder / "sbx").mkdir()
    for name in ("cp", "sed"):
        assert stage.run(f"command -v {name}")[0] == 0
    subprocess.run(["cp", "-r", REPO / "sbx" / "hooks-demo", stage.folder / "sbx"], check=True)
    page = "docs/tutorial/first-run.md"
    code, said = stage.run(block(page, "cp -r sbx/hooks-demo my-agent"))
    assert code == 0, said
    code, said = stage.run(block(page, "cat > my-agent/shout.py <<'PY'"))
    assert code == 0, said
    (stage.home / "some" / "folder").mkdir(parents=True)
    agent = stage.folder / "my-agent" / "agent.yaml"
    hook = block(page, '- command: python3 "$MM_CONFIG_DIR/shout.py"')
    text = agent.read_text()
    assert "  preGeneration:\n" in text
    agent.write_text(text.replace("  preGeneration:\n", f"  preGeneration:\n{hook}"))


def guards(stage: Stage) -> None:
    page = "docs/how-to/guard-the-agent.md"
    (stage.folder / "protect-main.sh").write_text(block(page, "#!/bin/sh"))
    (stage.home / ".claude").mkdir()
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}
    (stage.home / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    on_host = next(b for b in re.findall(r"(?:^    .*\n|\n)+", (REPO / page).read_text(), re.M) if "where: host" in b)
    on_host = re.sub(r"^    ", "", on_host, flags=re.M).partition("sbx run")[0]
    stage.kit("my-kit", PLAIN + on_host)


def network(stage: Stage) -> None:
    stage.kit("kit")
    (stage.home / "project").mkdir(exist_ok=True)


def listing(stage: Stage) -> None:
    """The kit comes to list hosts, which need a grant from then on."""
    hosts = "permissions: {network: {allow: [packages.example.com, 'git.example.com:22']}}\n"
    stage.kit("kit", spec=SPEC % "kit" + hosts)


BEFORE: dict[str, Callable[[Stage], None]] = {
    "sbx policy check packages.example.com git.example.com:22 --kit ./kit --grant network": listing,
}


def sharing(stage: Stage) -> None:
    stage.kit("coder", spec=SPEC % KIT)
    (stage.home / ".ssh").mkdir(mode=0o700)
    key = stage.home / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)


def modes(stage: Stage) -> None:
    stage.folder = stage.root / "elsewhere"
    stage.folder.mkdir()
    stage.home.joinpath("project").rmdir()
    stage.repo(stage.home / "project")


PREPARED: dict[str, Callable[[Stage], None]] = {
    "README.md": readme,
    "docs/tutorial/first-run.md": tutorial,
    "docs/how-to/guard-the-agent.md": guards,
    "docs/how-to/network-and-credentials.md": network,
    "docs/how-to/share-images.md": sharing,
    "docs/how-to/workspace-modes.md": modes,
}


def test_every_page_with_commands_is_run_here_or_elsewhere() -> None:
    read = [REPO / "README.md", *(REPO / "docs" / "tutorial").glob("*.md"), *(REPO / "docs" / "how-to").glob("*.md")]
    shown = {str(page.relative_to(REPO)) for page in read if command_lines(page)}
    assert shown == PREPARED.keys() | ELSEWHERE.keys()


SLOW = {"docs/how-to/network-and-credentials.md", "docs/how-to/share-images.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PREPARED]
)
def test_the_commands_of_a_page_work(page: str, stage: Stage) -> None:
    PREPARED[page](stage)
    tag = ""
    wrong = []
    try:
        for line in command_lines(REPO / page):
            if any(re.search(pattern, line.text) for pattern in NOT_RUN):
                continue
            if line.text in BEFORE:
                BEFORE[line.text](stage)
            code, said = run(stage, page, line.text, tag)
            if code != 0:
                wrong.append(f"{line} ended with {code}:\n{said[-1500:]}")
            if found := re.search(rf"sbx/{KIT}:[0-9a-f]+", said):
                tag = found[0]
    finally:
        stage.remove_sandboxes()
        stage.run(f"sbx image prune --all {KIT}")
    assert not wrong, "\n\n".join(wrong)


def run(stage: Stage, page: str, line: str, tag: str) -> tuple[int, str]:
    """A line of a page. Names that others on this machine may use as well are made this test's own."""
    typed = TYPED.get(f"{page} {line}")
    conversation = re.match(r"sbx run (?!.*(-p|--help))", line) is not None
    own = re.sub(r"\btry\b", NAME, line).replace("sbx/coder:…", tag)
    if typed is not None or conversation:
        return stage.type(own, QUIT if typed is None else typed)
    return stage.run(own, STDIN.get(line, ""))
