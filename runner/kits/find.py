"""From what a user or a kit writes (`coder`, `./kit`, `git+https://…#ref=SHA`) to the folder that holds the kit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits import rules
from runner.kits.data import data_folder
from runner.kits.document import nearest
from runner.kits.load import SPEC_NAMES

ImageResolver = Callable[[str], Path]
"""From an image reference to a folder with the kit that the image carries."""

DATA_OF_KIND = {"sandbox": ("sbx",), "mixin": ("mixins",), "": ("sbx", "mixins")}


@dataclass(frozen=True)
class Location:
    """Where a kit was found."""

    folder: Path
    origin: str
    """The folder, or the pinned reference."""
    root: Path | None = None
    """Folder that the kit's own references must not leave; `None` for kits on this machine."""


@dataclass(frozen=True)
class Finder:
    """Finds kits.

    Args:
        environ: for `XDG_CONFIG_HOME`, `XDG_CACHE_HOME` and `HOME`.
        folder: where relative paths of the command line start; `None`: the current folder.
        image: finds the kit that an image carries.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path | None = None
    image: ImageResolver | None = None

    def locate(self, reference: str, kind: str = "", *, beside: Location | None = None) -> Location:
        """Find the kit that `reference` names.

        Args:
            kind: `sandbox` or `mixin` narrows where a bare name is looked for; it is not checked here.
            beside: the kit in whose spec the reference stands; relative paths start at its folder.

        Raises:
            NotFoundError: there is none; near names are listed.
            UsageError: the reference is not pinned, or none at all.
        """
        if reference.startswith("git+"):
            from runner.kits.pinned import fetch

            checkout, folder = fetch(reference, self.cache_folder())
            return Location(folder, reference, checkout)
        if reference.startswith("oci://"):
            return self._in_image(reference.removeprefix("oci://"), pinned=True)
        if reference.startswith((".", "/", "~")) or "/" in reference:
            return self._path(reference, beside)
        if ":" in reference or "@" in reference:
            return self._in_image(reference, pinned=beside is not None)
        return self._named(reference, kind)

    def names(self, kind: str = "") -> Iterator[tuple[str, Path, str]]:
        """All kits that a bare word can name: name, folder, and `ready-made` or `user`. The first of a name wins."""
        for folder, source in self._shelves(kind):
            try:
                entries = sorted(folder.iterdir())
            except OSError:
                continue
            for entry in entries:
                if rules.KIT_NAME.fullmatch(entry.name) and any((entry / name).is_file() for name in SPEC_NAMES):
                    yield entry.name, entry, source

    def cache_folder(self) -> Path:
        return self._xdg("XDG_CACHE_HOME", ".cache") / "sbx" / "kits"

    def user_folder(self) -> Path:
        return self._xdg("XDG_CONFIG_HOME", ".config") / "sbx" / "kits"

    def _xdg(self, variable: str, default: str) -> Path:
        value = self.environ.get(variable, "")
        # the XDG specification: a relative value is to be ignored
        return Path(value) if value.startswith("/") else Path(self.environ.get("HOME") or Path.home()) / default

    def _shelves(self, kind: str) -> Iterator[tuple[Path, str]]:
        for name in DATA_OF_KIND[kind]:
            try:
                yield data_folder(name), "ready-made"
            except NotFoundError:
                continue
        yield self.user_folder(), "user"

    def _named(self, name: str, kind: str) -> Location:
        if fault := rules.kit_name(name):
            raise UsageError(fault)
        for folder, _ in self._shelves(kind):
            candidate = folder / name
            # a sandbox kit may be an agent.yaml alone: it then uses the base image
            if any((candidate / file).is_file() for file in (*SPEC_NAMES, "agent.yaml")):
                return Location(candidate, str(candidate))
        known = sorted({known for known, _, _ in self.names(kind)})
        near = nearest(name, known)
        what = {"mixin": "mixin", "sandbox": "sandbox kit"}.get(kind, "kit")
        meant = f"; did you mean {near!r}?" if near else ""
        listed = f"there are: {', '.join(known)}" if known else f"there is none; your own go to {self.user_folder()}"
        raise NotFoundError(f"no {what} is called {name!r}{meant}", hint=listed)

    def _path(self, reference: str, beside: Location | None) -> Location:
        path = Path(reference)
        if reference.startswith("~"):
            if beside is not None:
                raise UsageError(f"{reference!r}: a kit cannot name a folder of its reader's home")
            path = Path(self.environ.get("HOME", "~")) / reference.removeprefix("~").lstrip("/")
        if not path.is_absolute():
            path = (beside.folder if beside else self.folder or Path.cwd()) / path
        elif beside is not None and beside.root is not None:
            raise UsageError(f"{reference!r}: a kit from elsewhere cannot name a folder of this machine")
        if not path.exists():
            if ":" in reference or "@" in reference:
                return self._in_image(reference, pinned=beside is not None)
            near = nearest(path.name, _siblings(path))
            meant = f"; did you mean {near!r}?" if near else ""
            raise NotFoundError(f"no such folder: {path}{meant}", place=str(path))
        resolved = Path(os.path.realpath(path))
        root = beside.root if beside else None
        if root is not None and not resolved.is_relative_to(os.path.realpath(root)):
            raise ConfigError(f"{reference!r} leads out of what was fetched", place=beside.origin if beside else None)
        folder = path.parent if path.name in SPEC_NAMES and path.is_file() else path
        folder = Path(os.path.normpath(folder.absolute()))
        return Location(folder, str(folder), root)

    def _in_image(self, reference: str, *, pinned: bool) -> Location:
        if pinned and not _is_digest(reference.rpartition("@")[2]):
            raise UsageError(f"{reference!r} is not pinned", hint="say NAME@sha256:…; a tag may be moved by anybody")
        if self.image is None:
            raise UsageError(f"{reference!r} names an image, and a kit is wanted here")
        folder = self.image(reference)
        return Location(folder, f"oci://{reference}", folder)


def names_image(reference: str) -> bool:
    """Whether what stands for a sandbox on the command line names an image: it has `:` or `@`, and is no path."""
    if reference.startswith(("git+", "./", "../", "/", "~")):
        return False
    return (":" in reference or "@" in reference) and not Path(reference).exists()


def find_kit(
    reference: str,
    kind: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    image: ImageResolver | None = None,
) -> Path:
    """The folder of the kit that `reference` names; see `Finder.locate`."""
    return Finder(dict(os.environ if environ is None else environ), folder, image).locate(reference, kind).folder


def _siblings(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _is_digest(text: str) -> bool:
    algorithm, _, digest = text.partition(":")
    return algorithm == "sha256" and len(digest) == 64 and all(c in "0123456789abcdef" for c in digest)
