"""Which package versions an image holds, read from the files in which its package managers keep that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

Packages = dict[str, dict[str, str]]
"""Manager (`dpkg`, `pip`, `npm`) → name → version; several versions side by side are joined with `, `."""


def installed(kept: Mapping[str, bytes]) -> Packages:
    """The versions that the kept files of an image tell; a file that cannot be read tells none.

    Args:
        kept: path → content, as `content.read` keeps them.
    """
    found: dict[str, dict[str, set[str]]] = {"dpkg": {}, "pip": {}, "npm": {}}
    for path, raw in kept.items():
        if path.startswith("var/lib/dpkg/"):
            for name, version in _dpkg(raw.decode("utf-8", "replace")):
                found["dpkg"].setdefault(name, set()).add(version)
        elif path.endswith(("/METADATA", "/PKG-INFO")) and not path.startswith("opt/sbx/"):
            head = _fields(raw.decode("utf-8", "replace").partition("\n\n")[0])
            if head.get("Name") and head.get("Version"):
                found["pip"].setdefault(head["Name"].lower().replace("_", "-"), set()).add(head["Version"])
        elif path.endswith("/package.json"):
            for name, version in _npm(raw):
                found["npm"].setdefault(name, set()).add(version)
    return {
        manager: {name: ", ".join(sorted(versions)) for name, versions in sorted(names.items())}
        for manager, names in found.items()
    }


def _dpkg(text: str) -> Iterable[tuple[str, str]]:
    for paragraph in text.split("\n\n"):
        fields = _fields(paragraph)
        if fields.get("Status", "install ok installed") == "install ok installed" and "Package" in fields:
            yield fields["Package"], fields.get("Version", "")


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            found.setdefault(name, value.strip())
    return found


def _npm(raw: bytes) -> Iterable[tuple[str, str]]:
    try:
        document = json.loads(raw)
    except ValueError:
        return
    if isinstance(document, dict):
        name, version = document.get("name"), document.get("version")
        if isinstance(name, str) and isinstance(version, str):
            yield name, version
