"""What everything of ours bears in the engine. A module of its own, so that a listing imports nothing else."""

from __future__ import annotations

LABEL_SESSION = "dev.sbx.session"
LABEL_SANDBOX = "dev.sbx.sandbox"
LABEL_PLAN = "dev.sbx.plan"
LABEL_KEEP = "dev.sbx.keep"
LABEL_WORKSPACE = "dev.sbx.workspace"
LABEL_KIT = "dev.sbx.from"
"""The kit's folder, or its name."""
LABEL_MODE = "dev.sbx.mode"
"""How it has its workspace; one of `profile.MODES`."""
LABEL_PROFILE = "dev.sbx.profile"
"""Digest of the controls, so that a sandbox with others is never taken up unseen."""
LABEL_LAUNCH = "dev.sbx.launch"
"""Of one attempt to make a sandbox, so that its janitor removes nothing that another made under the same name."""
