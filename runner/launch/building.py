"""The engine of a run (code 4), and its image, found by the plan or built (code 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.images.build import Image
    from runner.images.events import Progress
    from runner.launch.prepared import Prepared


def connect(prepared: Prepared) -> Engine:
    """The engine."""
    from runner.engine import connect as connect_engine

    return connect_engine(prepared.options.environ)


def find_image(engine: Engine, prepared: Prepared, progress: Progress) -> Image:
    """The plan's image, built when it is not there."""
    from runner.gateway import rules
    from runner.gateway.building import ClosedBuilds
    from runner.images.build import ensure

    options = prepared.options
    if prepared.what.image:
        return prepared.what.image
    environ = options.environ
    return ensure(
        engine,
        prepared.what.plan,
        progress=progress,
        certificates=options.certificates,
        no_cache=options.no_cache,
        pull=options.pull,
        network=ClosedBuilds(engine, prepared.what.plan, rules.load(rules.policy_paths(environ)), environ),
    )
