from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kits"


@pytest.fixture
def fixtures() -> Path:
    """Kits of our own writing that use every key of both schemas."""
    return FIXTURES


@pytest.fixture
def write_kit(tmp_path: Path):
    """Write a kit: `write_kit("tool", "kind: mixin\\n…")` adds schemaVersion and name, and returns its folder."""

    def write(name: str, body: str = "kind: mixin\n", files: dict[str, str] | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.yaml").write_text(f'schemaVersion: "2"\nname: {folder.name}\n{body}')
        for path, content in (files or {}).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return folder

    return write
