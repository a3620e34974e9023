"""Runs `sbx` with one function that raises an error of ours, whose text holds a secret.

    python -m tests.conformance.network.crashing MODULE:NAME[.NAME] ARGUMENTS…

The secret is read from the variable SBX_TEST_SECRET.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys


def main() -> None:
    module, _, path = sys.argv[1].partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    secret = os.environ["SBX_TEST_SECRET"]

    def crash(*arguments: object, **options: object) -> None:
        raise RuntimeError(f"crashed with Authorization: Bearer {secret}")

    async def crash_later(*arguments: object, **options: object) -> None:
        await asyncio.sleep(0)
        crash()

    later = inspect.iscoroutinefunction(inspect.unwrap(getattr(owner, name)))
    setattr(owner, name, crash_later if later else crash)
    sys.argv[1:2] = []
    from runner.__main__ import main as sbx

    sbx()


if __name__ == "__main__":
    main()
