"""Plans become images, on a real engine."""

from __future__ import annotations

import http.server
import io
import os
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine import Engine
from runner.errors import ImageError, NotFoundError
from runner.images import Event, Image, Note, Output, Ready, Step, ensure, tag
from runner.kits.plan import Base, CopiedFile
from tests.unit.images.plans import layer, plan

pytestmark = pytest.mark.engine

SECRET = "pr0xy-passw0rd"


def run(engine: Engine, image: str, *command: str) -> str:
    """The output of a command in a throwaway container of `image`."""
    with engine.call("running a test's command"):
        container = engine.api.create_container(
            image, list(command), labels={"dev.sbx.test": "images"}, network_disabled=True
        )
        try:
            engine.api.start(container)
            code = engine.api.wait(container)["StatusCode"]
            output = engine.api.logs(container).decode()
        finally:
            engine.api.remove_container(container, force=True, v=True)
    assert code == 0, output
    return output


def texts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Output))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody trusts yet, for 127.0.0.1, with its key beside it."""
    folder = tmp_path_factory.mktemp("authority")
    command = f"""openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=Test-Inspection
        -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {folder}/ca.crt"""
    subprocess.run(command.split(), check=True, capture_output=True)
    return folder / "ca.crt"


@pytest.fixture(scope="module")
def server(authority: Path) -> Iterator[str]:
    """An HTTPS server with that certificate; answers every GET with `well`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"well")

        def log_message(self, format: str, *args: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_name("key.pem"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{listener.server_address[1]}/"
        listener.shutdown()
        thread.join()


def test_the_image_has_what_the_guest_needs(engine: Engine, built: Image) -> None:
    script = """
        set -e
        for program in python3 bash git curl setpriv; do command -v $program >/dev/null; done
        test -s /etc/ssl/certs/ca-certificates.crt
        getent passwd 1000
        grep '^passwd:.*extrausers' /etc/nsswitch.conf >/dev/null
        cd / && PYTHONPATH=/opt/sbx/lib python3 -c 'import httpx, tenacity, runner.wire.frames'
        ls -A /opt/sbx/empty
    """
    assert run(engine, built.id, "bash", "-c", script) == "agent:x:1000:1000::/home/agent:/bin/bash\n"


def test_nobody_but_root_can_change_the_program(engine: Engine, built: Image) -> None:
    found = run(
        engine, built.id, "find", "/opt/sbx", "(", "-perm", "/022", "-o", "!", "-user", "root", ")", "!", "-type", "l"
    )
    assert found == ""


def test_the_program_is_compiled_ahead(engine: Engine, built: Image) -> None:
    script = "cd /opt/sbx/lib && ls httpx/*.py | wc -l; ls httpx/__pycache__/*.pyc | wc -l"
    sources, compiled = run(engine, built.id, "sh", "-c", script).split()
    assert int(sources) == int(compiled) > 10


def test_install_commands_run_as_the_user_they_name(engine: Engine, built: Image) -> None:
    assert run(engine, built.id, "cat", "/as-root", "/home/agent/as-agent").split() == ["root", "agent"]


def test_a_second_run_builds_nothing(engine: Engine, built: Image) -> None:
    commands = ("echo first > /first", "date +%N > /built; id -un > /as-root")
    again = plan(layer("one", *commands), layer("two", "id -un > ~/as-agent", user="1000"), name="test-images-one")
    events: list[Event] = []
    found = ensure(engine, again, progress=events.append)
    assert (found.id, found.built, events) == (built.id, False, [])


def test_a_changed_mixin_rebuilds_only_itself(engine: Engine, built: Image) -> None:
    commands = ("echo first > /first", "date +%N > /built; id -un > /as-root")
    changed = plan(layer("one", *commands), layer("two", "echo changed", user="1000"), name="test-images-one")
    events: list[Event] = []
    found = ensure(engine, changed, progress=events.append)
    assert found.id != built.id
    # The first mixin's step writes the nanosecond it ran at.
    assert run(engine, found.id, "cat", "/built") == run(engine, built.id, "cat", "/built")
    assert "changed" in texts(events)
    assert isinstance(events[-1], Ready)


def test_progress_counts_every_step(engine: Engine, built: Image) -> None:
    events: list[Event] = []
    ensure(engine, plan(layer("one", "echo counted"), name="test-images-steps"), progress=events.append)
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.number for step in steps] == list(range(1, steps[0].total + 1))


def test_home_files_arrive_with_owner_mode_and_links(engine: Engine, built: Image) -> None:
    home = (
        CopiedFile(".config/tool/settings", b"\x00\xff\n", 0o600),
        CopiedFile("bin/go", b"#!/bin/sh\n", 0o755),
        CopiedFile("link", link="bin/go"),
    )
    image = ensure(engine, plan(layer("one", home=home), name="test-images-home"))
    script = """cd /home/agent
        stat -c '%U %a %F %n' .config/tool/settings bin/go link
        readlink link
        od -An -tx1 .config/tool/settings"""
    assert run(engine, image.id, "sh", "-c", script).splitlines() == [
        "agent 600 regular file .config/tool/settings",
        "agent 755 regular file bin/go",
        "agent 777 symbolic link link",
        "bin/go",
        " 00 ff 0a",
    ]


def test_a_failing_step_shows_its_log_and_leaves_no_tag(engine: Engine, built: Image) -> None:
    failing = plan(layer("one", "echo ok"), layer("bad", "echo about to fail >&2; exit 41"), name="test-images-bad")
    with pytest.raises(ImageError) as caught:
        ensure(engine, failing)
    assert "exit 41: ended with 41" in caught.value.message
    assert caught.value.log == "about to fail\n"
    assert caught.value.exit_code == 5
    with pytest.raises(NotFoundError):
        engine.get(f"/images/{tag(failing)}/json", doing="looking")


def test_a_failed_build_leaves_no_container(engine: Engine, built: Image) -> None:
    with pytest.raises(ImageError):
        ensure(engine, plan(layer("bad", "echo marker-7261; false"), name="test-images-bad"))
    with engine.call("listing"):
        left = [c for c in engine.api.containers(all=True) if "marker-7261" in c["Command"]]
    assert left == []


def test_a_command_that_floods_keeps_the_end_of_its_log(engine: Engine, built: Image) -> None:
    flood = "head -c 20000000 /dev/zero | tr '\\0' x; echo the end; exit 3"
    with pytest.raises(ImageError) as caught:
        ensure(engine, plan(layer("flood", flood), name="test-images-flood"))
    assert caught.value.log is not None
    assert caught.value.log.endswith("the end\n")
    assert len(caught.value.log) <= 64 * 1024


def test_a_tag_that_someone_else_moved_is_not_taken(engine: Engine, built: Image) -> None:
    sample = plan(layer("one", "echo mine"), name="test-images-moved")
    mine = ensure(engine, sample)
    repository, _, version = mine.tag.partition(":")
    with engine.call("moving the tag"):
        engine.api.tag(built.id, repository, version, force=True)
    again = ensure(engine, sample)
    assert again.id == mine.id
    assert again.built


def test_a_base_without_apt_is_refused_with_what_it_lacks(engine: Engine, built: Image, tmp_path: Path) -> None:
    tmp_path.joinpath("Dockerfile").write_text(
        f"FROM {built.id}\nRUN rm /usr/bin/apt-get /usr/bin/curl /usr/bin/git\n", encoding="utf-8"
    )
    with pytest.raises(ImageError, match="lacks apt, to install git curl"):
        ensure(engine, plan(name="test-images-lacking", base=Base(context=tmp_path)))


def test_a_base_that_cannot_be_had_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(ImageError, match=r"127\.0\.0\.1:9/none:1 is not here and cannot be pulled"):
        ensure(engine, plan(name="test-images-none", base=Base("127.0.0.1:9/none:1")))


def test_builds_trust_the_given_certificate(engine: Engine, built: Image, server: str, authority: Path) -> None:
    python = f"python3 -c \"import urllib.request as u; print(u.urlopen('{server}').read())\""
    sample = plan(layer("fetch", f"curl -fsS {server} && {python}"), name="test-images-tls")
    events: list[Event] = []
    ensure(engine, sample, progress=events.append, certificates=[authority], network_mode="host")
    assert "wellb'well'" in texts(events).replace("\n", "")


def test_an_untrusted_certificate_says_which_flag_helps(engine: Engine, built: Image, server: str) -> None:
    with pytest.raises(ImageError) as caught:
        ensure(engine, plan(layer("fetch", f"curl -fsS {server}x"), name="test-images-tls"), network_mode="host")
    assert "--ca-certificate" in (caught.value.hint or "")


def test_nothing_of_the_hosts_settings_stays(
    engine: Engine, built: Image, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{SECRET}@127.0.0.1:9")
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:{SECRET}@index.example/simple")
    monkeypatch.setenv("NO_PROXY", "localhost")
    sample = plan(layer("show", "cat $PIP_CONFIG_FILE; env | grep -i proxy"), name="test-images-traces")
    events: list[Event] = []
    image = ensure(engine, sample, progress=events.append, certificates=[authority])
    # It was there, and the log masks it.
    assert "index.example" in texts(events)
    assert SECRET not in texts(events)
    pem = authority.read_text().splitlines()[1]
    with engine.call("reading the image back"):
        told = repr(engine.api.inspect_image(image.id)) + repr(engine.api.history(image.id))
        saved = b"".join(engine.api.get_image(image.id))
    for trace in (SECRET, "index.example", pem, "Test-Inspection"):
        assert trace not in told
        assert trace.encode() not in saved
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        assert "manifest.json" in tar.getnames()


def test_the_hosts_settings_do_not_change_the_image(
    engine: Engine, built: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    commands = ("echo first > /first", "date +%N > /built; id -un > /as-root")
    sample = plan(layer("one", *commands), layer("two", "id -un > ~/as-agent", user="1000"), name="test-images-one")
    assert tag(sample) == built.tag


def test_two_builds_of_one_plan_at_once_build_once(engine: Engine, built: Image, tmp_path: Path) -> None:
    sample = plan(layer("slow", "date +%N > /when; sleep 1"), name="test-images-twice")
    images: list[Image] = []
    events: list[Event] = []
    threads = [
        threading.Thread(target=lambda: images.append(ensure(engine, sample, progress=events.append))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(image.built for image in images) == [False, True]
    assert images[0].id == images[1].id
    assert [event for event in events if isinstance(event, Note) and "another build" in event.text]


def test_building_twice_in_a_row_gives_the_same_layers(engine: Engine, built: Image) -> None:
    sample = plan(layer("one", "echo layered > /x"), name="test-images-layers")
    first = ensure(engine, sample)
    with engine.call("untagging"):
        # Another tag keeps the layers, as a second kit's image would.
        engine.api.tag(first.id, "sbx/test-images-layers", "kept")
        engine.api.remove_image(first.tag)
    assert ensure(engine, sample).id == first.id


def test_the_lock_file_does_not_need_a_home(engine: Engine, built: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert ensure(engine, plan(layer("one", "echo homeless"), name="test-images-homeless")).built


def test_a_cancelled_build_ends_its_step_and_leaves_nothing(engine: Engine, built: Image) -> None:
    sample = plan(layer("slow", "echo begun-5519; sleep 300"), name="test-images-cancelled")

    def cancel(event: Event) -> None:
        if isinstance(event, Output) and "begun-5519" in event.text:
            raise KeyboardInterrupt

    def left() -> list[str]:
        with engine.call("listing"):
            return [c["State"] for c in engine.api.containers(all=True) if "begun-5519" in c["Command"]]

    with pytest.raises(KeyboardInterrupt):
        ensure(engine, sample, progress=cancel)
    deadline = time.monotonic() + 15
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == []
    with pytest.raises(NotFoundError):
        engine.get(f"/images/{tag(sample)}/json", doing="looking")


def test_a_front_end_that_fails_does_not_read_as_an_engine_that_does(engine: Engine, built: Image) -> None:
    def closed(event: Event) -> None:
        raise BrokenPipeError("stdout is closed")

    with pytest.raises(BrokenPipeError, match="stdout is closed"):
        ensure(engine, plan(layer("one", "echo unheard"), name="test-images-unheard"), progress=closed)
