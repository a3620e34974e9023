"""Where the ready-made images, mixins, hooks and sandbox kits lie: in the checkout, or in the installed package."""

from __future__ import annotations

from pathlib import Path

from runner.errors import NotFoundError

NAMES = ("images", "mixins", "hooks", "sbx")


def data_folder(name: str) -> Path:
    """The folder of ready-made things called `name`, one of `NAMES`.

    Raises:
        NotFoundError: this installation lacks it.
    """
    if name not in NAMES:
        raise ValueError(name)
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_data" / name, package.parent / name):
        # beside a package that was installed without its data lies site-packages, not a checkout
        if candidate.is_dir() and (candidate.parent.name == "_data" or (package.parent / "pyproject.toml").is_file()):
            return candidate
    raise NotFoundError(f"this installation of sbx has no {name!r} folder", hint="install it again")
