"""What a guard says of a question that it stopped, without the question."""

from __future__ import annotations

import pytest

from runner.guest.hooks.scrub import scrub

QUESTION = "My password: hunter2 — can you store it in a file?\nAPI_KEY=sk-abcDEF123456"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("it holds a password", "it holds a password"),
        ("found hunter2", "found […]"),
        ("found sk-abcDEF123456!", "found […]!"),
        ("asked: My password: hunter2 — can you store it in a file?", "asked: […]"),
        ("", ""),
        ("can you store files here?", "can you store files here?"),
    ],
)
def test_lines_and_likely_secrets_are_masked_and_common_words_stay(text, masked):
    assert scrub(text, QUESTION) == masked


def test_an_empty_question_masks_nothing():
    assert scrub("reason", "") == "reason"
