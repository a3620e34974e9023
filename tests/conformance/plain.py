"""The image that tests start containers from: the base with what the guest needs, and ripgrep."""

from __future__ import annotations

from contextlib import closing
from functools import cache


@cache
def plain_image() -> str:
    """Its tag; built when it is not there."""
    from runner.engine import connect
    from runner.images.build import ensure
    from runner.kits.plan import Base, Install, Layer, Plan

    install = "apt-get update -q && apt-get install -qy --no-install-recommends ripgrep && rm -rf /var/lib/apt/lists/*"
    layer = Layer("ripgrep", "mixin", "ripgrep", (Install(install),))
    with closing(connect()) as engine:
        return ensure(engine, Plan(name="test-plain", base=Base(), layers=(layer,))).tag
