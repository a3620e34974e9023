"""An engine that does not see the user's folder: a mount namespace of the command's own plays the other machine."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conformance.main.conftest import TIMEOUT, Sbx

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize("place", ["work", "work/only-here"])
def test_a_folder_that_the_engine_does_not_see_is_copied_and_that_is_said(
    sbx: Sbx, kit: Path, work: Path, place: str
) -> None:
    """Once the engine finds another, empty folder in its place, and once none."""
    folder = sbx.root / place
    command = shlex.join(sbx.command("run", kit, folder, "--demo", "-p", "run cat here.txt; touch made"))
    script = (
        f"mount -t tmpfs none {shlex.quote(str(work))} && mkdir -p {shlex.quote(str(folder))} &&"
        f" cd {shlex.quote(str(folder))} && echo here > here.txt && {command}; echo $? > {sbx.root}/code; ls -A"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=sbx.env(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (sbx.root / "code").read_text().strip() == "0", done.stderr
    assert done.stdout.splitlines() == ["here", "here.txt"]
    assert f"works on a copy of {folder}" in done.stderr
    assert not (work / "made").exists()
