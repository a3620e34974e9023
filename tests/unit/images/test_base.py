"""Which images can be made from packages."""

from __future__ import annotations

import pytest

from runner.images.base import bootstrapped_tag, debian_suite


@pytest.mark.parametrize(
    ("image", "suite"),
    [
        ("debian", "bookworm"),
        ("debian:bookworm-slim", "bookworm"),
        ("debian:12", "bookworm"),
        ("debian:12.9-slim", "bookworm"),
        ("debian:bookworm-20250520-slim", "bookworm"),
        ("debian:stable-slim", "bookworm"),
        ("docker.io/library/debian:trixie", "trixie"),
        ("debian:13", "trixie"),
    ],
)
def test_a_debian_is_made_from_its_own_suite(image: str, suite: str) -> None:
    assert debian_suite(image) == suite


@pytest.mark.parametrize(
    "image",
    [
        "ubuntu:24.04",
        "debian:buster",
        "mirror.example/debian:bookworm",
        "debian@sha256:" + "0" * 64,
        "debian:bookworm@sha256:" + "0" * 64,
        "mydebian:12",
    ],
)
def test_what_is_not_exactly_debian_is_not_replaced(image: str) -> None:
    assert debian_suite(image) == ""


def test_the_bootstrapped_base_is_named_by_suite_and_recipe() -> None:
    assert bootstrapped_tag("bookworm").startswith("sbx/debian:bookworm-")
