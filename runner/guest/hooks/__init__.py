"""The hooks of a session: external commands that see, change or refuse what an agent does.

    chain       which hooks run at a moment, and what they come to together
    deltas      filtering the answer as it streams
    process     one run of one hook: environment, payload, end
    host        hooks that the host runs: audits and notices
    persistent  a hook that stays: one process for the session
    answer      what a hook said, all spellings folded into one
    dialect     other agents' names for events, tools and keys
    match       matchers that cannot hang the guest
    scrub       keeping a stopped question out of what is said about it
    report      the events that tell what ran
    trying      one hook alone, for `sbx hook test`
    results     what each event comes to, plain data

The protocol is described in `docs/reference/hooks.md`.
"""

from runner.guest.hooks.chain import HookChain
from runner.guest.hooks.deltas import TextFilter
from runner.guest.hooks.results import (
    MAX_PUSHES,
    Kept,
    ModelRequest,
    Permission,
    PostGeneration,
    PostToolCall,
    PreGeneration,
    PreToolCall,
    Pushed,
    SessionStart,
    Stop,
    ToolCall,
)

__all__ = [
    "MAX_PUSHES",
    "HookChain",
    "Kept",
    "ModelRequest",
    "Permission",
    "PostGeneration",
    "PostToolCall",
    "PreGeneration",
    "PreToolCall",
    "Pushed",
    "SessionStart",
    "Stop",
    "TextFilter",
    "ToolCall",
]
