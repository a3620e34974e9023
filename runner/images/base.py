"""What an image starts from: present, else pulled, else, for Debian, bootstrapped from Debian's own packages.

A registry that is not there and a registry that says no look alike to someone who only wants to start: for Debian
both end in the same small Debian. For any other image the registry's own words are the error.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from runner.engine import Engine
from runner.errors import EngineError, EngineUnreachable, ImageError, NotFoundError
from runner.images.events import Note, Output, Progress
from runner.kits.data import data_folder

PULL_SILENCE = 120.0
"""Seconds without a byte until a pull has failed."""
IMPORT_TIMEOUT = 600.0
IMPORT_CHUNK = 1024 * 1024
BOOTSTRAP_TIMEOUT = 1800
"""Seconds; it takes half a minute here."""
CLIENT_TIMEOUT = 10
LOG_LIMIT = 64 * 1024
SUITES = {"bookworm": "bookworm", "12": "bookworm", "trixie": "trixie", "13": "trixie", "latest": "bookworm"}
"""Debian's tags, to suites of which Python is new enough. Others are not bootstrapped."""
DEBIAN = re.compile(r"^(?:docker\.io/)?(?:library/)?debian(?::(?P<tag>[\w][\w.-]*))?$")


def resolve(engine: Engine, image: str, *, progress: Progress, pull: bool = False) -> str:
    """The reference to write after FROM; what it names is in the engine then.

    Args:
        image: the reference in the plan.
        progress: told of pulling and bootstrapping.
        pull: ask the registry even when the image is here, and make a bootstrapped base anew.

    Raises:
        ImageError: it cannot be had; tells the registry's answer and what to do.
    """
    if not pull and _present(engine, image):
        return image
    suite = debian_suite(image)
    own = bootstrapped_tag(suite) if suite else ""
    if own and not pull and _present(engine, own):
        return own
    try:
        _pull(engine, image, progress)
        return image
    except (EngineError, NotFoundError) as error:
        if isinstance(error, EngineUnreachable):
            raise
        if pull and _present(engine, image):
            progress(Note(f"{image} cannot be pulled ({error.message}); the one that is here is taken"))
            return image
        if not suite:
            raise ImageError(
                f"the base image {image} is not here and cannot be pulled: {error.message}",
                place=image,
                hint="log in with `docker login`, load it with `docker load`, or let the kit start from "
                "debian:bookworm-slim, which is made from packages where no registry answers",
            ) from error
        progress(Note(f"{image} cannot be pulled ({error.message}); making a small Debian from its packages"))
    bootstrap(engine, suite, progress=progress)
    return own


def debian_suite(image: str) -> str:
    """`bookworm` for `debian:bookworm-slim` and the like; empty for what is not bootstrapped."""
    match = DEBIAN.match(image)
    if match is None:
        return ""
    tag = (match["tag"] or "latest").removesuffix("-slim")
    tag = re.sub(r"-\d{8}$|(?<=^1[23])\.\d+$", "", tag)
    return SUITES.get("latest" if tag in ("stable", "slim") else tag, "")


def bootstrapped_tag(suite: str) -> str:
    """`sbx/debian:bookworm-HASH`; the hash is the recipe's."""
    recipe = (data_folder("images") / "debian" / "bootstrap").read_bytes()
    return f"sbx/debian:{suite}-{hashlib.sha256(recipe).hexdigest()[:12]}"


def bootstrap(engine: Engine, suite: str, *, progress: Progress) -> None:
    """Make a small Debian with debootstrap and import it as `bootstrapped_tag(suite)`.

    Raises:
        ImageError: not root, no debootstrap, or it failed; says what to install or to do elsewhere.
    """
    _check_host(suite)
    recipe = data_folder("images") / "debian" / "bootstrap"
    with tempfile.TemporaryFile() as archive, tempfile.TemporaryFile() as log:
        command = ["sh", str(recipe), suite, debian_mirror(suite), debian_mirror(f"{suite}-security")]
        with subprocess.Popen(command, stdout=archive, stderr=log, stdin=subprocess.DEVNULL) as process:
            try:
                code = process.wait(BOOTSTRAP_TIMEOUT)
            except BaseException:
                process.terminate()  # its trap removes the folder
                raise
        if code:
            log.seek(max(0, log.tell() - LOG_LIMIT))
            text = log.read(LOG_LIMIT).decode("utf-8", "replace")
            raise ImageError(
                f"a Debian {suite} could not be made from packages: debootstrap ended with {code}",
                log=text,
                hint="see its log; apt on this machine must reach a Debian mirror, the disk needs 1 GB free",
            )
        # The child wrote through the same description, whose position is now at the end.
        archive.seek(0)
        progress(Output(f"debootstrap {suite}: done, importing\n"))
        _import(engine, archive.fileno(), bootstrapped_tag(suite))


def debian_mirror(suite: str) -> str:
    """The mirror this host's apt takes `suite` from; empty for debootstrap's own, as on Ubuntu."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    for line in answer.stdout.splitlines():
        uri, _, release = line.partition(" ")
        if release == suite and uri.startswith(("http://", "https://", "file:/")):
            return uri
    return ""


def _check_host(suite: str) -> None:
    elsewhere = "or load an image made elsewhere: `docker save` there, `docker load` here"
    if os.geteuid() != 0:
        raise ImageError(
            "no registry answers, and a Debian can be made from packages by root only",
            hint="run the same command once as root on Debian or Ubuntu with debootstrap installed (the base "
            f"then stays in the engine), {elsewhere} (debian:{suite}-slim)",
        )
    if shutil.which("debootstrap") is None:
        raise ImageError(
            "no registry answers, and debootstrap is not installed to make a Debian from packages",
            hint=f"Debian, Ubuntu: `apt-get install debootstrap`; {elsewhere}",
        )
    if not Path("/usr/share/debootstrap/scripts", suite).exists():
        raise ImageError(f"this debootstrap does not know Debian {suite}", hint="upgrade debootstrap, " + elsewhere)


def _present(engine: Engine, image: str) -> bool:
    try:
        engine.get(f"/images/{image}/json", doing=f"looking for {image}")
    except NotFoundError:
        return False
    return True


def _pull(engine: Engine, image: str, progress: Progress) -> None:
    progress(Note(f"pulling {image}"))
    doing = f"pulling {image}"
    with engine.call(doing, PULL_SILENCE):
        reference = image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
        for message in engine.api.pull(reference, stream=True, decode=True):
            if error := message.get("error"):
                raise EngineError(str(error))
    if not _present(engine, image):
        raise EngineError(f"{image} is not there after pulling it")


def _import(engine: Engine, archive: int, tag: str) -> None:
    """Import the tar on descriptor `archive`. The engine tags at the end: what is cut leaves no image."""
    repository, _, name = tag.rpartition(":")
    with engine.call("importing the bootstrapped Debian", IMPORT_TIMEOUT), os.fdopen(os.dup(archive), "rb") as source:
        # The SDK says "chunked" and sends a file plainly; only a generator is chunked for real.
        chunks = iter(lambda: source.read(IMPORT_CHUNK), b"")
        answer = engine.api.import_image_from_stream(
            (chunk for chunk in chunks),
            repository=repository,
            tag=name,
            changes=["LABEL dev.sbx.base=debian", 'CMD ["bash"]'],
        )
    if '"error"' in str(answer):
        raise EngineError(f"the bootstrapped Debian could not be imported: {answer}")
