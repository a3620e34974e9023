"""Signatures over a lock, by OpenSSH: a team has such keys already, and git knows `allowed_signers` files too.

A signature travels as an image of its own, `NAME:sha256-ID.sig` beside the image of that id, with two files in it: the
lock and the signature. Neither is trusted for lying there: the signature is over the lock, the lock names the image.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.engine import Engine
from runner.errors import ConfigError, ImageError, NotFoundError, RefusedError
from runner.images import content, lock
from runner.images.build import set_tag
from runner.images.verify import Evidence

NAMESPACE = "sbx-lock"
"""What a signature is for; one made for something else does not count."""
TIMEOUT = 60.0
"""Seconds for ssh-keygen; a key on a token waits for a touch."""
MAX_SIGNATURE = 64 * 1024
REPOSITORY = "sbx/signature"
LABEL = "dev.sbx.signature"
"""Id of the image that is signed."""


def sign(file: Path, key: Path) -> Path:
    """Sign a lock with an SSH key: a private one, or a public one whose private half an agent holds.

    Returns: the signature's file, `FILE.sig`.

    Raises:
        ConfigError: the lock names no image, or the key cannot be used.
    """
    if not lock.load(file).get("image"):
        raise ConfigError("names no image", place=str(file), hint="`sbx image build KIT` writes it")
    signature = file.with_name(f"{file.name}.sig")
    with tempfile.TemporaryDirectory(prefix="sbx-sign-") as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(file.read_bytes())
        done = _ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(copy))
        made = copy.with_name(f"{copy.name}.sig")
        if done.returncode or not made.exists():
            raise ConfigError(f"the lock cannot be signed: {_last(done)}", place=str(key))
        aside = signature.with_name(f".{signature.name}.{os.getpid()}")
        aside.write_bytes(made.read_bytes())
        aside.replace(signature)
    return signature


def check(raw: bytes, signature: bytes, allowed: Path, signers: Sequence[str] | None = None) -> Evidence:
    """The lock, if somebody whom `allowed` names signed it.

    Args:
        raw: the lock's file.
        signature: its signature's file.
        allowed: an `allowed_signers` file of OpenSSH's.
        signers: who of them counts; None: everybody.

    Raises:
        ConfigError: `allowed` is not there.
        ImageError: nobody of them signed this lock.
    """
    if not allowed.is_file():
        raise ConfigError("there is no such file", place=str(allowed), hint="one line a signer: NAME ssh-ed25519 KEY")
    with tempfile.TemporaryDirectory(prefix="sbx-verify-") as folder:
        place = Path(folder) / "signature"
        place.write_bytes(signature)
        found = _ssh_keygen("-Y", "find-principals", "-s", str(place), "-f", str(allowed))
        names = [name for line in found.stdout.decode("utf-8", "replace").splitlines() for name in line.split(",")]
        names = [name.strip() for name in names if name.strip()]
        if found.returncode or not names:
            raise ImageError(f"the signature's key is not in {allowed}: {_last(found)}", place=str(allowed))
        if signers is not None and not (names := [name for name in names if name in signers]):
            raise ImageError(f"signed by none of {', '.join(signers)}", place=str(allowed))
        why = ""
        for name in names:
            arguments = ["-Y", "verify", "-n", NAMESPACE, "-s", str(place), "-f", str(allowed), "-I", name]
            done = _ssh_keygen(*arguments, stdin=raw)
            if done.returncode == 0:
                return Evidence(lock.parse(raw, "the signed lock"), "signature", name)
            why = _last(done)
    raise ImageError(f"the signature does not fit the lock: {why}", place=str(allowed))


def tag_of(identity: str, repository: str = REPOSITORY) -> str:
    """The signature's tag for the image of this id."""
    return f"{repository}:{identity.replace(':', '-')}.sig"


def keep(engine: Engine, identity: str, raw: bytes, signature: bytes) -> str:
    """Lay a lock and its signature into the engine, beside the image. Returns the tag."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in ((lock.NAME, raw), (f"{lock.NAME}.sig", signature)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    tag = tag_of(identity)
    repository, _, version = tag.rpartition(":")
    with engine.call("keeping the signature"):
        data = packed.getvalue()
        engine.api.import_image_from_stream(
            (chunk for chunk in (data,)), repository=repository, tag=version, changes=[f"LABEL {LABEL}={identity}"]
        )
    return tag


def kept(engine: Engine, identity: str, repository: str = REPOSITORY) -> tuple[bytes, bytes] | None:
    """The lock and the signature that lie in the engine for an image; None when there are none."""
    tag = tag_of(identity, repository)
    try:
        document = engine.get(f"/images/{tag}/json", doing="looking for a signature")
    except NotFoundError:
        return None
    if int(document.get("Size") or 0) > lock.MAX_LOCK + MAX_SIGNATURE:
        raise ImageError("the signature's image is too large to be one", place=tag)
    with engine.call("reading the signature"):
        packed = b"".join(engine.api.get_image(tag))
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as outer:
        for layer in outer:
            source = outer.extractfile(layer) if layer.isfile() else None
            if source is None or not (layer.name.endswith("layer.tar") or layer.name.startswith("blobs/")):
                continue
            try:
                with tarfile.open(fileobj=io.BytesIO(source.read())) as inner:
                    for member in inner:
                        data = inner.extractfile(member) if member.isfile() else None
                        if data is not None and content.checked_name(member.name) in (lock.NAME, f"{lock.NAME}.sig"):
                            found[member.name] = data.read()
            except tarfile.TarError:
                continue
    if len(found) != 2:
        return None
    return found[lock.NAME], found[f"{lock.NAME}.sig"]


def adopt(engine: Engine, identity: str, tag: str) -> None:
    """Give a signature that came from elsewhere the tag under which it is looked for here."""
    set_tag(engine, tag, tag_of(identity))


def demand(engine: Engine, identity: str, reference: str, allowed: Path, signers: Sequence[str]) -> str:
    """A policy wants images signed: who signed this one.

    Raises:
        RefusedError: nobody of `signers` did.
    """
    pair = kept(engine, identity)
    if pair is None:
        raise RefusedError(
            f"the policy wants {reference} signed by {' or '.join(signers) or 'nobody'}, and it is not signed",
            place=reference,
            hint="`sbx image pull REF` brings a signature along where there is one",
        )
    try:
        known = check(*pair, allowed, signers)
    except ImageError as error:
        raise RefusedError(f"the policy wants {reference} signed: {error.message}", place=reference) from error
    if known.lock.get("image") != identity:
        raise RefusedError(f"the signature of {reference} is over another image", place=reference)
    return known.signer


def demanded(files: Sequence[Any]) -> tuple[tuple[str, ...], Path] | None:
    """Who must have signed, by the policy files (`gateway.rules.PolicyFile`), and the `allowed_signers` file.

    Several files bind together: only whom all of them name counts. The first such file says where keys are: beside it.
    """
    bound: tuple[str, ...] | None = None
    place: Path | None = None
    for file in files:
        if file.images_signers is not None:
            bound = file.images_signers if bound is None else tuple(s for s in bound if s in file.images_signers)
            place = place or Path(file.path).with_name("allowed_signers")
    return None if bound is None or place is None else (bound, place)


def _ssh_keygen(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environ: Mapping[str, str] = os.environ
    if not sys.stdin or not sys.stdin.isatty():
        environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "false"}
        environ.pop("DISPLAY", None)
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT,
            env=environ,
            start_new_session=environ is not os.environ,
        )
    except FileNotFoundError:
        raise ConfigError(
            "ssh-keygen is not installed", hint="Debian, Ubuntu: `apt-get install openssh-client`"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"ssh-keygen did not end within {TIMEOUT:g} s", hint="an encrypted key needs ssh-agent"
        ) from None


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return re.sub(r"/tmp/sbx-\S+/", "", lines[-1]) if lines else f"ssh-keygen ended with {done.returncode}"  # noqa: S108
