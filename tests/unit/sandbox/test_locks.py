"""The lock of a sandbox's name: one holder, and no file that outlives its sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.errors import InUseError
from runner.sandbox.container import forget_lock, lock


def test_a_name_has_one_holder(tmp_path: Path) -> None:
    held = lock(tmp_path, "a")
    with pytest.raises(InUseError):
        lock(tmp_path, "a")
    os.close(held)
    os.close(lock(tmp_path, "a"))


def test_a_lock_whose_file_was_taken_away_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before the last holder took the file away, locked after: it must not count."""
    opened = os.open
    first = lock(tmp_path, "a")

    def late(path: Path, flags: int, mode: int) -> int:
        fd = opened(path, flags, mode)
        monkeypatch.setattr(os, "open", opened)
        forget_lock(tmp_path, "a")
        os.close(first)
        return fd

    monkeypatch.setattr(os, "open", late)
    held = lock(tmp_path, "a")
    with pytest.raises(InUseError):
        lock(tmp_path, "a")
    os.close(held)


def test_forgetting_twice_is_no_error(tmp_path: Path) -> None:
    os.close(lock(tmp_path, "a"))
    forget_lock(tmp_path, "a")
    forget_lock(tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
