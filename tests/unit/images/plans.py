"""Plans made by hand."""

from __future__ import annotations

import hashlib

from runner.kits.plan import Base, CopiedFile, Install, Layer, Plan


def layer(kit: str, *commands: str, user: str = "0", home: tuple[CopiedFile, ...] = ()) -> Layer:
    """A mixin whose digest follows its content, as `kits` makes them."""
    digest = hashlib.sha256(repr((kit, commands, user, home)).encode()).hexdigest()
    return Layer(kit, "mixin", digest, tuple(Install(command, user) for command in commands), home)


def plan(*layers: Layer, name: str = "sample", base: Base | None = None) -> Plan:
    return Plan(name=name, base=base or Base(), layers=layers)
