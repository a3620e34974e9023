"""What is said when the engine cannot be asked. Real sockets; a peer of our own plays the wrong engines."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker.errors
import pytest
import requests

from runner.engine import Engine, connect, endpoint
from runner.engine.client import unreachable
from runner.errors import EngineError, EngineTimeout, EngineUnreachable, ImageError, NotFoundError


@contextmanager
def peer(path: Path, answer: bytes | None) -> Iterator[dict[str, str]]:
    """Listens at `path`, answers one request with `answer`; with None it never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                if answer is None:
                    done.wait(10)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield {"DOCKER_HOST": f"unix://{path}", "HOME": "/"}
        finally:
            done.set()
            thread.join()


def test_a_missing_socket_says_which_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable, match=f"no socket {tmp_path}/none.sock") as caught:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "HOME": "/"})
    assert "docker.io" in (caught.value.hint or "")
    assert caught.value.exit_code == 4


def test_a_socket_nobody_listens_at_says_start_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left.sock"))
    with pytest.raises(EngineUnreachable, match="no Docker engine listens") as caught:
        connect({"DOCKER_HOST": f"unix://{tmp_path}/left.sock", "HOME": "/"})
    assert "systemctl start docker" in (caught.value.hint or "")


def test_a_closed_socket_names_its_group(tmp_path: Path) -> None:
    path = tmp_path / "closed.sock"
    path.touch(mode=0o660)
    path.chmod(0o660)
    os.chown(path, 0, 12345)  # a group nobody is in, without a name
    at = endpoint({"DOCKER_HOST": f"unix://{path}", "HOME": "/"})
    error = unreachable(at, PermissionError(13, "Permission denied"))
    assert "its group is 12345" in error.message
    assert "usermod -aG 12345" in (error.hint or "")


def test_an_engine_that_says_nothing_is_a_timeout(tmp_path: Path) -> None:
    with peer(tmp_path / "mute.sock", None) as environ, pytest.raises(EngineTimeout, match=r"nothing for 0\.2 s"):
        connect(environ, timeout=0.2)


def test_what_is_no_engine_is_said_to_be_none(tmp_path: Path) -> None:
    answer = b"HTTP/1.0 200 OK\r\nServer: other\r\n\r\nhello"
    with peer(tmp_path / "web.sock", answer) as environ, pytest.raises(EngineUnreachable, match="no Docker engine"):
        connect(environ)


def test_what_speaks_no_http_is_said_to_speak_none(tmp_path: Path) -> None:
    with peer(tmp_path / "ssh.sock", b"SSH-2.0-x\r\n") as environ, pytest.raises(EngineUnreachable, match="no HTTP"):
        connect(environ)


def test_an_old_engine_is_refused_with_both_versions(tmp_path: Path) -> None:
    answer = b"HTTP/1.0 200 OK\r\nApi-Version: 1.40\r\n\r\nOK"
    with peer(tmp_path / "old.sock", answer) as environ, pytest.raises(EngineError, match=r"1\.40, at least 1\.41"):
        connect(environ)


@pytest.mark.parametrize(("offered", "spoken"), [("1.41", "1.41"), ("1.43", "1.43"), ("1.99", "1.44"), ("2.0", "1.44")])
def test_the_version_is_the_lower_of_both(tmp_path: Path, offered: str, spoken: str) -> None:
    answer = f"HTTP/1.0 200 OK\r\nApi-Version: {offered}\r\n\r\nOK".encode()
    with peer(tmp_path / "e.sock", answer) as environ:
        assert connect(environ).version == spoken


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (docker.errors.NotFound("x", explanation="No such image: y"), NotFoundError),
        (docker.errors.APIError("x", explanation="boom"), EngineError),
        (requests.ReadTimeout(), EngineTimeout),
        (requests.ConnectionError("UnixHTTPConnectionPool: Read timed out."), EngineTimeout),
        (requests.ConnectionError("Connection aborted."), EngineUnreachable),
        (BrokenPipeError(), EngineUnreachable),
    ],
)
def test_a_failure_of_the_sdk_becomes_one_of_ours(raised: Exception, becomes: type[Exception]) -> None:
    engine = Engine(endpoint({"DOCKER_HOST": "unix:///x", "HOME": "/"}), "1.41")
    with pytest.raises(becomes) as caught, engine.call("testing"):
        raise raised
    assert type(caught.value) is becomes


def test_a_full_disk_says_what_to_free() -> None:
    engine = Engine(endpoint({"DOCKER_HOST": "unix:///x", "HOME": "/"}), "1.41")
    with pytest.raises(EngineError) as caught, engine.call("testing"):
        raise docker.errors.APIError("x", explanation="write /x: no space left on device")
    assert "disk is full" in (caught.value.hint or "")


def test_a_mistake_of_our_own_is_not_blamed_on_the_engine() -> None:
    engine = Engine(endpoint({"DOCKER_HOST": "unix:///x", "HOME": "/"}), "1.41")
    with pytest.raises(KeyError), engine.call("testing"):
        raise KeyError("mistake")


def test_an_error_of_ours_passes_through_unchanged() -> None:
    engine = Engine(endpoint({"DOCKER_HOST": "unix:///x", "HOME": "/"}), "1.41")
    ours = ImageError("RUN curl: connection timed out")
    with pytest.raises(ImageError) as caught, engine.call("building"):
        raise ours
    assert caught.value is ours
