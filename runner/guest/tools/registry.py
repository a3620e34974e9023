"""The built-in tools by name."""

from __future__ import annotations

from collections.abc import Iterable

from runner.guest.spawn.spawner import Spawner
from runner.guest.tools.base import Place, Tool
from runner.guest.tools.bash import Bash, Jobs, ListJobs, Output, Outputs, Stop
from runner.guest.tools.files import EditFile, FetchContent, ListFiles, Plan, ReadFile, Search, WriteFile


def tools_for(names: Iterable[str], spawner: Spawner, place: Place, jobs: Jobs | None = None) -> list[Tool]:
    """The named tools, in a fixed order whatever the order of `names`: a prompt's prefix must stay the same.

    `bash` brings `jobs`, `output` and `stop`. Unknown names are left out: other parts of the guest own them.

    Args:
        jobs: the session's background jobs, which the caller closes at its end.
    """
    wanted = set(names)
    jobs = jobs or Jobs()
    outputs = Outputs()
    tools: list[Tool] = []
    if "bash" in wanted:
        tools += [Bash(spawner, place, outputs, jobs), ListJobs(jobs), Output(jobs), Stop(jobs)]
    for kind in (ReadFile, WriteFile, EditFile, ListFiles, Search, FetchContent):
        if kind.name in wanted:
            tools.append(kind(spawner, place))
    if Plan.name in wanted:
        tools.append(Plan())
    return tools
