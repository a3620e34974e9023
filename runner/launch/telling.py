"""What a run tells of itself before it is asked anything: the record's first line, and the banner."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner import __version__

if TYPE_CHECKING:
    from runner.frontends.banner import Banner
    from runner.images.build import Image
    from runner.launch.prepared import Prepared
    from runner.sandbox.container import Order
    from runner.session.ports import Publisher
    from runner.session.record import Record
    from runner.wire.agent import Agent


def start(record: Record, prepared: Prepared, order: Order, image: Image, agent: Agent) -> None:
    """The record's first line."""
    from runner.wire.messages import Event

    record.write(
        Event(
            "session.start",
            {
                "version": __version__,
                "session": record.id,
                "sandbox": order.name,
                "kit": str(prepared.what.folder or prepared.what.name),
                "image": image.tag,
                "image_id": image.id,
                "agent": {
                    "provider": agent.provider,
                    "model": agent.model,
                    "tools": list(agent.tools),
                    "yolo": agent.yolo,
                    "hooks": [{"event": h.event, "name": h.name} for h in agent.hooks],
                },
                "network": prepared.outgoing.said,
                "mode": prepared.profile.workspace,
                "workspace": str(prepared.workspace.source),
                "argv": [Path(sys.argv[0]).name, prepared.options.sandbox],
                **({"resumed": prepared.resumed.name} if prepared.resumed else {}),
            },
        )
    )


def banner(
    prepared: Prepared, agent: Agent, image: Image, order: Order, session: str, taken_up: bool, ports: Publisher
) -> Banner:
    from runner.frontends.banner import Banner, count_hooks
    from runner.launch import workplace
    from runner.wire.agent import EVENTS, GUARD_EVENTS, MORE_EVENTS

    what = prepared.what
    path = what.agent.path
    sandbox = order.name + (" (taken up again)" if taken_up else "" if prepared.options.keep else " (throwaway)")
    return Banner(
        version=__version__,
        config=str(path) if path else "the default agent",
        provider=agent.provider,
        model=agent.model or "the first that the server lists",
        tools=agent.tools,
        yolo=agent.yolo,
        image=image.tag,
        network=prepared.outgoing.said,
        hooks=count_hooks([h.event for h in agent.hooks], (*EVENTS, *MORE_EVENTS)),
        not_failing=[h.name for h in agent.hooks if h.event in GUARD_EVENTS and h.on_error != "fail"],
        sandbox=sandbox,
        session=session,
        workspace=workplace.shown(prepared),
        ports=[str(published) for published in ports.published],
        scripted=prepared.options.demo,
        warnings=prepared.warnings,
        relaxations=[f"{r.control}: {r.value} ({r.by})" for r in prepared.profile.relaxations],
    )
