"""`sbx image verify`, `sign` and `diff`: what was tampered with is found, whatever the image says of itself."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.engine import Engine
from runner.images import content, lock, recipe, sealed
from runner.images.program import ContextFile
from tests.conformance.main.conftest import Done, Sbx
from tests.conformance.share.conftest import NAME, Built

pytestmark = [pytest.mark.engine, pytest.mark.slow]

Tamper = Callable[..., str]


@pytest.fixture
def tamper(engine: Engine, built: Built, request: pytest.FixtureRequest) -> Tamper:
    """Makes an image like the built one, with some files and labels changed, as anybody can."""

    def make(files: Mapping[str, bytes] | None = None, labels: Mapping[str, str] | None = None) -> str:
        with engine.call("tampering", 120):
            container = engine.api.create_container(built.id, ["true"], labels={"dev.sbx.test": "share"})
            try:
                raw = io.BytesIO()
                with tarfile.open(fileobj=raw, mode="w") as tar:
                    for path, data in (files or {}).items():
                        member = tarfile.TarInfo(path)
                        member.size, member.mode = len(data), 0o755
                        tar.addfile(member, io.BytesIO(data))
                engine.api.put_archive(container, "/", raw.getvalue())
                # The rest of the configuration as it was, so that nothing but the change shows.
                config = engine.api.inspect_image(built.id)["Config"]
                made = engine.api.commit(
                    container,
                    conf={**config, "Labels": {**config["Labels"], **(labels or {})}},
                    repository=f"sbx/{NAME}-tampered",
                    tag=str(abs(hash(request.node.name)))[:8],
                )
            finally:
                engine.api.remove_container(container, force=True)
        return str(made["Id"])

    return make


def verify(sbx: Sbx, image: str, *arguments: str | Path) -> tuple[Done, dict[str, Any]]:
    done = sbx("image", "verify", image, *arguments, "--json")
    return done, json.loads(done.stdout)


def test_an_image_is_proved_by_the_lock_beside_its_kit(sbx: Sbx, built: Built) -> None:
    done, told = verify(sbx, built.tag, built.kit)
    assert done.code == 0, done.said
    assert (told["ok"], told["proof"], told["faults"]) == (True, "lock", [])
    assert told["checked"]["layers"] == len(built.lock["layers"])


def test_without_a_kit_it_is_consistency_only_and_says_so(sbx: Sbx, built: Built) -> None:
    done = sbx("image", "verify", built.tag)
    assert done.code == 0
    assert "That is no proof of where it comes from" in done.stdout


def test_a_kit_without_a_lock_proves_nothing(sbx: Sbx, built: Built, kit: Path) -> None:
    (kit / "sbx.lock").unlink()
    done = sbx("image", "verify", built.tag, kit)
    assert done.code == 5
    assert "no lock beside the kit" in done.stderr


def test_a_kit_that_changed_since_its_lock_is_told(sbx: Sbx, built: Built, kit: Path) -> None:
    with (kit / "two" / "spec.yaml").open("a") as file:
        file.write("description: changed\n")
    done, told = verify(sbx, built.tag, kit)
    assert done.code == 5
    assert any(f"{NAME}-two: its content changed" in line for line in told["faults"])


def test_a_tampered_file_is_named(sbx: Sbx, built: Built, tamper: Tamper) -> None:
    image = tamper({"usr/bin/git": b"#!/bin/sh\nevil\n"})
    done, told = verify(sbx, image)
    assert done.code == 5
    assert any(line.startswith("file /usr/bin/git: ") and "content" in line for line in told["faults"])


def test_a_tampered_label_is_named(sbx: Sbx, built: Built, tamper: Tamper) -> None:
    done, told = verify(sbx, tamper(labels={"dev.sbx.plan": "0" * 64}))
    assert done.code == 5
    assert any(line.startswith("label dev.sbx.plan: ") for line in told["faults"])


def test_an_image_made_to_fit_itself_fails_against_the_lock(
    sbx: Sbx, engine: Engine, built: Built, tamper: Tamper
) -> None:
    """An attacker with our own code: the file is changed, and manifest, lock, recipe and labels all say so."""
    below = tamper({"usr/bin/git": b"#!/bin/sh\nevil\n"})
    image = sealed.read_image(engine, below)
    files, kept = image.files()
    own = recipe.read(kept, files)
    document = json.loads(own["lock.json"])
    document["layers"] = list(image.digests)
    listing = content.manifest(files)
    document["files"] = __import__("hashlib").sha256(listing).hexdigest()
    document["contents"] = [lock.contents(layer) for layer in image.layers]
    forged = {**own, "lock.json": lock.render(document), "manifest": listing}
    made = recipe.Recipe(tuple(ContextFile(path, data) for path, data in sorted(forged.items())))
    label = {recipe.LABEL: made.digest(), recipe.LABEL_BELOW: below}
    with engine.call("forging", 120):
        container = engine.api.create_container(below, ["true"], labels={"dev.sbx.test": "share"})
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            for path, data in forged.items():
                member = tarfile.TarInfo(f"{recipe.FOLDER}/{path}")
                member.size, member.mode = len(data), 0o644
                tar.addfile(member, io.BytesIO(data))
        engine.api.put_archive(container, "/", raw.getvalue())
        config = engine.api.inspect_image(built.id)["Config"]
        conf = {**config, "Labels": {**config["Labels"], **label}}
        forgery = str(engine.api.commit(container, conf=conf, repository=f"sbx/{NAME}-tampered", tag="fit")["Id"])
        engine.api.remove_container(container, force=True)
    _, alone = verify(sbx, forgery)
    assert alone["faults"] == [], "the forgery is meant to be of one piece"
    done, told = verify(sbx, forgery, built.kit)
    assert done.code == 5
    assert told["faults"][0].startswith("id: ")
    assert any("manifest" in line for line in told["faults"])


def test_a_variable_slipped_into_the_configuration_is_told(sbx: Sbx, engine: Engine, built: Built) -> None:
    with engine.call("tampering", 120):
        container = engine.api.create_container(built.id, ["true"], labels={"dev.sbx.test": "share"})
        config = engine.api.inspect_image(built.id)["Config"]
        conf = {**config, "Env": [*config["Env"], "LD_PRELOAD=/tmp/evil.so"]}
        image = engine.api.commit(container, conf=conf, repository=f"sbx/{NAME}-tampered", tag="env")["Id"]
        engine.api.remove_container(container, force=True)
    done, told = verify(sbx, image)
    assert done.code == 5
    assert any("LD_PRELOAD" in line for line in told["faults"])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    (tmp_path / "allowed_signers").write_text(f"team@example.com {path.with_suffix('.pub').read_text()}")
    return path


def test_a_signature_proves_an_image_and_a_policy_can_demand_it(sbx: Sbx, built: Built, kit: Path, key: Path) -> None:
    config = sbx.root / "config" / "sbx"
    config.mkdir(parents=True)
    (config / "policy.yaml").write_text("images: {signers: [team@example.com]}\n")
    (config / "allowed_signers").write_bytes((key.parent / "allowed_signers").read_bytes())
    (sbx.root / "work").mkdir()
    refused = sbx("run", built.tag, sbx.root / "work", "--demo", "-p", "hello")
    assert refused.code == 6, refused.said
    assert "not signed" in refused.stderr

    assert sbx("image", "sign", kit, "--key", key).code == 0
    done, told = verify(sbx, built.tag, "--allowed-signers", key.parent / "allowed_signers")
    assert done.code == 0, done.said
    assert (told["proof"], told["signer"]) == ("signature", "team@example.com")
    both, told = verify(sbx, built.tag, kit, "--allowed-signers", key.parent / "allowed_signers")
    assert (both.code, told["proof"]) == (0, "lock and signature")
    allowed = sbx("run", built.tag, sbx.root / "work", "--demo", "-p", "hello")
    assert allowed.code == 0, allowed.said

    (config / "policy.yaml").write_text("images: {signers: [somebody-else]}\n")
    assert sbx("run", built.tag, sbx.root / "work", "--demo", "-p", "hello").code == 6


def test_a_signature_of_an_unknown_key_is_no_proof(sbx: Sbx, built: Built, kit: Path, key: Path) -> None:
    assert sbx("image", "sign", kit, "--key", key).code == 0
    (key.parent / "others").write_text("you@example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJwrongwrongwrong\n")
    done = sbx("image", "verify", built.tag, kit, "--allowed-signers", key.parent / "others")
    assert done.code == 5


def test_diff_tells_files_and_variables(sbx: Sbx, built: Built, tamper: Tamper) -> None:
    image = tamper({"srv/new": b"x", "srv/one": b"changed\n"})
    done = sbx("image", "diff", built.tag, image, "--json")
    assert done.code == 0, done.said
    told = json.loads(done.stdout)
    assert "file /srv/new: added" in told["files"]
    assert any(line.startswith("file /srv/one: ") and "content" in line for line in told["files"])
    assert (told["packages"], told["variables"]) == ([], [])


def test_diff_tells_packages(sbx: Sbx, engine: Engine, built: Built, tamper: Tamper) -> None:
    status = b"Package: surprise\nStatus: install ok installed\nVersion: 1.0\n"
    told = json.loads(sbx("image", "diff", built.tag, tamper({"var/lib/dpkg/status": status}), "--json").stdout)
    assert "dpkg surprise: not there → 1.0" in told["packages"]
