"""What a run's sandbox is to be made of and called, and what is remembered of one that is kept."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.launch.options import OF_THE_SANDBOX

if TYPE_CHECKING:
    from runner.images.build import Image
    from runner.launch.prepared import Prepared
    from runner.sandbox.container import Order


def order_for(prepared: Prepared, image: Image, session: str, name: str = "") -> Order:
    from runner.sandbox.container import Order

    options, place = prepared.options, prepared.workspace
    if name:
        pass
    elif options.name:
        name = _checked_name(options.name)
    else:
        name = f"{prepared.what.name}-{_plan_name(place.source.name)[:24]}-{secrets.token_hex(2)}"
    return Order(
        name=name,
        session=session,
        image=image.id,
        plan=image.tag,
        profile=prepared.profile,
        workspace=str(place.source),
        target=place.target,
        keep=options.keep,
        kit=str(prepared.what.folder or prepared.what.name),
    )


def order_ahead(prepared: Prepared, image: Image) -> Order:
    """What a sandbox is to be made of whose name and session are not known yet: equal orders are interchangeable."""
    order = order_for(prepared, image, "")
    return replace(order, name=order.name.rpartition("-")[0])


def remember(prepared: Prepared, name: str, locks: Path) -> None:
    """Writes down how a kept sandbox was asked for, so that its name alone asks for the same."""
    from runner.session.kept import Kept, absolute
    from runner.session.kept import remember as write

    options, what = prepared.options, prepared.what
    belongs = {key: getattr(options, key) for key in OF_THE_SANDBOX}
    kits = [absolute(kit) for kit in options.kits]
    kit = str(what.folder) if what.folder else options.sandbox
    environment = {v.name: v.value for v in what.plan.environment}
    write(locks, name, Kept(kit, str(prepared.workspace.source), environment, {**belongs, "kits": kits}))


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?", name):
        raise UsageError(f"--name {name}: lower case letters, digits, - _ . only, at most 64 characters")
    return name


def _plan_name(folder: str) -> str:
    """A folder's name as a kit's name; the folder of an `agent.yaml` alone may be called anything."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.lower()).strip("-")
    return kept[:60].strip("-") or "agent"
