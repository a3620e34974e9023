"""What is known of an image from outside it, put together for `verify`."""

from __future__ import annotations

from pathlib import Path

from runner.engine import Engine
from runner.errors import ConfigError, ImageError, NotFoundError
from runner.images import lock, signing
from runner.images.verify import Evidence


def gather(engine: Engine, reference: str, place: Path | None, allowed: Path | None) -> tuple[Evidence, ...]:
    """The lock in `place`, and the signature, when they were asked for.

    Args:
        reference: of an image here.
        place: of the lock beside the kit.
        allowed: `allowed_signers` file; the signature beside the lock counts, else the one that came with the image.

    Raises:
        ImageError: what was asked for is not there, or a signature is not right.
        ConfigError: a file cannot be read.
    """
    found: list[Evidence] = []
    if place is not None:
        if not place.is_file():
            raise ImageError(
                "nothing proves that the image is what this kit makes: there is no lock beside the kit",
                place=str(place),
                hint="the team's lock belongs beside the kit; `sbx image build KIT` writes that of a build here",
            )
        found.append(Evidence(lock.load(place), "lock"))
    if allowed is not None:
        found.append(signing.check(*_signature(engine, reference, place), allowed))
    return tuple(found)


def _signature(engine: Engine, reference: str, place: Path | None) -> tuple[bytes, bytes]:
    if place is not None:
        beside = place.with_name(f"{place.name}.sig")
        try:
            return place.read_bytes(), beside.read_bytes()
        except FileNotFoundError:
            pass  # then the one that came with the image
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", place=str(beside)) from None
    try:
        identity = str(engine.get(f"/images/{reference}/json", doing=f"looking for {reference}")["Id"])
    except NotFoundError:
        raise NotFoundError(f"there is no image {reference} here", hint="`sbx image pull REF`") from None
    pair = signing.kept(engine, identity)
    if pair is None:
        raise ImageError(
            f"{reference} is not signed, as far as is known here",
            place=reference,
            hint="`sbx image pull REF` brings a signature along; `sbx image sign KIT --key KEY` makes one",
        )
    return pair
