"""Each ready-made mixin does its work under the sandbox's profile: no network, no capability, a read-only root."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine import Engine
from runner.images import ensure
from runner.kits.compose import compose
from runner.kits.data import data_folder
from runner.kits.plan import Plan

DEMO = ("node", "cli-tools", "python-tools", "go-toolchain")
"""As hooks-demo lays them, so that the builder's cache serves both."""

LIGHT = {
    "node": ("node -e 'console.log(6 * 7)'; npm --version >/dev/null", "42"),
    "cli-tools": (
        "mkdir /tmp/d && echo needle > /tmp/d/hay.txt && cd /tmp/d && rg -o need && fd hay && tree -i --noreport"
        " && echo '{\"a\": 5}' | jq .a && less -V >/dev/null",
        "hay.txt:need\nhay.txt\n.\nhay.txt\n5",
    ),
    "python-tools": ("python -m venv /tmp/v && /tmp/v/bin/pip --version | cut -d' ' -f1", "pip"),
    "go-toolchain": (
        "mkdir /tmp/g && cd /tmp/g && printf 'package main\\nfunc main() { println(42) }' > m.go"
        " && GOCACHE=/tmp/c GOFLAGS=-mod=mod go run m.go",
        "42",
    ),
}
HEAVY = {
    "rust-toolchain": (
        "cd /tmp && export HOME=/tmp && cargo new -q r --vcs none && cd r && cargo run -q --offline"
        " && cargo clippy -q --offline && cargo fmt --check",
        "Hello, world!",
    ),
    "git-tools": (
        "git lfs version | cut -d/ -f1; command -v tig ssh patch",
        "git-lfs\n/usr/bin/tig\n/usr/bin/ssh\n/usr/bin/patch",
    ),
    "build-essential": (
        "cd /tmp && printf '#include <cstdio>\\nint main() { std::puts(\"42\"); }' > m.cc && make -s m && ./m"
        " && pkg-config --version >/dev/null",
        "42",
    ),
    "java": (
        "cd /tmp && printf 'class M { public static void main(String[] a) { System.out.println(42); } }' > M.java"
        " && javac M.java && java M && mvn --batch-mode --version >/dev/null 2>&1",
        "42",
    ),
    "browser": (
        "HOME=/tmp chromium --headless --dump-dom 'data:text/html,<p id=x></p><script>x.textContent=6*7</script>'"
        " 2>/dev/null | grep -o '<p id=\"x\">42</p>'",
        '<p id="x">42</p>',
    ),
}


def sandbox_kit(folder: Path, *mixins: str) -> Plan:
    """The plan of a sandbox kit with these mixins."""
    name = "test-images-" + mixins[0]
    folder.joinpath("spec.yaml").write_text(
        f'schemaVersion: "2"\nkind: sandbox\nname: {name}\nmixins: [{", ".join(mixins)}]\n'
        "sandbox:\n  image: debian:bookworm-slim\n",
        encoding="utf-8",
    )
    return compose(folder)


def output_in_sandbox(engine: Engine, image: str, command: str) -> str:
    with engine.call("running a mixin's test", 120):
        config = engine.api.create_host_config(
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            network_mode="none",
            pids_limit=512,
            mem_limit="4g",
            tmpfs={"/tmp": "exec,size=1g", "/home/agent": "uid=1000,gid=1000"},
        )
        container = engine.api.create_container(
            image, ["bash", "-c", command], user="1000", labels={"dev.sbx.test": "images"}, host_config=config
        )
        try:
            engine.api.start(container)
            code = engine.api.wait(container)["StatusCode"]
            output: str = engine.api.logs(container).decode()
        finally:
            engine.api.remove_container(container, force=True, v=True)
    assert code == 0, output
    return output.strip()


@pytest.fixture(scope="module")
def demo(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    return ensure(engine, sandbox_kit(tmp_path_factory.mktemp("kit"), *DEMO)).id


@pytest.mark.engine
@pytest.mark.parametrize("name", LIGHT)
def test_a_mixin_of_the_demo_does_its_work(engine: Engine, demo: str, name: str) -> None:
    command, expected = LIGHT[name]
    assert output_in_sandbox(engine, demo, command) == expected


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_mixin_does_its_work(engine: Engine, name: str, tmp_path: Path) -> None:
    command, expected = HEAVY[name]
    image = ensure(engine, sandbox_kit(tmp_path, name))
    assert output_in_sandbox(engine, image.id, command) == expected


def test_every_mixin_has_a_test_and_a_line_in_the_readme() -> None:
    folder = data_folder("mixins")
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    assert names == set(LIGHT) | set(HEAVY)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(names) if f"| `{name}` |" not in readme] == []
