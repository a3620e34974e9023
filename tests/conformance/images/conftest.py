"""One engine and one base for all builds here; what the tests build is removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runner.engine import Engine, connect
from runner.images import Image, ensure
from tests.unit.images.plans import layer, plan

PREFIX = "sbx/test-images-"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    found = connect()
    yield found
    with found.call("cleaning up after the tests"):
        for image in found.api.images():
            for tag in image["RepoTags"] or ():
                if tag.startswith(PREFIX):
                    found.api.remove_image(tag, force=True)
    found.close()


@pytest.fixture(scope="session")
def built(engine: Engine) -> Image:
    """A small image; it also keeps the layers below in the builder's cache."""
    commands = ("echo first > /first", "date +%N > /built; id -un > /as-root")
    sample = plan(layer("one", *commands), layer("two", "id -un > ~/as-agent", user="1000"), name="test-images-one")
    return ensure(engine, sample)
