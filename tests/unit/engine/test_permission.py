import grp  # noqa: F401 — imported before the child gives up root: it could not read the interpreter's files any more
import os
import socket
from pathlib import Path

from runner.engine import connect
from runner.errors import EngineUnreachable


def as_another_user(path: str) -> str:
    """What a user without rights is told about the socket at `path`."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setresgid(12345, 12345, 12345)
            os.setresuid(12345, 12345, 12345)
            connect({"DOCKER_HOST": f"unix://{path}"})
            text = "connected"
        except EngineUnreachable as error:
            text = f"{error.exit_code} {error} | {error.hint}"
        except BaseException as error:
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def test_a_socket_that_this_user_may_not_open_is_told_with_its_group(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        folder.chmod(folder.stat().st_mode | 0o011)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chown(path, 0, 50)  # group staff on Debian
        path.chmod(0o660)
        said = as_another_user(str(path))
    assert said.startswith(f"4 you may not open the engine's socket {path} (DOCKER_HOST)")
    assert "usermod -aG staff" in said
