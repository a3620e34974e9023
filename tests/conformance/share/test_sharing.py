"""Push, pull, save, load, and running what was shared."""

from __future__ import annotations

import base64
import contextlib
import http.server
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine, connect
from runner.errors import ImageError
from runner.images import share
from tests.conformance.main.conftest import Sbx
from tests.conformance.share import machines
from tests.conformance.share.conftest import NAME, Built

pytestmark = [pytest.mark.engine, pytest.mark.slow]

QUESTION = ("--demo", "-p", "What is in todo.txt?")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "todo.txt").write_text("water the plants\n")
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with machines.registry(tmp_path / "registry") as address:
        yield address


def test_a_shared_image_runs_without_its_kit(sbx: Sbx, built: Built, work: Path) -> None:
    done = sbx("run", built.tag, work, *QUESTION)
    assert done.code == 0, done.said
    assert "water the plants" in done.stdout
    start = sbx.events("session.start")[0]
    assert start["image_id"] == built.id
    assert str(built.kit) not in json.dumps(start)


def test_the_kits_variables_travel(sbx: Sbx, built: Built, work: Path) -> None:
    done = sbx("run", built.tag, work, "--demo", "-p", "hello", "--json")
    assert done.code == 0, done.said
    plan = next((sbx.root / "cache" / "sbx" / "recipes").iterdir()) / "plan.json"
    assert {"name": "WORD_four", "source": f"{NAME}-four", "value": "plain"} in json.loads(plan.read_text())[
        "environment"
    ]


def test_what_would_change_the_image_is_refused(sbx: Sbx, built: Built, work: Path) -> None:
    done = sbx("run", built.tag, work, *QUESTION, "--kit", "cli-tools")
    assert (done.code, "built already" in done.stderr) == (2, True), done.said


def test_an_image_without_a_recipe_is_refused(sbx: Sbx, engine: Engine, built: Built, work: Path) -> None:
    below = engine.get(f"/images/{built.tag}/json", doing="asking")["Config"]["Labels"]["dev.sbx.below"]
    with engine.call("tagging"):
        engine.api.tag(below, f"sbx/{NAME}-plain", "1")
    done = sbx("run", f"sbx/{NAME}-plain:1", work, *QUESTION)
    assert (done.code, "carries no recipe" in done.stderr) == (5, True), done.said


def test_an_image_of_another_wire_is_refused_and_both_are_named(
    sbx: Sbx, engine: Engine, built: Built, work: Path
) -> None:
    with engine.call("making another"):
        container = engine.api.create_container(built.id, ["true"], labels={"dev.sbx.test": "share"})
        labels = {"Labels": {"dev.sbx.wire": "99", "dev.sbx.version": "7.7.7"}}
        engine.api.commit(container, conf=labels, repository=f"sbx/{NAME}-wire", tag="1")
        engine.api.remove_container(container, force=True)
    done = sbx("run", f"sbx/{NAME}-wire:1", work, *QUESTION)
    assert done.code == 5
    assert "7.7.7" in done.stderr
    assert "wire version 99" in done.stderr


def test_saved_and_loaded_it_runs_with_no_registry(sbx: Sbx, built: Built, work: Path) -> None:
    file = sbx.root / "image.tar"
    saved = sbx("image", "save", file, built.kit)
    assert saved.code == 0, saved.said
    loaded = sbx("image", "load", file, "--json")
    assert json.loads(loaded.stdout) == {"loaded": [built.tag]}, loaded.said
    done = sbx("run", built.tag, work, *QUESTION)
    assert "water the plants" in done.stdout, done.said


def test_a_tar_that_is_cut_is_refused(sbx: Sbx, built: Built) -> None:
    file = sbx.root / "image.tar"
    assert sbx("image", "save", file, built.tag).code == 0
    with file.open("r+b") as out:
        out.truncate(file.stat().st_size // 2)
    done = sbx("image", "load", file)
    assert (done.code, "not a whole image" in done.stderr) == (5, True), done.said


@pytest.mark.parametrize("content", [b"", b"hello" * 1000, os.urandom(4096)], ids=["empty", "text", "noise"])
def test_what_is_no_image_is_not_loaded(sbx: Sbx, content: bytes) -> None:
    (sbx.root / "x.tar").write_bytes(content)
    assert sbx("image", "load", sbx.root / "x.tar").code == 5


def test_a_hostile_tar_is_not_loaded(sbx: Sbx) -> None:
    with tarfile.open(sbx.root / "x.tar", "w") as tar:
        member = tarfile.TarInfo("../../../etc/cron.d/evil")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    done = sbx("image", "load", sbx.root / "x.tar")
    assert (done.code, "hostile" in done.stderr) == (5, True), done.said


@pytest.mark.slow
def test_loading_does_not_move_a_name_that_is_taken(sbx: Sbx, engine: Engine, built: Built, kit: Path) -> None:
    name = f"sbx/{NAME}-taken:1"
    with engine.call("tagging"):
        engine.api.tag(built.id, f"sbx/{NAME}-taken", "1", force=True)
    assert sbx("image", "save", sbx.root / "x.tar", name).code == 0
    below = engine.get(f"/images/{built.tag}/json", doing="asking")["Config"]["Labels"]["dev.sbx.below"]
    with engine.call("tagging"):
        engine.api.tag(below, f"sbx/{NAME}-taken", "1", force=True)
    done = sbx("image", "load", sbx.root / "x.tar")
    assert (done.code, "names another image here" in done.stderr) == (5, True), done.said
    assert engine.get(f"/images/{name}/json", doing="asking")["Id"] == below


def test_what_cannot_be_written_leaves_no_file(sbx: Sbx, built: Built) -> None:
    done = sbx("image", "save", sbx.root / "none" / "x.tar", built.tag)
    assert (done.code, "cannot be written" in done.stderr) == (2, True), done.said


def test_a_push_gives_the_digest_that_pins_and_runs(sbx: Sbx, built: Built, work: Path, registry: str) -> None:
    pushed = sbx("image", "push", f"{registry}/team/{NAME}:1", built.tag)
    assert pushed.code == 0, pushed.said
    pinned = pushed.stdout.strip()
    assert pinned.startswith(f"{registry}/team/{NAME}@sha256:")
    assert sbx("image", "rm", f"{registry}/team/{NAME}:1").code == 0
    assert sbx("image", "pull", f"{registry}/team/{NAME}:1").stdout.strip() == built.id
    done = sbx("run", pinned, work, *QUESTION)
    assert "water the plants" in done.stdout, done.said
    assert sbx("image", "rm", f"{registry}/team/{NAME}:1").code == 0


def test_what_carries_no_recipe_is_not_pushed(sbx: Sbx, engine: Engine, built: Built) -> None:
    below = engine.get(f"/images/{built.tag}/json", doing="asking")["Config"]["Labels"]["dev.sbx.below"]
    done = sbx("image", "push", "127.0.0.1:9/x:1", below.removeprefix("sha256:"))
    assert (done.code, "carries no recipe" in done.stderr) == (5, True), done.said


def test_a_registry_that_is_not_there_is_an_images_error(sbx: Sbx, built: Built, work: Path) -> None:
    for arguments in (
        ("image", "push", f"127.0.0.1:9/{NAME}:1", built.tag),
        ("image", "pull", f"127.0.0.1:9/{NAME}:2"),
        ("run", f"127.0.0.1:9/{NAME}:2", work, *QUESTION),
    ):
        done = sbx(*arguments)
        assert (done.code, "refused" in done.stderr) == (5, True), done.said
    sbx("image", "rm", f"127.0.0.1:9/{NAME}:1")


HELPER = """\
#!/bin/sh
# A credential helper, as `docker login` installs them.
[ "$1" = get ] || exit 1
read -r server
echo "$server" >>"$(dirname "$0")/asked"
printf '{"ServerURL": "%s", "Username": "team", "Secret": "s3cret"}' "$server"
"""


def test_a_credential_helper_is_asked_and_its_secret_shows_nowhere(sbx: Sbx, built: Built, tmp_path: Path) -> None:
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.parent.mkdir()
    helper.write_text(HELPER)
    helper.chmod(0o755)
    docker = tmp_path / "docker"
    docker.mkdir()
    with machines.registry(tmp_path / "registry", user="team", password="s3cret") as address:
        env = {"DOCKER_CONFIG": str(docker), "PATH": f"{helper.parent}:{os.environ['PATH']}"}
        reference = f"{address}/{NAME}:1"
        (docker / "config.json").write_text("{}")
        refused = sbx("image", "push", reference, built.tag, env=env)
        assert (refused.code, "docker login" in refused.stderr) == (5, True), refused.said
        (docker / "config.json").write_text(json.dumps({"credHelpers": {address: "test"}}))
        pushed = sbx("image", "push", reference, built.tag, env=env)
        assert pushed.code == 0, pushed.said
        assert address in (helper.parent / "asked").read_text()
        assert "s3cret" not in pushed.said
        encoded = base64.b64encode(b"team:s3cret").decode()
        (docker / "config.json").write_text(json.dumps({"auths": {address: {"auth": encoded}}}))
        assert sbx("image", "pull", reference, env=env).code == 0
        (docker / "config.json").write_text(json.dumps({"credsStore": "missing"}))
        broken = sbx("image", "pull", reference, env=env)
        assert (broken.code, "credential helper" in broken.stderr) == (2, True), broken.said
    sbx("image", "rm", reference)


class Fake(http.server.BaseHTTPRequestHandler):
    """A registry that answers as its class says."""

    status = 200
    body = b"{}"

    def do_GET(self) -> None:
        ping = self.path == "/v2/"
        self.send_response(200 if ping else self.status)
        self.send_header("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def fake(status: int, body: bytes) -> Iterator[str]:
    handler = type("Handler", (Fake,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


DIGEST = "sha256:" + "ab" * 32
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 2, "digest": DIGEST},
        "layers": [],
    }
).encode()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, MANIFEST, "did not match|verification failed|mismatch|digest"),
        (401, b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}', "unauthorized"),
        (429, b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}', "toomanyrequests|slow down|429"),
        (404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}', "manifest unknown"),
        (500, b"oops", "500|oops|error"),
    ],
    ids=["another-digest", "401", "429", "404", "500"],
)
def test_a_registry_that_refuses_or_lies_is_an_images_error(
    sbx: Sbx, engine: Engine, status: int, body: bytes, said: str
) -> None:
    with fake(status, body) as address:
        done = sbx("image", "pull", f"{address}/{NAME}@{DIGEST}")
    assert done.code == 5, done.said
    assert __import__("re").search(said, done.stderr.lower()), done.stderr


def test_a_registry_that_says_nothing_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(share, "SILENCE", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ImageError, match="nothing came for 2 s"):
        share.pull(connect(), f"127.0.0.1:{silent.getsockname()[1]}/{NAME}:1")


@pytest.mark.slow
def test_images_are_listed_removed_and_pruned(sbx: Sbx, engine: Engine, built: Built, kit: Path) -> None:
    kit = Path(shutil.move(kit, kit.with_name("prune")))
    spec = kit / "spec.yaml"
    spec.write_text(spec.read_text().replace(f"name: {NAME}\n", f"name: {NAME}-prune\n"))
    for word in ("first", "second"):
        done = sbx("image", "build", kit, "-q", "--kit-arg", f"{NAME}-four.word={word}")
        assert done.code == 0, done.said
        four = kit / "four" / "spec.yaml"
        four.write_text(four.read_text().replace("echo four", "echo four again"))
    listed = [i for i in json.loads(sbx("image", "ls", "--json").stdout) if i["kit"] == f"{NAME}-prune"]
    assert len([image for image in listed if image["shareable"]]) == 2
    pruned = sbx("image", "prune", f"{NAME}-prune", "--json")
    assert pruned.code == 0, pruned.said
    left = [i for i in json.loads(sbx("image", "ls", "--json").stdout) if i["kit"] == f"{NAME}-prune" and i["tags"]]
    assert [image["id"] for image in left] == [listed[0]["id"]]
    assert sbx("image", "rm", left[0]["tags"][0]).code == 0
    assert sbx("image", "rm", left[0]["tags"][0]).code == 3
    other = sbx("image", "rm", built.lock["base"]["from"])
    assert (other.code, "not made by sbx" in other.stderr) == (2, True)
