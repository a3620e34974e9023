"""Signatures over a lock, with the real ssh-keygen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from runner.errors import ConfigError, ImageError, UsageError
from runner.gateway.rules import PolicyFile
from runner.images import lock, signing
from runner.images.share import parse_reference

LOCK = {
    "lock": 1,
    "image": "sha256:" + "a" * 64,
    "packages": {},
    "layers": [],
    "contents": [],
    "kits": [],
    "base": {},
    "plan": "p",
    "files": "f",
}


def key(folder: Path, name: str, password: str = "") -> Path:
    path = folder / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", password, "-C", name, "-f", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A signed lock, with the signer in `allowed` beside it."""
    file = tmp_path / lock.NAME
    file.write_bytes(lock.render(LOCK))
    mine = key(tmp_path, "mine")
    public = mine.with_suffix(".pub").read_text()
    (tmp_path / "allowed").write_text(f"me@example.com {public}")
    signing.sign(file, mine)
    return file


def check(file: Path, allowed: Path | None = None, signers: tuple[str, ...] | None = None) -> signing.Evidence:
    signature = file.with_name(f"{file.name}.sig").read_bytes()
    return signing.check(file.read_bytes(), signature, allowed or file.with_name("allowed"), signers)


def test_a_signature_proves_who_signed_which_lock(signed: Path) -> None:
    found = check(signed)
    assert (found.source, found.signer, found.lock) == ("signature", "me@example.com", LOCK)


def test_a_changed_lock_is_not_signed(signed: Path) -> None:
    signed.write_bytes(signed.read_bytes().replace(b"sha256:aaaa", b"sha256:bbbb"))
    with pytest.raises(ImageError, match="does not fit the lock"):
        check(signed)


def test_a_key_that_nobody_allowed_does_not_count(signed: Path, tmp_path: Path) -> None:
    (tmp_path / "others").write_text(f"you@example.com {key(tmp_path, 'yours').with_suffix('.pub').read_text()}")
    with pytest.raises(ImageError, match="key is not in"):
        check(signed, tmp_path / "others")


def test_only_the_signers_that_a_policy_names_count(signed: Path) -> None:
    assert check(signed, signers=("me@example.com",)).signer == "me@example.com"
    with pytest.raises(ImageError, match="signed by none of you@example.com"):
        check(signed, signers=("you@example.com",))


def test_a_signature_for_another_purpose_does_not_count(signed: Path, tmp_path: Path) -> None:
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(tmp_path / "mine"), str(signed)]
    signed.with_name(f"{signed.name}.sig").unlink()
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ImageError, match="does not fit"):
        check(signed)


def test_a_key_with_a_password_fails_without_asking(signed: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be signed"):
        signing.sign(signed, key(tmp_path, "closed", "secret"))


def test_a_lock_that_names_no_image_is_not_signed(tmp_path: Path) -> None:
    file = tmp_path / lock.NAME
    file.write_bytes(lock.render({**LOCK, "image": ""}))
    with pytest.raises(ConfigError, match="names no image"):
        signing.sign(file, tmp_path / "none")


def test_policies_bind_together() -> None:
    system = PolicyFile("/etc/sbx/policy.yaml", images_signers=("a", "b"))
    user = PolicyFile("/home/me/policy.yaml", images_signers=("b", "c"))
    assert signing.demanded([system, user]) == (("b",), Path("/etc/sbx/allowed_signers"))
    assert signing.demanded([PolicyFile("x")]) is None
    assert signing.demanded([PolicyFile("/x/p", images_signers=())]) == ((), Path("/x/allowed_signers"))


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sbx/coder:1", ("sbx/coder", "1", "")),
        ("coder", ("coder", "latest", "")),
        ("127.0.0.1:5000/team/coder", ("127.0.0.1:5000/team/coder", "latest", "")),
        ("host.example:443/a/b:v1.2", ("host.example:443/a/b", "v1.2", "")),
        (f"host/a@{DIGEST}", ("host/a", "", DIGEST)),
        (f"host:1/a:t@{DIGEST}", ("host:1/a", "t", DIGEST)),
    ],
)
def test_references_are_taken_apart(text: str, parts: tuple[str, str, str]) -> None:
    found = parse_reference(text)
    assert (found.name, found.tag, found.digest) == parts


@pytest.mark.parametrize(
    "text",
    ["", "Coder:1", "a:b:c", "a/../b", "a b", "a@sha256:12", "a:", "/a", "a//b", "-a", "a:" + "x" * 129, "a\n:1"],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an image's reference"):
        parse_reference(text)
