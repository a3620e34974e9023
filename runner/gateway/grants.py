"""Grants: what a kit asks for beyond the default profile, and who may say yes.

The command line's own wishes (`--mount`, `--publish`, …) are granted by being asked; a kit's wishes need `--grant NAME`
or a yes on the terminal. The policy files bound both: a name in a file's `grants.deny`, or missing from its
`grants.allow`, stays refused whoever asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from runner.errors import RefusedError
from runner.gateway.names import HOST_ALIAS, BadName, is_loopback_name, normalise

if TYPE_CHECKING:
    from runner.gateway.rules import PolicyFile

NAMES = (
    "privileged",
    "mount",
    "device",
    "capability",
    "writable-root",
    "network",
    "root-startup",
    "host-hooks",
    "home-workspace",
    "model-url",
)


@dataclass(frozen=True)
class Wish:
    """Something beyond the default profile that somebody asks for."""

    grant: str
    """One of `NAMES`."""
    what: str
    """What exactly, for the banner: `network example.com:443`."""
    source: str
    """`kit NAME` or the option."""
    by_user: bool = False
    """The user's own command line asks; that grants it."""


@dataclass(frozen=True)
class Granted:
    """A wish that is fulfilled, and who granted it."""

    wish: Wish
    by: str
    """`command line`, `--grant` or `terminal`."""


@dataclass(frozen=True)
class Missing:
    """A wish that is not fulfilled."""

    wish: Wish
    reason: str
    bound: str = ""
    """The policy file that forbids it; asking does not help then."""


def settle(
    wishes: Sequence[Wish],
    granted: Collection[str] = (),
    answered: Collection[str] = (),
    files: Sequence[PolicyFile] = (),
) -> tuple[tuple[Granted, ...], tuple[Missing, ...]]:
    """Which wishes are fulfilled.

    Args:
        granted: names given by `--grant`.
        answered: names that the user said yes to on the terminal, now or for this kit's content before.
        files: the policy files.
    """
    given: list[Granted] = []
    missing: list[Missing] = []
    for wish in wishes:
        if bound := forbidden(wish.grant, files):
            missing.append(Missing(wish, f"{bound} does not allow the grant {wish.grant}", bound))
        elif wish.by_user:
            given.append(Granted(wish, "command line"))
        elif wish.grant in granted:
            given.append(Granted(wish, "--grant"))
        elif wish.grant in answered:
            given.append(Granted(wish, "terminal"))
        else:
            missing.append(Missing(wish, f"{wish.source} asks for {wish.what}"))
    return tuple(given), tuple(missing)


def demand(missing: Sequence[Missing]) -> None:
    """Refuses a run that lacks a grant.

    Raises:
        RefusedError: with every missing grant and the option that gives it.
    """
    if not missing:
        return
    names = list(dict.fromkeys(m.wish.grant for m in missing if not m.bound))
    bounds = list(dict.fromkeys(m.bound for m in missing if m.bound))
    raise RefusedError(
        "; ".join(m.reason for m in missing),
        place=", ".join(bounds) or None,
        hint="run again with " + " ".join(f"--grant {name}" for name in names) if names else None,
    )


def forbidden(grant: str, files: Sequence[PolicyFile]) -> str:
    """The policy file that forbids a grant; empty when none does."""
    for file in files:
        if grant in file.grants_deny or (file.grants_allow is not None and grant not in file.grants_allow):
            return file.path
    return ""


def model_url_needs_grant(url: str, known_ports: Collection[int], configured: Collection[str] = ()) -> bool:
    """Whether a kit's model URL needs the grant `model-url`: a kit must not choose where prompts go.

    Args:
        known_ports: ports of the providers that sbx knows.
        configured: URLs in the user's own configuration.
    """
    if url.rstrip("/") in {known.rstrip("/") for known in configured}:
        return False
    try:
        parts = urlsplit(url)
        host = normalise(parts.hostname or "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except (ValueError, BadName):
        return True
    return not ((is_loopback_name(host) or host == HOST_ALIAS) and port in known_ports)


def model_url_forbidden(url: str, files: Sequence[PolicyFile]) -> str:
    """The policy file whose `models.allow` does not hold this URL; empty when none objects.

    An entry is a URL; it stands for itself with or without a trailing slash.
    """
    for file in files:
        if file.models_allow is not None and url.rstrip("/") not in {u.rstrip("/") for u in file.models_allow}:
            return file.path
    return ""
