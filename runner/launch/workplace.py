"""How a run gets its workspace: as the folder itself, a private copy, to read only, or not at all; and what is told of
it when the run is over."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import SbxError, UsageError
from runner.session.state import Folders, private

if TYPE_CHECKING:
    from runner.engine import Engine
    from runner.kits.plan import Plan
    from runner.launch.options import Options
    from runner.launch.prepared import Prepared
    from runner.sandbox.acting import Acting
    from runner.sandbox.cloning import Baseline
    from runner.sandbox.container import Order
    from runner.sandbox.profile import Profile
    from runner.sandbox.transfer import Sink
    from runner.sandbox.workspace import Workspace
    from runner.session.record import Record

PATCH = "changes.patch"
"""In a session's folder: what the agent changed in a copy that is gone."""
SHOWN = 20
"""Most files that are listed at the end of a run."""
LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1")


def check(options: Options) -> None:
    """Raises UsageError when the options about the workspace make no sense."""
    from runner.sandbox.cloning import UNTRACKED
    from runner.sandbox.profile import MODES

    if options.mode not in MODES:
        raise UsageError(f"--mode {options.mode}: there is no such mode", hint=f"the modes are {', '.join(MODES)}")
    if options.untracked not in UNTRACKED:
        raise UsageError(f"--untracked {options.untracked}: not one of {', '.join(UNTRACKED)}")
    if options.git_config not in ("ro", "rw"):
        raise UsageError(f"--git-config {options.git_config}: ro or rw")
    if options.protect and options.mode != "mount":
        raise UsageError(f"--protect goes with --mode mount; with {options.mode} nothing on the host is written")
    if options.mode == "none" and options.workspace is not None and not options.existing:
        raise UsageError("--mode none takes no workspace")


def find(options: Options, default: Callable[[], Path], home: Path) -> Workspace:
    """The folder to work on. Raises as `workspace.find`."""
    from runner.sandbox import workspace

    if options.mode == "none":
        return workspace.nowhere()
    return workspace.find(options.workspace or default(), home=home, granted="home-workspace" in options.grants)


def arrange(profile: Profile, plan: Plan, place: Workspace, options: Options) -> tuple[Profile, tuple[str, ...]]:
    """The profile with the workspace's mounts and the plan's volumes, and what is to be said of them.

    Raises:
        UsageError, ConfigError: one cannot be.
    """
    from runner.sandbox.protect import Protection, protect
    from runner.sandbox.volumes import of_plan

    volumes, said = of_plan(plan.volumes, workspace=place.target)
    guard = Protection()
    if options.mode == "mount" and not options.dry_run:
        guard = protect(place.source, place.target, options.protect, git_config=options.git_config == "ro")
    if options.mode == "clone" and os.path.lexists(place.source / ".git"):
        said += (f"the sandbox works on a copy of {place.source}, cloned as git; untracked files: {options.untracked}",)
    elif options.mode == "clone":
        said += (f"the sandbox works on a copy of {place.source}",)
    changed = replace(profile, volumes=volumes, workspace=options.mode, guarded=guard.binds)
    return changed, (*said, *guard.said)


def as_clone(prepared: Prepared, why: str) -> Prepared:
    """The same run on a private copy, because the engine does not see the folder."""
    said = f"{why}: the sandbox works on a copy of {prepared.workspace.source}"
    return replace(
        prepared,
        options=replace(prepared.options, mode="clone", protect=()),
        profile=replace(prepared.profile, workspace="clone", guarded=()),
        warnings=(*prepared.warnings, said),
    )


def for_engine(engine: Engine, prepared: Prepared) -> Prepared:
    """The run as this engine can do it: one on another machine gets a copy."""
    at = engine.endpoint
    if prepared.options.mode not in ("mount", "ro") or at.path or at.host in LOCAL_HOSTS:
        return prepared
    return as_clone(prepared, f"the engine runs on {at.host}, which does not see this machine's folders")


def shown(prepared: Prepared) -> str:
    """The workspace in the banner."""
    mode, source = prepared.profile.workspace, prepared.workspace.source
    return {"clone": f"a copy of {source}", "ro": f"{source}, to read only", "none": "an empty folder"}.get(
        mode, str(source)
    )


def cloner(prepared: Prepared, order: Order, *, taken: bool) -> Callable[[Sink], object] | None:
    """What writes the copy into the sandbox; None where none is wanted, or the sandbox (`taken`) has it already."""
    if prepared.profile.workspace != "clone" or (taken and baseline(prepared.folders, order.name)):
        return None
    from runner.sandbox import cloning

    def write(sink: Sink) -> None:
        made = cloning.clone(prepared.workspace.source, order.target, sink, untracked=prepared.options.untracked)
        cloning.save(clones(prepared.folders), order.name, made)
        say(prepared, [f"warning: {each}" for each in made.said])

    return write


def clones(folders: Folders) -> Path:
    """Where it is kept what each private copy was made of."""
    return private(folders.state / "clones")


def baseline(folders: Folders, sandbox: str) -> Baseline | None:
    """What a sandbox's copy was made of."""
    from runner.sandbox import cloning

    return cloning.load(clones(folders), sandbox)


@asynccontextmanager
async def watched(engine: Engine, prepared: Prepared, order: Order, record: Record) -> AsyncIterator[None]:
    """Around a session: afterwards it is told what acts on the host, or what became of the copy."""
    from runner.sandbox import acting

    mode = prepared.profile.workspace
    before = await asyncio.to_thread(acting.look, prepared.workspace.source) if mode == "mount" else None
    ran = False
    try:
        yield
        ran = True
    finally:
        if before is not None:
            after = await asyncio.to_thread(acting.look, prepared.workspace.source)
            _tell(prepared, record, acting.changed(before, after), whole=before.whole and after.whole)
        elif mode == "clone" and prepared.options.keep and ran:
            say(prepared, [f"the changes are in the sandbox: `sbx diff {order.name}`, `sbx apply {order.name}`"])


async def leave_patch(engine: Engine, prepared: Prepared, order: Order, container: str, record: Record) -> None:
    """Of a throwaway copy, before it is gone: its patch stays in the session's folder."""
    if prepared.profile.workspace != "clone" or prepared.options.keep:
        return
    made = baseline(prepared.folders, order.name)
    (clones(prepared.folders) / f"{order.name}.json").unlink(missing_ok=True)
    if made is None:
        return
    try:
        path, number = await asyncio.to_thread(_write_patch, engine, container, made, record.folder / PATCH)
    except SbxError as error:
        say(prepared, [f"warning: the changes could not be kept: {error.message}"])
        return
    if number:
        say(prepared, [f"{number} changed {'file' if number == 1 else 'files'}: git apply {path}"])


def _write_patch(engine: Engine, container: str, made: Baseline, path: Path) -> tuple[Path, int]:
    from runner.sandbox import changes

    with changes.collected(engine, container, made) as found:
        if found.changes:
            path.write_bytes(changes.patch(found))
            path.chmod(0o600)
        return path, len(found.changes)


def _tell(prepared: Prepared, record: Record, found: Sequence[Acting], *, whole: bool) -> None:
    from runner.wire.messages import Event

    if found:
        record.write(Event("workspace.acts", {"files": [{"path": a.path, "why": a.why} for a in found]}))
        lines = [f"warning: the run changed {len(found)} file(s) that act on this machine; look at them first:"]
        lines += [f"  {each.path} ({each.why})" for each in found[:SHOWN]]
        lines += [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        say(prepared, lines)
    if not whole:
        say(prepared, ["the workspace is too large to be looked at as a whole for files that act on this machine"])


def say(prepared: Prepared, lines: Sequence[str]) -> None:
    """Tells the user, after a front end has ended; with `-q` nothing."""
    if prepared.options.quiet or not lines:
        return
    from runner.frontends.safe import safe_line
    from runner.frontends.terminal import Output, Styled

    Output(sys.stderr).lines([Styled(safe_line(line), "yellow") for line in lines])


def retried(error: Any, prepared: Prepared) -> Prepared:
    """The run on a copy, after the engine turned out not to see the workspace. Raises the error where it is one."""
    from runner.sandbox.profile import PRIVATE_MODES

    if prepared.profile.workspace in PRIVATE_MODES:
        raise error
    return as_clone(prepared, str(error.message))
