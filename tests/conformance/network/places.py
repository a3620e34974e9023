"""Where a secret could have got to: everything that a run writes, shows or makes, as bytes to search."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

from runner.engine import Engine
from tests.conformance.main.conftest import Done, Sbx

MOST = 1024 * 1024 * 1024


def forms(secret: str) -> list[bytes]:
    """A secret as it may be written: as it is, in base64 at each of its three offsets, URL-encoded, in hex."""
    found = [secret, quote(secret, safe=""), secret.encode().hex()]
    for shift in range(3):
        found.append(base64.b64encode(b"?" * shift + secret.encode()).decode()[4 : -4 or None])
    return [text.encode() for text in found]


def holding(places: dict[str, bytes], secret: str) -> list[str]:
    """Names of the places that hold the secret in any form."""
    return sorted(name for name, data in places.items() if any(form in data for form in forms(secret)))


def of_run(sbx: Sbx, done: Done) -> dict[str, bytes]:
    """What the command showed, and every file that it wrote under its state and cache folders."""
    places = {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    for folder in ("state", "cache"):
        for path in sorted((sbx.root / folder).rglob("*")):
            if path.is_file():
                places[f"{folder}: {path.name}"] = path.read_bytes()
    return places


def of_container(engine: Engine, container: str) -> dict[str, bytes]:
    """What the engine tells of a container, its files, its home, and its image's history."""
    document = engine.get(f"/containers/{container}/json", doing="inspecting")
    history = engine.get(f"/images/{document['Image']}/history", doing="reading the history")
    image = engine.get(f"/images/{document['Image']}/json", doing="inspecting the image")
    places = {
        "docker inspect": json.dumps(document).encode(),
        "image history": json.dumps(history).encode(),
        "image inspect": json.dumps(image).encode(),
    }
    with engine.call("exporting the container", 120):
        places["container files"] = b"".join(engine.api.export(container))
    with engine.call("reading the home", 120):
        places["home"] = b"".join(engine.api.get_archive(container, "/home/agent")[0])
    return places


def of_workspace(folder: Path) -> dict[str, bytes]:
    """Files of the workspace: what a tool wrote of its own environment and processes among them."""
    return {f"workspace: {path.name}": path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
