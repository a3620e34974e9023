"""`sbx image`: build, share, compare and check the images of kits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.images.events import Progress
    from runner.kits.plan import Plan

app = typer.Typer(help="Build, share, compare and check images.", no_args_is_help=True, rich_markup_mode=None)

JSON = typer.Option(False, "--json", help="Print JSON.")
QUIET = typer.Option(False, "-q", "--quiet", help="Show no progress.")
KITS = typer.Option([], "--kit", help="A further mixin. Repeatable.")
KIT_ARGS = typer.Option([], "--kit-arg", help="[KIT.]NAME=VALUE. Repeatable.")
KIT_ARGS_FILE = typer.Option(None, "--kit-args-file", help="File of [KIT.]NAME=VALUE lines, or YAML; --kit-arg wins.")


@app.command("build")
def build(
    kit: str = typer.Argument(..., help="A kit's name or folder."),
    kits: list[str] = KITS,
    kit_arg: list[str] = KIT_ARGS,
    kit_args_file: Path | None = KIT_ARGS_FILE,
    show: bool = typer.Option(False, "--print", help="Print the Dockerfile and build nothing."),
    no_cache: bool = typer.Option(False, "--no-cache", help="Build every step anew."),
    pull: bool = typer.Option(False, "--pull", help="Ask the registry for a newer base."),
    locked: bool = typer.Option(False, "--locked", help="Fail (code 5) on anything that differs from the lock."),
    lock_file: Path = typer.Option(None, "--lock", help="The lock (default: sbx.lock beside the kit)."),
    tag: list[str] = typer.Option([], "-t", "--tag", help="A further name for the image. Repeatable."),
    ca_certificate: list[Path] = typer.Option([], "--ca-certificate", help="PEM file to trust. Repeatable."),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Build a kit's image so that it can be shared, and write its lock."""
    from runner.errors import ConfigError
    from runner.gateway import rules
    from runner.gateway.building import ClosedBuilds
    from runner.images import build as builds
    from runner.images import dockerfile, lock, recipe, sealed, share
    from runner.kits.arguments import kit_arguments
    from runner.kits.find import Finder

    plan = _plan(kit, kits, kit_arguments(kit_arg, kit_args_file))
    if show:
        sys.stdout.write(dockerfile.render(plan, lock.base_name(plan), builds.labels_of(plan, dockerfile.digest(plan))))
        return 0
    for name in tag:
        share.parse_reference(name)
    finder = Finder(dict(os.environ))
    place = lock_file or _lock_place(finder.locate(kit, "sandbox").folder, plan.name)
    if locked and not place.is_file():
        raise ConfigError("there is no lock to hold to", place=str(place), hint=f"`sbx image build {kit}` writes it")
    engine = _engine()
    done = sealed.seal(
        engine,
        plan,
        recipe.folders_of(plan, finder),
        locked=lock.load(place) if locked else None,
        progress=_progress(quiet or as_json),
        certificates=ca_certificate,
        no_cache=no_cache,
        pull=pull,
        network=ClosedBuilds(engine, plan, rules.load(rules.policy_paths(os.environ)), os.environ),
    )
    for name in tag:
        wanted = share.parse_reference(name)
        builds.set_tag(engine, done.image.id, f"{wanted.name}:{wanted.tag}")
    if not locked:
        _write(place, lock.render(done.lock))
    if as_json:
        print(json.dumps({"image": done.image.tag, "id": done.image.id, "tags": tag, "lock": str(place)}, indent=2))
    else:
        _say(done.image.tag, f"lock: {place}{' (held to)' if locked else ''}")
    return 0


@app.command("push")
def push(
    reference: str = typer.Argument(..., metavar="REF", help="HOST/NAME:TAG."),
    source: str = typer.Argument("", metavar="[IMAGE]", help="A kit, or an image here, that gets this name first."),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Push an image, and its signature; prints NAME@sha256:…, which pins it."""
    from runner.images import share

    engine = _engine()
    pinned = share.push(
        engine, reference, source=_image(source) if source else "", progress=_progress(quiet or as_json)
    )
    print(json.dumps({"pushed": reference, "pinned": pinned}, indent=2) if as_json else pinned)
    return 0


@app.command("pull")
def pull(
    reference: str = typer.Argument(..., metavar="REF", help="NAME:TAG or NAME@sha256:…"),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Pull an image, and its signature if there is one."""
    from runner.images import share

    identity = share.pull(_engine(), reference, progress=_progress(quiet or as_json))
    print(json.dumps({"pulled": reference, "id": identity}, indent=2) if as_json else identity)
    return 0


@app.command("save")
def save(
    file: Path = typer.Argument(..., metavar="FILE.tar"),
    references: list[str] = typer.Argument(..., metavar="IMAGE…", help="Kits, or images here."),
    quiet: bool = QUIET,
) -> int:
    """Write images, and their signatures, to a file that `sbx image load` takes."""
    from runner.images import share

    size = share.save(_engine(), file, [_image(text) for text in references], progress=_progress(quiet))
    _say(f"{file}: {size / 1e6:.0f} MB")
    return 0


@app.command("load")
def load(
    file: Path = typer.Argument(..., metavar="FILE.tar"),
    replace: bool = typer.Option(False, "--replace", help="Move a name that another image has here."),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Load images from a file, after all of it was checked."""
    from runner.images import share

    names = share.load(_engine(), file, replace=replace, progress=_progress(quiet or as_json))
    if as_json:
        print(json.dumps({"loaded": names}, indent=2))
    else:
        _say(*names)
    return 0


@app.command("ls")
def ls(as_json: bool = JSON) -> int:
    """List the images that sbx made."""
    from runner.images import share

    images = share.ls(_engine())
    if as_json:
        print(json.dumps([image.to_json() for image in images], indent=2))
        return 0
    _say(*_table(images))
    return 0


@app.command("rm")
def rm(references: list[str] = typer.Argument(..., metavar="IMAGE…", help="Names or ids of images.")) -> int:
    """Remove images that sbx made."""
    from runner.images import share

    engine = _engine()
    for reference in references:
        share.rm(engine, reference)
    return 0


@app.command("prune")
def prune(
    kits: list[str] = typer.Argument(None, metavar="[KIT…]", help="Only images of these kits."),
    everything: bool = typer.Option(False, "--all", help="Also the newest image of each kit."),
    as_json: bool = JSON,
) -> int:
    """Remove images that no sandbox uses, all but the newest of each kit."""
    from runner.images import share

    gone = share.prune(_engine(), kits or (), everything=everything)
    if as_json:
        print(json.dumps([image.to_json() for image in gone], indent=2))
        return 0
    _say(*_table(gone), f"{len(gone)} images removed")
    return 0


@app.command("diff")
def diff(
    first: str = typer.Argument(..., metavar="A", help="A kit, or an image here."),
    second: str = typer.Argument(..., metavar="B"),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Tell what differs between two images: packages, files, variables."""
    from runner.images.verify import diff as compare

    progress = _progress(quiet or as_json)
    found = compare(_engine(), _image(first), _image(second), progress=progress, limit=1_000_000 if as_json else 200)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return 0
    for title, lines in (("packages", found.packages), ("variables", found.variables), ("files", found.files)):
        _say(f"{title}: {len(lines) or 'none'}", *(f"  {line}" for line in lines))
    return 0


@app.command("verify")
def verify(
    reference: str = typer.Argument(..., metavar="REF", help="An image here, or a kit."),
    kit: str = typer.Argument("", metavar="[KIT]", help="The kit that it should be what it makes."),
    allowed_signers: Path = typer.Option(None, "--allowed-signers", help="OpenSSH's file of keys that may sign."),
    lock_file: Path = typer.Option(None, "--lock", help="A lock that lies elsewhere than beside the kit."),
    as_json: bool = JSON,
    quiet: bool = QUIET,
) -> int:
    """Hash all of an image, and prove by KIT's lock or by a signature that it is what the kit makes (else code 5)."""
    from runner.images.evidence import gather
    from runner.images.verify import verify as check

    engine = _engine()
    name = _image(reference)
    plan = _plan(kit, (), ()) if kit else None
    place = lock_file or (_kit_lock(kit, plan) if plan else None)
    evidence = gather(engine, name, place, allowed_signers)
    verdict = check(engine, name, evidence=evidence, plan=plan, progress=_progress(quiet or as_json))
    if as_json:
        print(json.dumps(verdict.to_json(), indent=2))
        return 5 if verdict.faults else 0
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled

    if verdict.faults:
        _say(f"{name} is not what it should be:")
        Output(sys.stdout).lines(Styled(f"  {safe_line(line)}", "red") for line in verdict.faults)
        return 5
    counts = f"{verdict.checked['layers']} layers and {verdict.checked['files']} files hashed"
    if verdict.proof == "none":
        _say(
            f"{name} is consistent ({counts}).",
            "That is no proof of where it comes from: name the KIT with its lock, or --allowed-signers FILE.",
        )
    else:
        by = f", signed by {verdict.signer}" if verdict.signer else ""
        _say(f"{name} is what its kit makes ({counts}), proved by {verdict.proof}{by}.")
    return 0


@app.command("sign")
def sign(
    kit: str = typer.Argument(..., help="The kit whose lock is signed."),
    key: Path = typer.Option(..., "--key", help="SSH key: a private one, or a public one that ssh-agent holds."),
    lock_file: Path = typer.Option(None, "--lock", help="A lock that lies elsewhere than beside the kit."),
) -> int:
    """Sign the lock beside a kit, which names the image; the signature travels with the image."""
    from runner.errors import SbxError
    from runner.images import lock, signing

    place = lock_file or _kit_lock(kit, _plan(kit, (), ()))
    signature = signing.sign(place, key)
    _say(str(signature))
    document = lock.load(place)
    try:
        engine = _engine()
        engine.get(f"/images/{document['image']}/json", doing="looking for the image")
        signing.keep(engine, document["image"], place.read_bytes(), signature.read_bytes())
    except SbxError as error:
        _warn(f"the image is not here, so that the signature lies beside the kit only: {error.message}")
    return 0


def _plan(kit: str, kits: Sequence[str], kit_args: Sequence[str]) -> Plan:
    from runner.kits.arguments import parse_kit_arguments
    from runner.kits.compose import compose
    from runner.kits.find import Finder

    return compose(kit, kits, arguments=parse_kit_arguments(kit_args), finder=Finder(dict(os.environ)))


def _image(text: str) -> str:
    """An image's reference or id as it stands; a kit's name or folder is its image's tag."""
    import re

    from runner.images.build import tag
    from runner.kits.find import names_image

    if names_image(text) or re.fullmatch(r"[0-9a-f]{12,64}", text):
        return text
    return tag(_plan(text, (), ()))


def _kit_lock(kit: str, plan: Plan) -> Path:
    from runner.kits.find import Finder

    return _lock_place(Finder(dict(os.environ)).locate(kit, "sandbox").folder, plan.name)


def _lock_place(folder: Path, name: str) -> Path:
    """Beside the kit; for kits that are not the user's own to write to, in the state folder."""
    from runner.images import lock
    from runner.kits.data import data_folder
    from runner.kits.find import Finder
    from runner.session.state import Folders, private

    cached = Finder(dict(os.environ)).cache_folder()
    if folder.is_relative_to(data_folder("sbx")) or folder.is_relative_to(cached) or not os.access(folder, os.W_OK):
        return private(Folders.of(os.environ).state / "locks") / f"{name}.lock"
    return folder / lock.NAME


def _write(place: Path, data: bytes) -> None:
    from runner.errors import UsageError

    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        aside.write_bytes(data)
        aside.replace(place)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise UsageError(f"the lock cannot be written: {error.strerror}", place=str(place)) from None


def _engine() -> Engine:
    from runner.engine import connect

    return connect(os.environ)


def _progress(quiet: bool) -> Progress:
    from runner.images.events import ignore

    if quiet:
        return ignore
    from runner.frontends.progress import BuildProgress
    from runner.frontends.terminal import Output

    return BuildProgress(Output(sys.stderr))


def _table(images: Sequence[Any]) -> list[str]:
    lines = []
    for image in images:
        names = " ".join(image.tags) or image.id.removeprefix("sha256:")[:12]
        marks = ["shareable"] if image.shareable else []
        marks += [f"{image.containers} sandboxes"] if image.containers else []
        lines.append(f"{image.kit:<20} {image.size / 1e6:>7.0f} MB  {names}  {', '.join(marks)}".rstrip())
    return lines


def _say(*lines: str) -> None:
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled

    Output(sys.stdout).lines(Styled(safe_line(line)) for line in lines)


def _warn(line: str) -> None:
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled

    Output(sys.stderr).lines([Styled(safe_line(line), "yellow")])
