"""Checking kits without composing or running them, many at once: `sbx kit validate PATH…`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.errors import SbxError
from runner.kits.base import plan_base
from runner.kits.find import Finder
from runner.kits.load import SPEC_NAMES, Kit, load_kit


@dataclass(frozen=True)
class Verdict:
    """What was found about one kit."""

    path: str
    """As it was named."""
    name: str = ""
    kind: str = ""
    errors: tuple[str, ...] = ()
    """Each `PLACE: MESSAGE`."""
    warnings: tuple[str, ...] = ()
    code: int = 0
    """Exit code of the first error."""

    @property
    def ok(self) -> bool:
        return not self.errors

    def to_json(self) -> dict[str, object]:
        return {
            "path": self.path,
            "name": self.name,
            "kind": self.kind,
            "ok": self.ok,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }


def validate(
    paths: Iterable[Path | str], *, portable: bool = False, finder: Finder | None = None
) -> tuple[Verdict, ...]:
    """Check kits, each by itself: its grammar, its files, and that what it names by folder or name is there.

    Args:
        paths: folders, spec files, names, or pinned references.
        portable: warn of what Docker's own command does not read or do.
    """
    finder = finder or Finder()
    return tuple(_verdict(path, portable, finder) for path in paths)


def _verdict(path: Path | str, portable: bool, finder: Finder) -> Verdict:
    shown = str(path)
    try:
        kit = _load(path, finder)
    except SbxError as error:
        return Verdict(shown, errors=_lines(error), code=error.exit_code)
    errors: list[str] = []
    code = 0
    try:
        plan_base(kit)
        _check_references(kit, finder)
    except SbxError as error:
        errors.extend(_lines(error))
        code = error.exit_code
    warnings = kit.warnings + (kit.beyond if portable else ())
    return Verdict(shown, kit.name, kit.spec.kind, tuple(errors), warnings, code)


def _load(path: Path | str, finder: Finder) -> Kit:
    if isinstance(path, Path) or Path(path).exists():
        return load_kit(path, checking=True)
    location = finder.locate(path)
    return load_kit(location.folder, origin=location.origin, root=location.root, checking=True)


def _check_references(kit: Kit, finder: Finder) -> None:
    """What lies on this machine must be there; nothing is fetched for a check."""
    from runner.kits.compose import blaming, location_of

    wanted = [(entry, "mixin") for entry in kit.spec.mixins]
    if kit.spec.extends:
        wanted.append((kit.spec.extends, "sandbox"))
    for entry, kind in wanted:
        with blaming(entry.place):
            if entry.text.startswith("git+"):
                from runner.kits.pinned import parse_reference

                parse_reference(entry.text)
            elif not entry.text.startswith("oci://") and "@" not in entry.text:
                finder.locate(entry.text, kind, beside=location_of(kit))


def _lines(error: SbxError) -> tuple[str, ...]:
    first = f"{error.place}: {error.message}" if error.place else error.message
    return (first, *(error.log or "").splitlines())


def is_kit_folder(path: Path) -> bool:
    """Whether a folder holds a spec."""
    return any((path / name).is_file() for name in SPEC_NAMES)
