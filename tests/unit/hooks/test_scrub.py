"""What a guard says of a question that it stopped, without the question."""

from __future__ import annotations

import pytest

from runner.guest.hooks.scrub import mask_secrets, scrub

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


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("found ghp_" + "a1" * 18, "ghp_a1"),
        ("found sk-proj-abc123DEF456ghi789jkl", "sk-proj"),
        ("found AKIAABCDEFGH12345678", "AKIA"),
        ("password=hunter2", "hunter2"),
        ("the password is hunter2", "hunter2"),
        ('{"api_key": "k-123456"}', "k-123456"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("https://me:s3cret@example.org/", "s3cret"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow", "MIIEow"),
    ],
)
def test_what_has_the_form_of_a_secret_is_masked(text, secret):
    assert secret not in mask_secrets(f"I was given {text}")


@pytest.mark.parametrize(
    "text",
    [
        "the token is missing",
        "no such key: name",
        "password: required",
        "rm -rf is not allowed",
        "/a/b:12: syntax error",
    ],
)
def test_ordinary_words_about_secrets_stay(text):
    assert mask_secrets(text) == text
