"""All attacks."""

from __future__ import annotations

from tests.escape import guest, kernel, limits, network
from tests.escape.attack import Attack

ATTACKS: list[Attack] = [*kernel.ATTACKS, *guest.ATTACKS, *guest.ENDINGS, *network.ATTACKS, *limits.ATTACKS]

UNSHOWABLE = {"kernel crypto socket", "load a module"}
"""Where a kernel lacks the thing itself, its door cannot be shown to open: listed with what the kernel said."""
