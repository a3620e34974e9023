#!/usr/bin/env python3
"""postToolCall: masks keys in a tool's output before the model reads it, in errors too.

Each is replaced by `[redacted: a GitHub token]`, so that the model knows what stood there and does not ask for it
again. What has a fixed form is found by it; `NAME=value` is masked where the name says that it is secret and the value
is no placeholder. What a tool prints in another form (reversed, in base64) passes: keep secrets out of the sandbox.
"""

import re

from hook_io import HookError, serve

PATTERNS = [
    ("a private key", r"-----BEGIN (?P<kind>[A-Z ]{0,30})PRIVATE KEY-----.*?(?:-----END (?P=kind)PRIVATE KEY-----|\Z)"),
    ("an Anthropic key", r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{16,200}"),
    (
        "an OpenAI-style key",
        r"(?<![A-Za-z0-9])sk-(?=[A-Za-z0-9_-]{0,40}[0-9])(?:[a-z0-9]{2,10}-)?[A-Za-z0-9_-]{16,200}",
    ),
    ("a GitHub token", r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255})"),
    ("a GitLab token", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,100}"),
    ("an AWS key", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("a Google key", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}"),
    ("a Slack token", r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,200}"),
    ("a Stripe key", r"(?<![A-Za-z0-9])[sr]k_live_[A-Za-z0-9]{16,200}"),
    ("a signed token (JWT)", r"(?<![A-Za-z0-9])eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}"),
]
COMPILED = [(name, re.compile(pattern, re.DOTALL)) for name, pattern in PATTERNS]
MARKS = {
    "a private key": ("PRIVATE KEY-----",),
    "an Anthropic key": ("sk-ant-",),
    "an OpenAI-style key": ("sk-",),
    "a GitHub token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "a GitLab token": ("glpat-",),
    "an AWS key": ("AKIA", "ASIA", "ABIA", "ACCA"),
    "a Google key": ("AIza",),
    "a Slack token": ("xox",),
    "a Stripe key": ("k_live_",),
    "a signed token (JWT)": (".eyJ",),
}
"""Texts without which a pattern cannot match. Looking for them first keeps a large, harmless output quick."""
WORDS = ("pass", "secret", "token", "key")
"""The same for `NAMED`, in lower case."""

NAMED = re.compile(
    r"(?i)(?P<name>(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|"
    r"auth[_-]?key)[\"']?\s{0,3}[:=]\s{0,3}(?:bearer\s)?)(?P<quote>[\"']?)(?P<value>[^\s\"',;]{6,500})(?P=quote)"
)
IN_URL = re.compile(r"(?P<name>://[^\s:/@\"']{0,100}:)(?P<value>[^\s/@\"']{3,200})(?=@)")
BEARER = re.compile(
    r"(?i)(?P<name>authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer|basic|token)\s{1,3})"
    r"(?P<value>[A-Za-z0-9._~+/=-]{8,4000})"
)
PLACEHOLDER = re.compile(
    r"(?i)^(?:\$|<|\{|\[|\(|%|\*+$|x+$|\.+$|(?:none|null|true|false|proxy-managed)$|str\b|string\b|"
    r"os\.|process\.|env\.|self\.|get|your|change|redacted)|[()]"
)


def masked(text):
    """The text with what looks like a secret replaced."""
    for name, pattern in COMPILED:
        if any(mark in text for mark in MARKS[name]):
            text = pattern.sub(f"[redacted: {name}]", text)
    lower = text.lower()
    if "authorization" in lower:
        text = BEARER.sub(lambda match: match["name"] + "[redacted: a credential]", text)
    if "://" in text:
        text = IN_URL.sub(lambda match: match["name"] + "[redacted: a password]", text)
    return NAMED.sub(_named, text) if any(word in lower for word in WORDS) else text


def _named(match):
    value = match["value"]
    if PLACEHOLDER.search(value) or not re.search(r"[0-9!@#$%^&*+?~]", value):
        return match[0]
    kind = "a password" if "pass" in match["name"].lower() else "a secret"
    return f"{match['name']}{match['quote']}[redacted: {kind}]{match['quote']}"


def clean(value):
    """A value of any shape with all its texts masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def handle(event):
    if "output" not in event:
        raise HookError("the event has no output")
    output = clean(event["output"])
    return None if output == event["output"] else {"output": output}


if __name__ == "__main__":
    serve("redact", handle)
