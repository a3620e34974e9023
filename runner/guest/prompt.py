"""The system prompt. It is the same bytes in every round of a session, so that servers' prompt caches hit."""

from __future__ import annotations

from collections.abc import Sequence

from runner.wire.agent import CLOSED, PROXIED

DEFAULT = "You are a careful assistant working in a folder of the user's files."


def system_prompt(system: str, *, workspace: str, tools: Sequence[str], network: str, extra: Sequence[str] = ()) -> str:
    """The agent's own words, then the facts about the place it works in.

    Args:
        system: `system` of `agent.yaml`; empty takes a short default.
        workspace: the folder in the container.
        tools: names of the tools that are on.
        network: `none` or `closed`, `bridge`, or `proxy`: only what the gateway lets through.
        extra: further parts, such as the text of `AGENTS.md`, each already labelled.
    """
    facts = [f"You work in a Linux container. The user's files are in {workspace}, which is the current folder."]
    if "bash" in tools:
        facts.append("Use the bash tool to look at files and to change them; do not guess what they hold.")
    if network in ("none", CLOSED):
        facts.append("There is no network.")
    elif network == PROXIED:
        facts.append(
            "The network is a proxy (HTTP_PROXY is set) that lets some hosts through; a 403 of its names the rule."
        )
    return "\n\n".join([system.strip() or DEFAULT, " ".join(facts), *extra])
