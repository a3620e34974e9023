"""`sbx run NAME`, where NAME is no kit but a sandbox that is there: it is asked for as it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.errors import NotFoundError, SbxError, UsageError
from runner.launch.options import OF_THE_SANDBOX, Options
from runner.session.kept import Kept, recall
from runner.session.state import Folders


def resolve(options: Options, *, remove: bool = False) -> Options:
    """The options of a run that goes on with an existing sandbox; unchanged where SANDBOX is a kit, path or image.

    What the command line says of this run (question, model, hooks, …) stays; what belongs to the container (network,
    mounts, limits, …) is what it was made with, and must not be said again.

    Args:
        remove: the sandbox is to be removed at the end.

    Raises:
        NotFoundError: there is neither a kit nor a sandbox of that name.
        UsageError: an option would need another container.
    """
    from runner.kits.find import Finder

    name = options.sandbox
    if any(mark in name for mark in "/:@") or name.startswith((".", "~")):
        return options
    try:
        Finder(dict(options.environ)).locate(name, "sandbox")
        return options
    except NotFoundError as error:
        no_kit = error
    except UsageError as error:
        no_kit = NotFoundError(error.message, hint=error.hint)
    kept = find(name, options.environ)
    if kept is None:
        raise no_kit
    if options.workspace is not None and str(options.workspace.resolve()) != kept.workspace:
        raise UsageError(f"the sandbox {name} works in {kept.workspace}, and no other folder can be mounted now")
    if options.name and options.name != name:
        raise UsageError(f"--name {options.name}: the sandbox is named {name}")
    if options.new:
        raise UsageError(f"--new: {name} is a sandbox that is there", hint="name its kit to make a new one")
    default = Options(sandbox="")
    for key in OF_THE_SANDBOX:
        given, usual = getattr(options, key), getattr(default, key)
        if (list(given) != list(usual)) if isinstance(given, (list, tuple)) else given != usual:
            option = key.replace("_", "-").rstrip("s") if key not in ("cpus", "pids") else key
            raise UsageError(
                f"--{option} belongs to the container, and {name} is made already",
                hint=f"`sbx rm {name}` and make it anew, or `sbx run {kept.sandbox}` with --new",
            )
    belongs: dict[str, Any] = {key: value for key, value in kept.options.items() if key in OF_THE_SANDBOX}
    return replace(
        options,
        **belongs,
        sandbox=kept.sandbox,
        workspace=Path(kept.workspace),
        name=name,
        keep=not remove,
        existing=True,
    )


def find(name: str, environ: Mapping[str, str]) -> Kept | None:
    """The sandbox as it was made: what this machine remembers, else what its labels tell."""
    from runner.engine import connect
    from runner.sandbox.listing import find_sandbox

    if kept := recall(Folders.of(environ).state / "sandboxes", name):
        return kept
    try:
        listed = find_sandbox(connect(environ), name)
    except SbxError:
        return None
    return Kept(listed.kit, listed.workspace) if listed.kept and listed.kit else None
