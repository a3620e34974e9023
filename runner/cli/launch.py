"""From what the user typed to a session that is ready to be asked: every step of a run, in its order.

what       the kit, its agent and its plan; everything that can be wrong without an engine is found here (code 2, 3)
grants     what the kit wants beyond the default profile, against what was granted (code 6)
where      the workspace (code 2)
engine     connected (code 4)
image      found by its plan, or built (code 5)
sandbox    janitor first, then the container (code 3, 4)
session    the guest is up and has been told its agent
"""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import shlex
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import __version__
from runner.errors import NotFoundError, SbxError, UsageError, WorkspaceError
from runner.session.state import Folders, private

if TYPE_CHECKING:
    from runner.cli.network import Asked, Opened, Outgoing
    from runner.engine import Engine
    from runner.frontends.banner import Banner
    from runner.gateway.grants import Wish
    from runner.gateway.model import ModelRelay
    from runner.images.build import Image
    from runner.images.events import Progress
    from runner.kits.agent import AgentFile
    from runner.kits.plan import Plan
    from runner.sandbox.container import Order, Sandbox
    from runner.sandbox.listing import Listed
    from runner.sandbox.profile import Profile
    from runner.sandbox.workspace import Workspace
    from runner.scripted.server import ScriptedServer
    from runner.session.booted import Booted
    from runner.session.host_hooks import HostHooks
    from runner.session.kitsetup import KitFolder
    from runner.session.ports import Publisher
    from runner.session.record import Record
    from runner.session.session import Session, Setup
    from runner.wire.agent import Agent


@dataclass(frozen=True)
class Options:
    """A run as it was asked for."""

    sandbox: str
    workspace: Path | None = None
    demo: bool = False
    network: str = "none"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    resolve: Sequence[str] = ()
    learn: bool = False
    keep: bool = False
    new: bool = False
    name: str = ""
    grants: Sequence[str] = ()
    hooks: Sequence[str] = ()
    kits: Sequence[str] = ()
    kit_args: Sequence[str] = ()
    strict: bool = False
    model: str = ""
    base_url: str = ""
    yolo: bool | None = None
    max_tokens: int | None = None
    max_tool_calls: int | None = None
    cpus: float | None = None
    memory: str = ""
    pids: int | None = None
    runtime: str = ""
    mounts: Sequence[str] = ()
    devices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    publish: Sequence[str] = ()
    startup: bool = True
    mode: str = "mount"
    untracked: str = "normal"
    protect: Sequence[str] = ()
    git_config: str = "ro"
    quiet: bool = False
    dry_run: bool = False
    certificates: Sequence[Path] = ()
    no_cache: bool = False
    pull: bool = False
    interactive: bool = False
    resume: str | None = None
    existing: bool = False
    """`name` is that of a sandbox that must be there already."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further ones of the tools' environment."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def takes_up(self) -> bool:
        """An idle sandbox may be gone on with."""
        return self.existing or (self.keep and not self.new)


OF_THE_SANDBOX = (
    "network grants kits kit_args strict cpus memory pids runtime mounts devices capabilities certificates"
    " publish startup mode untracked protect git_config"
).split()
"""Options that belong to the container, and so to a kept sandbox as long as it lives."""


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
    from runner.cli import workplace
    from runner.gateway import rules
    from runner.gateway.required import required_hooks
    from runner.kits import hooks as hook_files
    from runner.session import kitsetup, ports

    folders = Folders.of(options.environ)
    what = read_kit(options)
    home = Path(options.environ.get("HOME") or Path.home())
    workplace.check(options)
    profile, relaxations = _profile(options, what.plan)
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
    warnings += tuple(_hopeless(what.plan)) if options.startup else ()
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


def _hopeless(plan: Plan) -> list[str]:
    """What of the startup cannot work as it must run here."""
    from runner.kits.inspect import hopeless_startup

    return [
        f"kit {found.source}: the startup command {found.program} runs as user 0 without capabilities: {found.reason}"
        for found in hopeless_startup(plan.startup)
    ]


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


def _plan_name(folder: str) -> str:
    """A folder's name as a kit's name; the folder of an `agent.yaml` alone may be called anything."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.lower()).strip("-")
    return kept[:60].strip("-") or "agent"


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
        shutil.copytree(playground, copy)
    return copy


def _profile(options: Options, plan: Plan) -> tuple[Profile, list[Wish]]:
    """The profile, and what it has beyond the default one."""
    from runner.cli import network
    from runner.gateway.grants import Wish
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
    for wish in network.wishes(_asked(options), plan):
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


def _asked(options: Options) -> Asked:
    from runner.cli.network import Asked

    return Asked(options.network, options.allow, options.deny, options.resolve, options.learn)


def _settle(options: Options, what: What, wishes: Sequence[Wish], folders: Folders) -> Outgoing:
    """Refuses what was not granted; what may leave under what was."""
    from runner.cli import grants as settling
    from runner.cli import network
    from runner.gateway import grants, rules
    from runner.kits.agent import foreign_model_urls, host_hooks

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
    wanted = replace(_asked(options), granted="network" in given)
    return network.decide(wanted, what.plan, files, options.environ, options.certificates)


# ---- with the engine


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


async def create_sandbox(engine: Engine, prepared: Prepared, image: Image) -> Sandbox:
    """A kept sandbox that nobody uses yet; its lock is let go."""
    from runner.sandbox.container import Sandbox

    locks = locks_of(prepared.folders)
    order = _order(prepared, image, "")
    sandbox = await Sandbox.create(engine, order, locks)
    remember(prepared, order.name, locks)
    sandbox.let_go()
    return sandbox


@asynccontextmanager
async def open_session(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    *,
    ahead: Booted | None = None,
    server: ScriptedServer | None = None,
) -> AsyncIterator[Session]:
    """A session that is ready to be asked; everything of it is ended with the block.

    Args:
        ahead: a sandbox that was started for this; who started it has a janitor and sweeps.
        server: the scripted model, where several sessions share one.
    """
    from runner.cli import workplace

    async with AsyncExitStack() as stack:
        prepared = workplace.for_engine(engine, prepared)
        try:
            opened = _open(engine, prepared, image, ahead, server)
            session = await stack.enter_async_context(opened)
        except WorkspaceError as error:
            if ahead:
                raise
            opened = _open(engine, workplace.retried(error, prepared), image, None, server)
            session = await stack.enter_async_context(opened)
        yield session


@asynccontextmanager
async def _open(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    ahead: Booted | None,
    server: ScriptedServer | None,
) -> AsyncIterator[Session]:
    from runner.cli import network, workplace
    from runner.cli.running import signal_of
    from runner.sandbox.container import LABEL_SANDBOX, Janitor
    from runner.session.control import serving, socket_path
    from runner.session.record import Record
    from runner.wire.messages import Event

    options = prepared.options
    key = await asyncio.to_thread(_key, prepared, options)
    masks = await asyncio.to_thread(network.masks, prepared.outgoing, key)
    # A resumed session goes on in its own record: a new one would lack what was said before, at the next resume.
    if prepared.resumed:
        record, _ = Record.reopen(prepared.resumed, redact=masks.text)
    else:
        reserved = ahead.sandbox.order.session if ahead else ""
        record = Record.create(prepared.folders, session=reserved, redact=masks.text)
    status, code = "completed", 0
    session: Session | None = None
    out = AsyncExitStack()
    try:
        way = out.enter_context(network.opened(prepared.outgoing, record.folder / network.LOG, options.environ))
        way.key, way.masks = key, masks
        if ahead:
            order = ahead.sandbox.order
            session = await _session(engine, prepared, image, record, order, None, server, way, ahead)
            reached_at = socket_path(locks_of(prepared.folders), session.sandbox.container)
            async with serving(session, reached_at), session:
                try:
                    yield session
                finally:
                    await workplace.leave_patch(engine, prepared, order, session.sandbox.container, record)
            return
        taken = await _take_up(engine, prepared, image) if options.takes_up else None
        order = _order(prepared, image, record.id, taken[0].name if taken else "")
        # Not by the session: one that is resumed at once would lose its sandbox to the janitor of the host before it.
        janitor = Janitor(engine, f"{LABEL_SANDBOX}={order.name}")
        opened: Session | None = None
        try:
            with (scripted_model(prepared) if options.demo else None) or nullcontext() as own:
                session = opened = await _session(engine, prepared, image, record, order, taken, own, way)
                reached_at = socket_path(locks_of(prepared.folders), session.sandbox.container)
                watched = workplace.watched(engine, prepared, order, record)
                async with watched, serving(session, reached_at), session:
                    sweeping = asyncio.create_task(asyncio.to_thread(sweep_leftovers, engine, prepared.folders))
                    try:
                        yield session
                    finally:
                        await workplace.leave_patch(engine, prepared, order, session.sandbox.container, record)
                        await asyncio.gather(sweeping, return_exceptions=True)
        finally:
            # An engine that was away when the sandbox was to be ended may come back.
            janitor.done(clean=opened is not None and opened.sandbox.ended)
    except SbxError as error:
        status, code = "failed", error.exit_code
        raise
    except asyncio.CancelledError as error:
        status, code = "interrupted", 128 + signal_of(error)
        raise
    except BaseException:
        status, code = "failed", 1
        raise
    finally:
        await out.aclose()
        record = session.record if session else record  # another session may have been taken up meanwhile
        record.write(Event("session.end", {"status": status, "code": code}))
        record.close()
        _tell_what_is_lost(record)


def _tell_what_is_lost(record: Record) -> None:
    """A disk that refuses does not end a session; but nobody may take its record for whole."""
    if record.failure or record.lost:
        from runner.frontends.render import notice_line
        from runner.frontends.terminal import Output

        why = record.failure.strerror if record.failure else "the disk was full for too long"
        Output(sys.stderr).lines([notice_line("warning", f"the record of this session is not whole: {why}")])


async def _session(
    engine: Engine,
    prepared: Prepared,
    image: Image,
    record: Record,
    order: Order,
    taken: tuple[Listed, int] | None,
    server: ScriptedServer | None,
    way: Opened,
    ahead: Booted | None = None,
) -> Session:
    """The session, its sandbox created last: whatever fails before leaves nothing in the engine."""
    from runner.cli import workplace
    from runner.gateway.redaction import EventMask
    from runner.sandbox.container import Sandbox
    from runner.session import kitsetup
    from runner.session.ports import Publisher, wanted
    from runner.session.session import Session, Setup, snapshot
    from runner.wire.messages import Event

    options, what = prepared.options, prepared.what
    agent = prepared.agent
    if server:
        agent = replace(agent, provider="demo", model="scripted", urls=(server.url,))
    _start(record, prepared, order, image, agent)
    ports = Publisher(wanted(what.plan.ports, options.publish))
    setup = Setup(
        agent=agent,
        snapshot=snapshot(what.folder) if what.folder else b"",
        environment={v.name: v.value for v in what.plan.environment} | way.environment | dict(options.variables),
        network=way.network,
        interactive=options.interactive,
        history=prepared.history,
        trust=way.trust,
        truststore=way.truststore,
        kit=kitsetup.prepare(
            what.plan,
            workspace=order.target,
            folders=what.bringing,
            startup=options.startup,
            read_only=options.mode == "ro",
        ),
        clone=workplace.cloner(prepared, order, taken=bool(taken)),
        mcp=what.agent.mcp,
    )
    relay = _relay(agent, way, options)
    banner = _banner(prepared, agent, image, order, record.id, bool(taken), ports)
    locks = locks_of(prepared.folders)
    # From here on a run mostly waits for the engine; what it needs later is imported meanwhile.
    threading.Thread(target=_warm_up, daemon=True).start()
    if ahead:
        sandbox = ahead.sandbox
    elif taken:
        sandbox = Sandbox(engine, taken[0].container, order, taken[1])
    else:
        try:
            sandbox = await Sandbox.create(engine, order, locks)
        except BaseException:
            await ports.close()
            raise
    if options.keep:
        remember(prepared, order.name, locks)
    hooks = _host_hooks(prepared, setup)
    session = Session(
        sandbox,
        setup,
        record,
        relay,
        proxy=way.egress.proxy,
        ports=ports,
        host_hooks=hooks,
        banner=banner,
        mask=EventMask(way.masks),
        booted=ahead,
    )
    way.tell = lambda entry: session.tell(Event("network", entry))
    return session


def _host_hooks(prepared: Prepared, setup: Setup) -> HostHooks | None:
    """What runs the hooks with `where: host`; None when there are none."""
    if not any(hook.where == "host" for hook in setup.agent.hooks):
        return None
    from runner.kits.data import data_folder
    from runner.session.host_hooks import HostHooks

    folder, workspace = str(data_folder("hooks")), str(prepared.workspace.source)
    return HostHooks(setup.agent.hooks, setup.snapshot, folder, workspace, prepared.options.environ)


def locks_of(folders: Folders) -> Path:
    """Where the lock file of each sandbox's name is."""
    return private(folders.state / "sandboxes")


def sweep_leftovers(engine: Engine, folders: Folders) -> None:
    """Leftovers are nobody's business in this run: what cannot be removed now is found by the next one."""
    from runner.sandbox.sweep import sweep

    try:
        sweep(engine, locks_of(folders))
    except SbxError:
        return


def scripted_model(prepared: Prepared) -> ScriptedServer:
    """The built-in scripted model, for this kit's own script where it has one."""
    from runner import scripted
    from runner.scripted.script import load_script
    from runner.scripted.server import ScriptedServer

    folder = prepared.what.folder
    own = folder / "demo.yaml" if folder else None
    path = own if own and own.exists() else Path(scripted.__file__).with_name("demo.yaml")
    return ScriptedServer(load_script(path))


def _key(prepared: Prepared, options: Options) -> str:
    """The model server's key."""
    from runner.cli.network import model_key

    if options.demo:
        return ""
    return model_key(prepared.what.agent.provider.key, prepared.agent.provider, prepared.agent.urls, options.environ)


def _relay(agent: Agent, way: Opened, options: Options) -> ModelRelay:
    from runner.cli.network import model_proxy
    from runner.gateway.model import ModelRelay

    return ModelRelay(agent.urls, way.key, proxy=model_proxy(agent.urls, options.environ), masks=way.masks)


async def _take_up(engine: Engine, prepared: Prepared, image: Image) -> tuple[Listed, int] | None:
    """A kept sandbox of the same plan, workspace and controls that nobody uses, with its lock."""
    from runner.cli.entering import take_up
    from runner.sandbox.taking_up import Wanted

    options = prepared.options
    wanted = Wanted(options.name, image.tag, str(prepared.workspace.source), prepared.profile.digest())
    taken = await take_up(engine, wanted, locks_of(prepared.folders))
    if options.existing and taken is None:
        raise NotFoundError(f"the sandbox {options.name} is gone", hint="`sbx ls` lists those that are there")
    return taken


def order_ahead(prepared: Prepared, image: Image) -> Order:
    """What a sandbox is to be made of whose name and session are not known yet: equal orders are interchangeable."""
    order = _order(prepared, image, "")
    return replace(order, name=order.name.rpartition("-")[0])


def _order(prepared: Prepared, image: Image, session: str, name: str = "") -> Order:
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
    import re

    if not re.fullmatch(r"[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?", name):
        raise UsageError(f"--name {name}: lower case letters, digits, - _ . only, at most 64 characters")
    return name


def _start(record: Record, prepared: Prepared, order: Order, image: Image, agent: Agent) -> None:
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


def _banner(
    prepared: Prepared, agent: Agent, image: Image, order: Order, session: str, taken_up: bool, ports: Publisher
) -> Banner:
    from runner.cli import workplace
    from runner.frontends.banner import Banner, count_hooks
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


def connect(prepared: Prepared) -> Engine:
    """The engine."""
    from runner.engine import connect as connect_engine

    return connect_engine(prepared.options.environ)


def _warm_up() -> None:
    for name in ("runner.frontends.printer", "httpx", "httpcore"):
        importlib.import_module(name)


__all__ = ["NotFoundError", "Options", "Prepared", "What", "connect", "find_image", "open_session", "prepare"]
