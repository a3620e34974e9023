"""The image that tests start containers from: the base with what the guest needs, and nothing else."""

from __future__ import annotations

from functools import cache


@cache
def plain_image() -> str:
    """Its tag; built when it is not there."""
    from runner.engine import connect
    from runner.images.build import ensure
    from runner.kits.plan import Base, Plan

    return ensure(connect(), Plan(name="test-plain", base=Base(), layers=())).tag
