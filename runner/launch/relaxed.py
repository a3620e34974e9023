"""The profile of a run's sandbox, and each thing in it that the default profile does not have."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError

if TYPE_CHECKING:
    from runner.gateway.grants import Wish
    from runner.kits.plan import Plan
    from runner.launch.network import Asked
    from runner.launch.options import Options
    from runner.sandbox.profile import Profile


def profile_of(options: Options, plan: Plan) -> tuple[Profile, list[Wish]]:
    """The profile, and what it has beyond the default one."""
    from runner.gateway.grants import Wish
    from runner.launch import network
    from runner.sandbox.profile import Bind, Profile, Relaxation, parse_size

    wishes: list[Wish] = []
    relaxed: list[Relaxation] = []

    def ask(grant: str, control: str, value: str, source: str, *, by_user: bool) -> None:
        wishes.append(Wish(grant, value, source, by_user=by_user))
        relaxed.append(Relaxation(control, value, source))

    binds = []
    for text in options.mounts:
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        path = Path(source).expanduser()
        if not path.exists():
            raise UsageError(f"--mount {text}: {source} does not exist")
        if mode not in ("", "ro", "rw") or (target and not target.startswith("/")):
            raise UsageError(f"--mount {text}: not SOURCE[:TARGET[:ro]]")
        binds.append(Bind(str(path.resolve()), target or str(path.resolve()), mode == "ro"))
        ask("mount", "mounts", text, "--mount", by_user=True)
    for text in options.devices:
        if not Path(text.partition(":")[0]).exists():
            raise UsageError(f"--device {text}: there is no such device")
        ask("device", "devices", text, "--device", by_user=True)
    capabilities = tuple(c.upper().removeprefix("CAP_") for c in options.capabilities)
    for name in capabilities:
        ask("capability", "capabilities", name, "--cap-add", by_user=True)
    for wish in network.wishes(network_asked(options), plan):
        ask("network", "network", wish.what, wish.source, by_user=wish.by_user)
    if options.startup:
        from runner.kits.inspect import ROOT

        for entry in plan.startup:
            if entry.user in ROOT:
                shown = shlex.join(entry.command)
                wishes.append(Wish("root-startup", f"startup as user 0: {shown}", f"kit {entry.source}"))
                relaxed.append(
                    Relaxation("startup", f"as user 0, without capabilities: {shown}", f"kit {entry.source}")
                )
    for kit in plan.privileged:
        ask("privileged", "privileged", "a privileged container", f"kit {kit}", by_user=False)
    if options.cpus is not None and options.cpus <= 0:
        raise UsageError("--cpus must be more than 0")
    if options.pids is not None and options.pids < 16:
        raise UsageError("--pids must be at least 16: the guest itself needs some")
    profile = Profile(
        cpus=options.cpus or plan.resources.cpus,
        memory=parse_size(options.memory) if options.memory else plan.resources.memory,
        pids=options.pids or Profile.pids,
        network=network.engine_network(options.network),
        runtime=options.runtime,
        capabilities=capabilities,
        devices=tuple(options.devices),
        binds=tuple(binds),
        privileged=bool(plan.privileged),
        relaxations=tuple(relaxed),
    )
    return profile, wishes


def network_asked(options: Options) -> Asked:
    from runner.launch.network import Asked

    return Asked(options.network, options.allow, options.deny, options.resolve, options.learn)
