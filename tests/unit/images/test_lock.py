"""The lock, the plan's JSON and the recipe: the same bytes for the same thing, and drift with a name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigError, ImageError
from runner.images import content, lock, plan_codec, recipe
from runner.kits.arguments import parse_kit_arguments
from runner.kits.compose import compose
from runner.kits.plan import KitRef, Plan
from tests.unit.images.plans import layer, plan
from tests.unit.images.saved import image, tar

KITS = Path(__file__).parents[2] / "fixtures" / "kits"


def sample() -> Plan:
    one = plan(layer("one", "true"), layer("two", "true"), name="demo")
    kits = tuple(KitRef(a.kit, a.kind, a.digest, f"/home/me/{a.kit}", (("v", "1"),)) for a in one.layers)
    return replace(one, kits=kits)


def made(**files: bytes) -> dict[str, Any]:
    (built,) = content.read([image([tar({"etc/a": b"1"}), tar(dict(files))])])
    return lock.make(sample(), "p" * 64, {"image": "debian:x", "from": "debian:x", "digest": "sha256:1"}, built)


def test_the_lock_is_the_same_bytes_each_time_and_reads_back() -> None:
    assert lock.render(made()) == lock.render(made())
    assert lock.parse(lock.render(made()), "x") == made()


def test_the_lock_does_not_name_the_machine() -> None:
    assert b"/home/me" not in lock.render(made())


def test_a_file_that_changed_is_drift_of_its_layer() -> None:
    assert lock.drift(made(a=b"1"), made(a=b"2"))[0].startswith("layer 2: ")


@pytest.mark.parametrize(
    "trace", ["var/log/apt/history.log", "usr/lib/x/__pycache__/a.pyc", "etc/shadow", "etc/ld.so.cache", "tmp/x"]
)
def test_traces_of_a_build_are_no_drift(trace: str) -> None:
    assert lock.drift(made(**{trace: b"1"}), made(**{trace: b"2"})) == []


def test_a_package_that_changed_is_named_with_both_versions() -> None:
    status = b"Package: curl\nStatus: install ok installed\nVersion: %s\n"
    old = made(**{"var/lib/dpkg/status": status % b"1.0"})
    new = made(**{"var/lib/dpkg/status": status % b"1.1"})
    assert lock.drift(old, new) == ["dpkg curl: 1.0 → 1.1"]


def test_another_base_is_drift() -> None:
    other = {**made(), "base": {"image": "debian:x", "from": "debian:x", "digest": "sha256:2"}}
    assert lock.drift(made(), other)[0].startswith("base: ")


def test_a_changed_kit_is_named() -> None:
    before = lock.parse(lock.render(made()), "x")
    before["base"]["image"] = sample().base.image
    assert lock.kit_drift(before, sample(), "p" * 64) == []
    now = sample()
    changed = replace(now, kits=(now.kits[0], replace(now.kits[1], digest="f" * 64)))
    assert lock.kit_drift(before, changed, "q" * 64)[0].startswith("kit two: its content changed")
    argued = replace(now, kits=(replace(now.kits[0], arguments=(("v", "2"),)), now.kits[1]))
    assert lock.kit_drift(before, argued, "p" * 64) == ["kit one: argument v: '1' in the lock, now '2'"]
    fewer = replace(now, kits=now.kits[:1], layers=now.layers[:1])
    assert lock.kit_drift(before, fewer, "p" * 64) == ["kit two: in the lock, no longer in the kit"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"lock": 2}', b'{"lock": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_lock_is_refused_by_its_place(text: bytes) -> None:
    with pytest.raises(ConfigError, match="here/sbx.lock"):
        lock.parse(text, "here/sbx.lock")


@pytest.mark.parametrize("kit", ["built", "child", "every-key", "old-every-key", "old-list-forms"])
def test_every_plan_reads_back_as_it_was(kit: str) -> None:
    found = compose(KITS / kit, arguments=parse_kit_arguments([]), checking=True)
    assert plan_codec.decode(plan_codec.encode(found), "here") == found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": 1}',
        b'{"name": "x", "base": {}, "layers": "none"}',
        b'{"name": "x", "base": {}, "layers": [], "surprise": 1}',
        b'{"name": "x", "base": {"image": ["a"]}, "layers": []}',
    ],
)
def test_a_plan_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ImageError, match="plan cannot be read"):
        plan_codec.decode(text, "here")


def test_a_recipe_holds_the_kit_and_nothing_of_the_machine(tmp_path: Path) -> None:
    folder = tmp_path / "kit"
    for name in ("agent.yaml", "hooks/guard", "files/home/x", "playground/secret", ".git/config", ".env", lock.NAME):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "hooks/guard").chmod(0o755)
    one = replace(
        plan(name="demo"), kits=(KitRef("demo", "sandbox", "d", str(folder)),), warnings=(f"{folder}/spec.yaml: old",)
    )
    found = {file.path: file for file in recipe.make(one, {"demo": folder}, {"lock": 1}, b"").files}
    assert sorted(path for path in found if path.startswith("kits/")) == [
        "kits/demo/agent.yaml",
        "kits/demo/files/home/x",
        "kits/demo/hooks/guard",
    ]
    assert found["kits/demo/hooks/guard"].mode == 0o755
    assert not [file for file in found.values() if str(tmp_path).encode() in file.content]
    assert json.loads(found["plan.json"].content)["warnings"] == ["demo/spec.yaml: old"]


def test_a_link_that_leads_out_does_not_travel(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "kit" / "link").symlink_to("../secret")
    with pytest.raises(ConfigError, match="leads out"):
        recipe.kit_files(tmp_path / "kit")
