"""The shell parts of the how-to pages for pipelines, and of the composite action, as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.scripted.answers import Say
from runner.scripted.server import ScriptedServer
from tests.conformance.batch.conftest import Batches, batches
from tests.conformance.main.conftest import BUILD_TIMEOUT, REPO, Done, Sbx, engine, kit, nothing_is_left, sbx

__all__ = ["batches", "engine", "kit", "nothing_is_left", "sbx"]

pytestmark = [pytest.mark.engine, pytest.mark.slow]
HOW_TO = REPO / "docs" / "how-to"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda request: Say(f"you said: {request.question.strip().splitlines()[-1]}")) as running:
        yield running


class Project:
    """A checkout with an agent, as the pages suppose it, and `sbx` on the PATH."""

    def __init__(self, batches: Batches, server: ScriptedServer) -> None:
        self.sbx = batches.sbx
        self.folder = self.sbx.root / "project"
        agent = self.folder / "agents" / "reviewer"
        agent.mkdir(parents=True)
        (agent / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
        for name in ("a", "b"):
            (self.folder / "packages" / name).mkdir(parents=True)
        (self.folder / "build.log").write_text("it broke\n")
        (self.folder / "questions.jsonl").write_text(
            '{"prompt": "first"}\n{"id": "no", "prompt": "x", "expect": "y$"}\n'
        )
        programs = self.sbx.root / "bin"
        programs.mkdir()
        (programs / "sbx").write_text(f'#!/bin/sh\nexec {sys.executable} -m runner "$@"\n')
        (programs / "sbx").chmod(0o755)
        self.programs = programs
        self.env = {"PATH": f"{programs}:{os.environ['PATH']}", "MODEL_URL": server.url}

    def shell(self, script: str, *flags: str, env: dict[str, str] | None = None) -> Done:
        """As GitHub and GitLab start it: bash that ends with the first failure."""
        run = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", *flags, "-c", script], cwd=self.folder, text=True,
            env=self.sbx.env({**self.env, **(env or {})}), stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
            check=False,
        )  # fmt: skip
        return Done(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The agent's image, built before any clock runs. Its tag depends on no path but the kit's name."""
    root = tmp_path_factory.mktemp("build")
    (root / "reviewer").mkdir()
    (root / "reviewer" / "agent.yaml").write_text("provider: llmman\nmodel: scripted\n")
    built = Sbx(root)("run", root / "reviewer", root, "--demo", "-q", "-p", "hello", timeout=BUILD_TIMEOUT)
    assert built.code == 0, built.said


@pytest.fixture
def project(batches: Batches, server: ScriptedServer, image: None) -> Project:
    return Project(batches, server)


def blocks(page: str, language: str) -> list[str]:
    text = (HOW_TO / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_shell_page(project: Project) -> None:
    decide, questions, as_json, many = blocks("shell.md", "sh")
    done = project.shell(decide)
    assert (done.code, done.stdout) == (0, "you said: Say in one line what this project is.\n"), done.said
    done = project.shell(questions)
    assert (done.code, done.stdout) == (0, "you said: it broke\n" * 2), done.said
    done = project.shell(as_json)
    assert (done.code, done.stdout) == (0, "true\n"), done.said
    done = project.shell(many)
    assert done.code == 0, done.said
    assert sorted(done.stdout.splitlines()) == [f"packages/{n}/\tyou said: Say what is here." for n in "ab"]


def test_the_shell_page_decides_by_the_code(project: Project) -> None:
    (decide, *_) = blocks("shell.md", "sh")
    nowhere = f"unix://{project.folder}/none.sock"
    done = project.shell(decide, env={"DOCKER_HOST": nowhere})
    assert "no engine, try again later" in done.stderr


def test_the_batch_page(project: Project) -> None:
    first, again = blocks("batch.md", "sh")
    done = project.shell(f"export OPENAI_BASE_URL=; {first}".replace("-j 8", '-j 8 --base-url "$MODEL_URL"'))
    assert done.code == 7, done.said
    done = project.shell(again.replace("--resume", '--base-url "$MODEL_URL" --resume'))
    assert done.code == 7, done.said
    codes = [json.loads(line)["code"] for line in (project.folder / "good.jsonl").read_text().splitlines()]
    assert codes == [0, 7]


def test_the_gitlab_page(project: Project) -> None:
    job, retried = (yaml.safe_load(block)["agent"] for block in blocks("gitlab-ci.md", "yaml"))
    for step in job["script"][:-1]:
        assert project.shell(step).code == 0
    done = project.shell(job["script"][-1])
    assert done.code == 7, done.said
    done = project.shell("\n".join(job["after_script"]))
    assert (done.code, done.stdout.split("\t")[:2]) == (0, ["no", "7"]), done.said
    for path in (*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]):
        assert (project.folder / path).is_file()
    done = project.shell("\n".join(retried["script"]))
    assert (done.code, len((project.folder / "results.jsonl").read_text().splitlines())) == (7, 2), done.said


def test_the_github_page_without_the_action(project: Project) -> None:
    _, workflow = (yaml.safe_load(block) for block in blocks("github-actions.md", "yaml"))
    ask, tell = workflow["jobs"]["batch"]["steps"][1:]
    assert project.shell(ask["run"]).code == 7
    done = project.shell(tell["run"])
    assert done.stdout.startswith("::error title=no::code 7: the answer does not match")


# ---- the composite action


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPO / "action.yml").read_text())
    return loaded


class Action:
    """Runs the action's steps as a runner does: inputs into variables, outputs into a file."""

    def __init__(self, project: Project, action: dict[str, Any]) -> None:
        self.project = project
        self._action = action
        self.path = project.sbx.root / "action"
        (self.path / ".venv").mkdir(parents=True)
        (self.path / ".venv" / "bin").symlink_to(project.programs)
        self.output = project.sbx.root / "output"

    def __call__(self, **inputs: str) -> Done:
        values = {name: str(each.get("default", "")) for name, each in self._action["inputs"].items()} | inputs
        step = self._action["runs"]["steps"][1]
        env = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
            for name, text in step["env"].items()
        }
        return self.project.shell(
            step["run"], env={**env, "GITHUB_ACTION_PATH": str(self.path), "GITHUB_OUTPUT": str(self.output)}
        )


@pytest.fixture
def act(project: Project, action: dict[str, Any]) -> Action:
    return Action(project, action)


def test_the_action_asks_one_question_and_no_prompt_becomes_a_command(act: Action) -> None:
    prompt = "@/etc/passwd $(touch hacked) `touch hacked`; touch hacked # \"'"
    url = act.project.env["MODEL_URL"]
    done = act(**{"kit": "./agents/reviewer", "prompt": prompt, "base-url": url})
    assert done.code == 0, done.said
    result = json.loads((act.project.folder / "sbx-results.json").read_text())
    assert result["answer"] == f"you said: {prompt}"
    assert not (act.project.folder / "hacked").exists()
    assert act.output.read_text() == "code=0\n"
    assert (act.project.folder / "sbx-junit.xml").is_file()


def test_the_action_runs_a_batch_and_passes_arguments_on(act: Action) -> None:
    url = act.project.env["MODEL_URL"]
    done = act(
        **{"kit": "./agents/reviewer", "batch": "questions.jsonl", "base-url": url, "arguments": "--retries=0\n-q\n"}
    )
    assert (done.code, act.output.read_text()) == (7, "code=7\n"), done.said
    assert len((act.project.folder / "sbx-results.json").read_text().splitlines()) == 2


def test_the_action_wants_one_of_both(act: Action) -> None:
    assert act(kit="./agents/reviewer").code == 2
    assert act(kit="./agents/reviewer", prompt="a", batch="b").code == 2


def test_no_input_stands_in_a_script(action: dict[str, Any]) -> None:
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]


def test_the_pages_example_of_the_action_gives_inputs_that_exist(action: dict[str, Any]) -> None:
    workflow, _ = (yaml.safe_load(block) for block in blocks("github-actions.md", "yaml"))
    step = workflow["jobs"]["review"]["steps"][1]
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, each in action["inputs"].items() if each.get("required")} <= set(step["with"])
    assert (REPO / "scripts" / "setup").is_file()
    assert Path(REPO / "action.yml").is_file()
