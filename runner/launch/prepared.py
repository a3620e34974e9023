"""A run read, checked and decided as far as it goes without an engine (codes 2, 3 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError
from runner.launch.options import Options
from runner.launch.relaxed import network_asked, profile_of
from runner.launch.what import What, default_workspace, hopeless, read_kit
from runner.session.state import Folders

if TYPE_CHECKING:
    from runner.gateway.grants import Wish
    from runner.launch.network import Outgoing
    from runner.sandbox.profile import Profile
    from runner.sandbox.workspace import Workspace
    from runner.wire.agent import Agent


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the engine is asked."""

    options: Options
    folders: Folders
    what: What
    agent: Agent
    workspace: Workspace
    profile: Profile
    outgoing: Outgoing
    warnings: tuple[str, ...]
    history: tuple[dict[str, Any], ...] = ()
    resumed: Path | None = None


def prepare(options: Options) -> Prepared:
    """Reads, checks and decides everything that needs no engine.

    Raises:
        UsageError, ConfigError: something is wrong with the command line or a file.
        NotFoundError: no such kit.
        RefusedError: a grant is missing.
    """
    from runner.gateway import rules
    from runner.gateway.required import required_hooks
    from runner.kits import hooks as hook_files
    from runner.launch import workplace
    from runner.session import kitsetup, ports

    folders = Folders.of(options.environ)
    what = read_kit(options)
    home = Path(options.environ.get("HOME") or Path.home())
    workplace.check(options)
    profile, relaxations = profile_of(options, what.plan)
    outgoing = _settle(options, what, relaxations, folders)
    place = workplace.find(options, lambda: default_workspace(what, folders), home)
    profile, said = workplace.arrange(profile, what.plan, place, options)
    agent = what.agent.to_wire(
        kit_hooks=kitsetup.kit_hooks(what.bringing),
        cli_hooks=hook_files.parse_hook_options(options.hooks),
        policy_hooks=required_hooks(rules.load(rules.policy_paths(options.environ))),
        urls=[options.base_url] if options.base_url else (),
        model=options.model,
        yolo=options.yolo,
    )
    agent = replace(
        agent,
        max_tokens=agent.max_tokens if options.max_tokens is None else options.max_tokens,
        max_tool_calls=agent.max_tool_calls if options.max_tool_calls is None else options.max_tool_calls,
    )
    for text in options.publish:
        ports.parse_publish(text)
    warnings = (*what.agent.warnings, *what.plan.warnings, *said, *outgoing.warnings)
    warnings += tuple(hopeless(what.plan)) if options.startup else ()
    if place.moved and options.mode != "none":
        warnings += (f"the workspace is mounted at {place.target}: its own path belongs to the image",)
    history: tuple[dict[str, Any], ...] = ()
    resumed = None
    if options.resume is not None:
        from runner.session.record import load
        from runner.session.resume import replay
        from runner.session.sessions import find_session

        resumed = find_session(folders, options.resume or None)
        history = tuple(replay(load(resumed), resumed))
    return Prepared(options, folders, what, agent, place, profile, outgoing, warnings, history, resumed)


def _settle(options: Options, what: What, wishes: Sequence[Wish], folders: Folders) -> Outgoing:
    """Refuses what was not granted; what may leave under what was."""
    from runner.gateway import grants, rules
    from runner.kits.agent import foreign_model_urls, host_hooks
    from runner.launch import grants as settling
    from runner.launch import network

    for name in options.grants:
        if name not in grants.NAMES:
            raise UsageError(f"--grant {name}: no such grant", hint=f"the grants are: {', '.join(grants.NAMES)}")
    files = rules.load(rules.policy_paths(options.environ))
    source = f"kit {what.name}"
    asked = [*wishes]
    if not (options.base_url or options.demo):
        asked += [grants.Wish("model-url", f"the model URL {url}", source) for url in foreign_model_urls(what.agent)]
    asked += [grants.Wish("host-hooks", f"the hook {name} on the host", source) for name in host_hooks(what.agent)]
    given = settling.settle(asked, options.grants, files, what.plan, what.folder, folders.state)
    if not options.demo:
        network.bound_models([options.base_url] if options.base_url else what.agent.urls, files)
    wanted = replace(network_asked(options), granted="network" in given)
    return network.decide(wanted, what.plan, files, options.environ, options.certificates)
