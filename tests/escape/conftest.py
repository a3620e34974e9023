"""One stage for all attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.escape.stage import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made
