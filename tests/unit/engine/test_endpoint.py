"""Where the engine is looked for, and in which order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from runner.engine import endpoint
from runner.errors import ConfigError, EngineUnreachable


def write_context(home: Path, name: str, host: str, *, current: bool = True, tls: bool = False) -> None:
    docker = home / ".docker"
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = docker / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    meta.joinpath("meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if current:
        docker.joinpath("config.json").write_text(json.dumps({"currentContext": name}))
    if tls:
        files = docker / "contexts" / "tls" / key / "docker"
        files.mkdir(parents=True)
        for stem in ("ca", "cert", "key"):
            files.joinpath(f"{stem}.pem").write_text("x")


def test_docker_host_wins_over_the_context(tmp_path: Path) -> None:
    write_context(tmp_path, "desktop", "unix:///from/context.sock")
    found = endpoint({"HOME": str(tmp_path), "DOCKER_HOST": "unix:///from/host.sock"})
    assert (found.path, found.source) == ("/from/host.sock", "DOCKER_HOST")


def test_the_active_context_wins_over_the_default_socket(tmp_path: Path) -> None:
    write_context(tmp_path, "desktop", "unix:///from/context.sock")
    found = endpoint({"HOME": str(tmp_path)})
    assert (found.path, found.source) == ("/from/context.sock", 'Docker context "desktop"')


def test_docker_context_wins_over_the_configured_one(tmp_path: Path) -> None:
    write_context(tmp_path, "desktop", "unix:///desktop.sock")
    write_context(tmp_path, "other", "unix:///other.sock", current=False)
    assert endpoint({"HOME": str(tmp_path), "DOCKER_CONTEXT": "other"}).path == "/other.sock"


def test_the_context_named_default_is_the_default_socket(tmp_path: Path) -> None:
    write_context(tmp_path, "desktop", "unix:///desktop.sock")
    found = endpoint({"HOME": str(tmp_path), "DOCKER_CONTEXT": "default", "XDG_RUNTIME_DIR": str(tmp_path)})
    assert found.source == "default"


def test_docker_config_moves_the_folder(tmp_path: Path) -> None:
    write_context(tmp_path, "moved", "unix:///moved.sock")
    assert endpoint({"HOME": "/nowhere", "DOCKER_CONFIG": str(tmp_path / ".docker")}).path == "/moved.sock"


def test_a_contexts_tls_files_are_used(tmp_path: Path) -> None:
    write_context(tmp_path, "far", "tcp://engine.example:2376", tls=True)
    found = endpoint({"HOME": str(tmp_path)})
    assert found.tls is not None
    assert found.tls.verify
    assert Path(found.tls.ca).name == "ca.pem"
    assert found.url == "https://engine.example:2376"


def test_docker_tls_verify_uses_the_certificate_folder(tmp_path: Path) -> None:
    tmp_path.joinpath("ca.pem").write_text("x")
    found = endpoint(
        {"DOCKER_HOST": "tcp://10.0.0.1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path), "HOME": "/"}
    )
    assert found.tls is not None
    assert found.tls.ca == str(tmp_path / "ca.pem")
    assert found.port == 2376


def test_a_missing_context_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Docker context 'gone'"):
        endpoint({"HOME": str(tmp_path), "DOCKER_CONTEXT": "gone"})


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath(".docker").mkdir()
    tmp_path.joinpath(".docker/config.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        endpoint({"HOME": str(tmp_path)})
    assert caught.value.place == str(tmp_path / ".docker/config.json")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("tcp://127.0.0.1:2375", "http://127.0.0.1:2375"),
        ("tcp://[::1]:4000", "http://[::1]:4000"),
        ("tcp://host", "http://host:2375"),
        ("https://host", "https://host:2376"),
        ("/run/x.sock", "unix:///run/x.sock"),
    ],
)
def test_an_address_is_understood(address: str, url: str) -> None:
    assert endpoint({"DOCKER_HOST": address, "HOME": "/"}).url == url


@pytest.mark.parametrize("address", ["nonsense", "unix://relative", "tcp://", "tcp://host:x", "tcp://h:99999"])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not an engine's address"):
        endpoint({"DOCKER_HOST": address, "HOME": "/"})


def test_ssh_says_how_to_forward_the_socket() -> None:
    with pytest.raises(EngineUnreachable) as caught:
        endpoint({"DOCKER_HOST": "ssh://me@there", "HOME": "/"})
    assert "ssh -NL" in (caught.value.hint or "")
