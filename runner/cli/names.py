"""`sbx _complete KIND…`: the names that a shell completes, one a line. Imports next to nothing, and never complains."""

from __future__ import annotations

import os
import sys

ENGINE_WITHIN = 1.0
"""Seconds for the engine: who waits for a completion is typing."""


def complete(kinds: list[str]) -> int:
    """Prints kits, sandboxes or sessions."""
    found: list[str] = []
    for kind in kinds:
        try:
            found += {"kits": kits, "sandboxes": sandboxes, "sessions": sessions}[kind]()
        except Exception:  # noqa: S112 - a message in the middle of a typed line helps nobody
            continue
    sys.stdout.write("".join(f"{name}\n" for name in dict.fromkeys(found) if name.isprintable() and " " not in name))
    return 0


def kits() -> list[str]:
    """The sandbox kits that a bare word names."""
    from runner.kits.data import data_folder

    base = os.environ.get("XDG_CONFIG_HOME", "")
    config = base if base.startswith("/") else os.path.expanduser("~/.config")  # noqa: PTH111
    found = []
    for folder in (str(data_folder("sbx")), f"{config}/sbx/kits"):
        try:
            with os.scandir(folder) as entries:
                found += sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "_")))
        except OSError:
            continue
    return found


def sandboxes() -> list[str]:
    """Those of the engine; where it does not answer at once, those that this machine remembers."""
    from runner.engine.client import connect
    from runner.errors import SbxError
    from runner.sandbox.listing import sandboxes as listed
    from runner.session.kept import names
    from runner.session.state import Folders

    try:
        return [each.name for each in listed(connect(os.environ, timeout=ENGINE_WITHIN), ENGINE_WITHIN)]
    except SbxError:
        return names(Folders.of().state / "sandboxes")


def sessions() -> list[str]:
    """The newest first."""
    from runner.session.sessions import ids
    from runner.session.state import Folders

    return ids(Folders.of())[::-1][:100]
