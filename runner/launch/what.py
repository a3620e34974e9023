"""Which kit is to run: found by its name, path or image, read and checked with its agent (codes 2 and 3)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.session.state import Folders, private

if TYPE_CHECKING:
    from runner.images.build import Image
    from runner.kits.agent import AgentFile
    from runner.kits.plan import Plan
    from runner.launch.options import Options
    from runner.session.kitsetup import KitFolder


@dataclass(frozen=True)
class What:
    """The kit, read and checked."""

    name: str
    folder: Path | None
    """The kit's folder; None for a kit that lives in an image."""
    agent: AgentFile
    plan: Plan
    image: Image | None = None
    """Set for a shared image, which brought the kit."""
    bringing: tuple[KitFolder, ...] = ()
    """The kits with hooks of their own, in order."""


def read_kit(options: Options) -> What:
    """The kit that `options.sandbox` names, with its agent."""
    from runner.kits import agent as agents
    from runner.kits.arguments import parse_kit_arguments
    from runner.kits.compose import compose
    from runner.kits.find import Finder, names_image
    from runner.session.kitsetup import HOOKS_FILE, KitFolder

    if names_image(options.sandbox):
        return _shared_kit(options)
    finder = Finder(dict(options.environ), image=lambda reference: _kit_in_image(options, reference))
    folder = finder.locate(options.sandbox, "sandbox").folder
    plan = compose(
        options.sandbox,
        options.kits,
        arguments=parse_kit_arguments(options.kit_args),
        finder=finder,
        strict=options.strict,
    )
    bringing = tuple(
        KitFolder(kit.name, found)
        for kit in plan.kits
        if (found := finder.locate(kit.path, kit.kind).folder) and (found / HOOKS_FILE).exists()
    )
    return What(plan.name, folder, agents.load_folder(folder, options.environ), plan, bringing=bringing)


def _shared_kit(options: Options) -> What:
    """The kit in a shared image; the policy may want the image signed."""
    from runner.engine import connect as connect_engine
    from runner.gateway import rules
    from runner.images import shared, signing
    from runner.kits import agent as agents

    for given, option in ((options.kits, "--kit"), (options.kit_args, "--kit-arg"), (options.no_cache, "--no-cache")):
        if given:
            raise UsageError(f"{option} changes what is built, and a shared image is built already")
    engine = connect_engine(options.environ)
    found = shared.open_shared(engine, options.sandbox, options.environ, pull=options.pull)
    if wanted := signing.demanded(rules.load(rules.policy_paths(options.environ))):
        signing.demand(engine, found.image.id, options.sandbox, wanted[1], wanted[0])
    agent = agents.load_folder(found.folder, options.environ)
    return What(found.plan.name, found.folder, agent, found.plan, image=found.image)


def _kit_in_image(options: Options, reference: str) -> Path:
    """The folder of the kit that an image carries."""
    from runner.engine import connect as connect_engine
    from runner.images.shared import open_shared

    return open_shared(connect_engine(options.environ), reference, options.environ).folder


def default_workspace(what: What, folders: Folders) -> Path:
    """The kit's `playground/`, else the current folder. That of an installed kit is copied, so that it stays whole."""
    from runner.kits.data import data_folder

    playground = what.folder / "playground" if what.folder else None
    if playground is None or not playground.is_dir():
        return Path.cwd()
    packed = data_folder("sbx")
    if packed.parent.name != "_data" or not playground.is_relative_to(packed):
        return playground
    copy = private(folders.state / "playgrounds") / what.name
    if not copy.exists():
        shutil.copytree(playground, copy, ignore=shutil.ignore_patterns(".mm"))  # not what hooks wrote there
    return copy


def hopeless(plan: Plan) -> list[str]:
    """What of the startup cannot work as it must run here."""
    from runner.kits.inspect import hopeless_startup

    return [
        f"kit {found.source}: the startup command {found.program} runs as user 0 without capabilities: {found.reason}"
        for found in hopeless_startup(plan.startup)
    ]
