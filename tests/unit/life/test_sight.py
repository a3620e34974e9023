"""Which of the engine's paths a folder here has."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.sight import Sight, own_containers

ID = "4f" * 32
TABLE = f"""\
1 0 0:1 / / rw - overlay overlay rw
2 1 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw
3 1 8:1 /var/lib/docker/containers/{ID}/hosts /etc/hosts rw - ext4 /dev/sda1 rw
4 1 8:1 /home/me/{"ab" * 32}/x /work rw - ext4 /dev/sda1 rw
"""


def test_the_mount_table_names_the_container_once_and_no_other_folder() -> None:
    assert own_containers(TABLE) == [ID]
    assert own_containers("") == own_containers("garbage\n1 2\n") == []


IN_CONTAINER = Sight("container", "", (("/work/deep", "/mnt/d"), ("/work", "/home/me/project")))


@pytest.mark.parametrize(
    ("sight", "path", "expected"),
    [
        (Sight("here", ""), "/any", "/any"),
        (Sight("remote", ""), "/any", None),
        (IN_CONTAINER, "/work", "/home/me/project"),
        (IN_CONTAINER, "/work/sub/x", "/home/me/project/sub/x"),
        (IN_CONTAINER, "/work/deep/x", "/mnt/d/x"),
        (IN_CONTAINER, "/workshop", None),
        (IN_CONTAINER, "/tmp", None),
    ],
)
def test_a_folder_has_the_engines_path_or_none(sight: Sight, path: str, expected: str | None) -> None:
    assert sight.engine_path(Path(path)) == expected
