"""What `sbx kit validate`, `inspect`, `init` and `ls` stand on."""

from __future__ import annotations

import json
import time

import pytest

from runner.errors import InUseError, UsageError
from runner.kits import find
from runner.kits.arguments import parse_kit_arguments
from runner.kits.compose import compose
from runner.kits.find import Finder
from runner.kits.inspect import hopeless_startup, inspect
from runner.kits.plan import Startup
from runner.kits.shelf import init, ls
from runner.kits.validate import validate


def test_every_fixture_is_valid(fixtures):
    folders = sorted(fixtures.iterdir())
    assert [verdict.path for verdict in validate(folders) if not verdict.ok] == []


def test_a_verdict_tells_the_faults_of_each_kit(write_kit):
    good = write_kit("good")
    bad = write_kit("bad", "kind: mixin\nzzz: 1\nports: [{container: 0}]\n")
    lost = write_kit(
        "lost", "kind: sandbox\nsandbox: {image: x}\nmixins: [../nowhere, 'git+https://h.example/r#ref=main']\n"
    )
    verdicts = validate([good, str(bad), lost, good.parent / "missing"])
    assert [verdict.ok for verdict in verdicts] == [True, False, False, False]
    assert [verdict.code for verdict in verdicts] == [0, 2, 3, 3]
    assert (
        verdicts[1].errors[1] == f"{bad / 'spec.yaml'}:5:21: ports[0].container: must be a whole number from 1 to 65535"
    )
    assert "no such folder" in verdicts[2].errors[0]
    assert json.loads(json.dumps(verdicts[1].to_json()))["ok"] is False


def test_portable_warns_of_what_docker_does_not_read(fixtures):
    (plain,) = validate([fixtures / "every-key"])
    (portable,) = validate([fixtures / "every-key"], portable=True)
    assert len(portable.warnings) == len(plain.warnings) + 3


def test_a_hundred_specs_are_checked_in_half_a_second(fixtures):
    folder = fixtures / "every-key"
    started = time.perf_counter()
    verdicts = validate([folder] * 100)
    assert all(verdict.ok for verdict in verdicts)
    assert time.perf_counter() - started < 2.0, "the bench holds the true bound; this one allows for a busy machine"


@pytest.fixture
def told(fixtures):
    return inspect(compose(fixtures / "every-key", arguments=parse_kit_arguments(["region=eu"])))


def test_a_plan_is_told_as_data(told):
    json.dumps(told)
    assert told["base"] == {"image": "registry.example.org/agents/every:1.4.2", "pinned": False}
    assert [kit["name"] for kit in told["kits"]] == ["every-key", "every-key-mixin"]
    assert told["installed"][1]["commands"][0]["command"] == "pip install --no-cache-dir example"
    assert {"host": "*.cdn.example.org", "by": "every-key"} in told["opened"]["allow"]
    assert told["opened"]["during_build"]["deny"] == [{"host": "ads.example.org", "by": "every-key"}]
    assert told["mounted"][1] == {
        "path": "/var/scratch",
        "type": "tmpfs",
        "size": "512m",
        "mode": "1777",
        "by": "every-key",
    }
    assert told["published"][0] == {"container": 8080, "protocol": "tcp", "name": "web", "by": "every-key"}
    assert told["credentials"][0]["sent_to"] == ["api.example.org", "api.example.org:8443"]
    assert told["environment"]["MIXIN"] == {"value": "yes", "by": "every-key-mixin"}
    assert told["left_aside"]["entrypoint"] == ["every", "--quiet"]


def test_a_startup_command_that_cannot_work_says_why(told):
    hopeless = [entry for entry in told["startup"] if "cannot_work" in entry]
    assert [entry["command"] for entry in hopeless] == [["sh", "-c", "apt-get update"]]
    assert hopeless[0]["cannot_work"].startswith("apt: ")


HOPELESS = {
    "apt by its path": (("/usr/bin/apt-get", "update"), "apt"),
    "sshd": (("/usr/sbin/sshd", "-D"), "sshd"),
    "a service": (("service", "ssh", "start"), "sshd"),
    "a Docker daemon": (("dockerd",), "dockerd"),
    "after other commands": (("bash", "-c", "set -e; mkdir -p /x && exec dockerd &"), "dockerd"),
    "with flags of the shell": (("bash", "-euo", "pipefail", "-c", "sudo ls"), "sudo"),
    "after variables": (("env", "A=1", "nohup", "dockerd"), "dockerd"),
    "behind a test": (("sh", "-c", "command -v apt-get > /dev/null 2>&1 && (apt-get update -qq || true) &"), "apt"),
    "after a redirection": (("sh", "-c", ": >/var/log/d.log\nnohup dockerd >>/var/log/d.log 2>&1 &\ni=0"), "dockerd"),
    "after a comment": (("sh", "-c", "true # it's fine\nsysctl -w a=b"), "sysctl"),
    "over two lines": (("sh", "-c", "exec \\\n  dockerd --debug"), "dockerd"),
    "in a condition": (("sh", "-c", "if true; then\n  chown agent /x\nfi"), "chown"),
}


@pytest.mark.parametrize(("command", "program"), HOPELESS.values(), ids=HOPELESS.keys())
def test_programs_that_need_capabilities_are_found(command, program):
    (found,) = hopeless_startup([Startup(command, "0", source="x")])
    assert found.program == program


@pytest.mark.parametrize(
    "entry",
    [
        Startup(("apt-get", "update"), "1000"),
        Startup(("echo", "apt"), "0"),
        Startup(("sh", "-c", "echo sshd # dockerd"), "0"),
        Startup(("sh", "-c", "# apt-get update\ntrue"), "0"),
        Startup(("sh", "-c", "if ! command -v dockerd; then echo 'no; apt-get install it' >&2; fi"), "0"),
        Startup(("sh", "-c", "cat > x <<'EOF'\napt-get update\nEOF\ntrue"), "0"),
        Startup(("sh", "-c", "echo \"$(date)\" 'mount; umount'"), "0"),
        Startup(("sh", "script.sh"), "root"),
        Startup(("sh",), "0"),
    ],
)
def test_other_startup_commands_are_not_called_hopeless(entry):
    assert hopeless_startup([entry]) == ()


def test_a_hostile_startup_script_is_read_in_little_time():
    started = time.perf_counter()
    for script in ("cat <<A\n" * 50_000, "<<A " * 100_000, "'" * 200_001, "a;" * 100_000):
        hopeless_startup([Startup(("sh", "-c", script), "0")])
    assert time.perf_counter() - started < 8


@pytest.mark.parametrize("kind", ["sandbox", "mixin"])
def test_a_new_kit_is_valid_from_the_start(tmp_path, kind):
    folder = init("new-kit", tmp_path, kind=kind)
    (verdict,) = validate([folder], portable=True)
    assert (verdict.ok, verdict.name, verdict.kind, verdict.warnings) == (True, "new-kit", kind, ())
    assert (folder / "README.md").is_file()
    assert (folder / "agent.yaml").is_file() == (kind == "sandbox")


def test_a_new_kit_is_never_written_over_an_old_one(tmp_path):
    init("kit", tmp_path)
    before = (tmp_path / "kit/spec.yaml").read_text()
    with pytest.raises(InUseError, match="is there already, and not empty"):
        init("kit", tmp_path, kind="mixin")
    assert (tmp_path / "kit/spec.yaml").read_text() == before


@pytest.mark.parametrize("name", ["../x", "a/b", "A", "", ".", "/tmp/x"])
def test_a_new_kit_cannot_be_called_so(tmp_path, name):
    with pytest.raises(UsageError, match="is not a kit name"):
        init(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ls_tells_all_kits_and_which_cannot_be_read(tmp_path, write_kit, monkeypatch):
    monkeypatch.setattr(find, "data_folder", lambda name: tmp_path / "ready" / name)
    write_kit("ready/sbx/coder", "kind: sandbox\nsandbox: {image: x}\ndescription: Writes code\n")
    write_kit("ready/mixins/node", "kind: mixin\nversion: 2.0.0\n")
    write_kit("config/sbx/kits/node", "kind: mixin\n")
    write_kit("config/sbx/kits/broken", "kind: banana\n")
    (tmp_path / "config/sbx/kits/not a kit").mkdir()
    listed = ls(Finder({"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}))
    assert [(kit.name, kit.kind, kit.source, kit.hidden) for kit in listed] == [
        ("coder", "sandbox", "ready-made", False),
        ("broken", "", "user", False),
        ("node", "mixin", "ready-made", False),
        ("node", "mixin", "user", True),
    ]
    assert listed[0].description == "Writes code"
    assert "kind: 'banana' is none of" in listed[1].error
    assert json.dumps([kit.to_json() for kit in listed])
