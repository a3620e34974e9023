"""Composition: order, merge rules, clashes, what is refused, and what a digest depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.kits.arguments import parse_kit_arguments
from runner.kits.compose import compose
from runner.kits.find import Finder
from runner.kits.plan import Base, Inject, Instruction, Resources, Rule, Variable

BOX = "kind: sandbox\nsandbox: {image: debian}\n"


def mixins(*names: str) -> str:
    return "mixins: [" + ", ".join(f"../{name}" for name in names) + "]\n"


def test_mixins_apply_in_order_and_flags_come_last(write_kit):
    for name in ("a", "b", "c"):
        write_kit(
            name, f"kind: mixin\nsetup: {{install: [{{command: install {name}}}], startup: [{{command: [{name}]}}]}}\n"
        )
    box = write_kit("box", BOX + mixins("b", "a") + "setup: {install: [{command: install box}]}\n")
    plan = compose(box, [str(box.parent / "c")])
    assert [layer.kit for layer in plan.layers] == ["box", "b", "a", "c"]
    assert [i.command for layer in plan.layers for i in layer.install] == [
        f"install {k}" for k in ("box", "b", "a", "c")
    ]
    assert [(s.command, s.source) for s in plan.startup] == [(("b",), "b"), (("a",), "a"), (("c",), "c")]


def test_the_everything_kit_composes(fixtures):
    plan = compose(fixtures / "every-key", arguments=parse_kit_arguments(["region=eu"]))
    assert plan.name == "every-key"
    assert plan.base.image == "registry.example.org/agents/every:1.4.2"
    assert plan.resources == Resources(2.5, 6 * 1024**3, "1")
    assert plan.instructions == (
        Instruction("every-key", "EVERY.md", "You have the tool `every` in release latest.\n"),
        Instruction("every-key-mixin", "every-key-mixin.md", "The mixin gives you nothing in particular.\n"),
    )
    assert [port.container for port in plan.ports] == [8080, 5353, 9000, 3000]
    assert [credential.service for credential in plan.credentials] == ["example", "forge", "login", "mixin-service"]
    assert plan.network.install_allow[0] == Rule("@debian-packages", "every-key")
    assert plan.command == ("--task",)
    assert plan.interactive == ()
    assert any("start another agent and are left aside" in warning for warning in plan.warnings)


def test_network_lists_append_and_keep_their_first_source(write_kit):
    write_kit("tool", "kind: mixin\npermissions: {network: {allow: [b.org, a.org], deny: [c.org]}}\n")
    box = write_kit("box", BOX + mixins("tool") + "permissions: {network: {allow: [a.org]}}\n")
    network = compose(box).network
    assert network.allow == (Rule("a.org", "box"), Rule("b.org", "tool"))
    assert network.deny == (Rule("c.org", "tool"),)


def test_a_path_object_is_always_a_folder(write_kit, monkeypatch):
    box = write_kit("box", BOX)
    monkeypatch.chdir(box.parent)
    assert compose(Path("box")).name == "box"


CLASHES = {
    "a variable": (
        "environment: {variables: {A: '1'}}\n",
        "environment: {variables: {A: '2'}}\n",
        "the variable A",
    ),
    "a volume": ("volumes: [{path: /d, size: 1g}]\n", "volumes: [{path: /d, size: 2g}]\n", "the volume /d"),
    "a file": (
        "setup: {files: [{path: /f, content: a}]}\n",
        "setup: {files: [{path: /f, content: b}]}\n",
        "the file /f",
    ),
}


@pytest.mark.parametrize(("first", "second", "what"), CLASHES.values(), ids=CLASHES.keys())
def test_a_clash_names_both_places_and_the_later_wins(write_kit, first, second, what):
    one = write_kit("one", "kind: mixin\n" + first)
    two = write_kit("two", "kind: mixin\n" + second)
    box = write_kit("box", BOX + mixins("one", "two"))
    (clash,) = compose(box).warnings
    assert clash.startswith(f"{what} is set by two kits: {one / 'spec.yaml'}:4:")
    assert f", and {two / 'spec.yaml'}:4:" in clash
    assert clash.endswith("which wins")
    with pytest.raises(ConfigError, match="kits clash") as caught:
        compose(box, strict=True)
    assert what in caught.value.message


def test_the_later_value_is_the_one_in_the_plan(write_kit):
    write_kit(
        "one", "kind: mixin\nenvironment: {variables: {A: '1', B: x}}\nsetup: {files: [{path: /f, content: a}]}\n"
    )
    write_kit(
        "two", "kind: mixin\nenvironment: {variables: {A: '2', B: x}}\nsetup: {files: [{path: /f, content: b}]}\n"
    )
    plan = compose(write_kit("box", BOX + mixins("one", "two")))
    assert set(plan.environment) == {Variable("A", "2", "two"), Variable("B", "x", "two")}
    assert [(file.content, file.source) for file in plan.files] == [("b", "two")]
    assert len(plan.warnings) == 2, "B is the same in both, so it is no clash"


def test_files_that_two_mixins_bring_clash_by_content(write_kit):
    same = {"files/home/.same": "x"}
    one = write_kit("one", files={**same, "files/home/.rc": "1", "files/workspace/w": "1"})
    two = write_kit("two", files={**same, "files/home/.rc": "2", "files/workspace/w": "2"})
    plan = compose(write_kit("box", BOX + mixins("one", "two")))
    assert set(plan.warnings) == {
        f"the file files/{path} is set by two kits: {one / 'files' / path}, and {two / 'files' / path}, which wins"
        for path in ("home/.rc", "workspace/w")
    }
    assert [(file.path, file.content) for file in plan.workspace] == [("w", b"2")]
    assert [len(layer.home) for layer in plan.layers] == [0, 2, 2], "each layer brings its own"


def test_one_credential_twice_is_an_error_with_both_places(write_kit):
    one = write_kit("one", "kind: mixin\ncredentials: [{service: acme, apiKey: {name: KEY}}]\n")
    two = write_kit(
        "two", "kind: mixin\ncredentials: [{service: acme, apiKey: {name: OTHER, inject: [{domain: a.org}]}}]\n"
    )
    with pytest.raises(ConfigError, match="the credential 'acme' is declared twice") as caught:
        compose(write_kit("box", BOX + mixins("one", "two")))
    assert f"{one / 'spec.yaml'}:4:15" in caught.value.message
    assert caught.value.place == f"{two / 'spec.yaml'}:4:15"


def test_a_later_kit_may_add_routing_to_a_credential(write_kit):
    write_kit(
        "one",
        "kind: mixin\ncredentials: [{service: acme, required: true, apiKey: {name: KEY, inject: [{domain: a.org}]}}]\n",
    )
    write_kit(
        "two", "kind: mixin\ncredentials: [{service: acme, apiKey: {inject: [{domain: a.org}, {domain: b.org}]}}]\n"
    )
    (credential,) = compose(write_kit("box", BOX + mixins("one", "two"))).credentials
    assert (credential.source, credential.variable, credential.required) == ("one", "KEY", True)
    assert credential.inject == (Inject("a.org", "", "%s"), Inject("b.org", "", "%s"))


def test_a_kit_twice_and_two_sandboxes_are_errors(write_kit):
    tool = write_kit("tool")
    box = write_kit("box", BOX + mixins("tool"))
    with pytest.raises(ConfigError, match="the kit 'tool' takes part twice"):
        compose(box, [str(tool)])
    other = write_kit("other", BOX)
    with pytest.raises(ConfigError, match="other is a second sandbox kit; only mixins can be added"):
        compose(box, [str(other)])
    with pytest.raises(ConfigError, match="tool is a mixin; a sandbox kit is wanted here"):
        compose(tool)
    twin = write_kit("deep/box", "kind: mixin\n")
    with pytest.raises(ConfigError, match="the kit 'box' takes part twice"):
        compose(box, [str(twin)])


def test_requires_agent_is_held_against_the_sandbox_and_its_parents(write_kit):
    write_kit("tool", "kind: mixin\nrequires: {agent: parent}\n")
    write_kit("parent", BOX)
    child = write_kit("child", "kind: sandbox\nextends: ../parent\n" + mixins("tool"))
    assert compose(child).name == "child"
    other = write_kit("other", BOX + mixins("tool"))
    with pytest.raises(ConfigError, match="the mixin tool is for the sandbox kit 'parent', not for 'other'") as caught:
        compose(other)
    assert caught.value.place.endswith("tool/spec.yaml:4:19")


def test_extends_adds_and_the_child_decides_without_a_clash(fixtures):
    plan = compose(fixtures / "child")
    assert plan.name == "child"
    assert [layer.kit for layer in plan.layers] == ["careful-shell", "child"]
    assert plan.base.image == "debian:bookworm-slim"
    assert plan.command == ("-l",)
    assert set(plan.environment) == {
        Variable("GREETING", "from the child", "child"),
        Variable("KEPT", "1", "careful-shell"),
    }
    assert not any("two kits" in warning for warning in plan.warnings)


def test_a_child_must_not_set_what_a_parent_locks(write_kit):
    write_kit("parent", BOX + "locked: [sandbox.resources, permissions.network.allow]\n")
    child = write_kit("child", "kind: sandbox\nextends: ../parent\nsandbox: {resources: {cpu: 1}}\n")
    with pytest.raises(ConfigError, match=r"sandbox\.resources is locked by parent") as caught:
        compose(child)
    assert caught.value.place == f"{child / 'spec.yaml'}:5:22"
    fine = write_kit("fine", "kind: sandbox\nextends: ../parent\npermissions: {network: {allow: [], deny: [x.org]}}\n")
    assert compose(fine).network.deny == (Rule("x.org", "fine"),)


def test_extends_has_five_levels_and_no_circle(write_kit):
    write_kit("k0", BOX)
    for level in range(1, 7):
        write_kit(f"k{level}", f"kind: sandbox\nextends: ../k{level - 1}\n")
    top = write_kit("k0").parent
    write_kit("k0", BOX)
    assert len(compose(top / "k5").layers) == 6
    with pytest.raises(ConfigError, match="extends is deeper than 5 levels"):
        compose(top / "k6")
    write_kit("x", "kind: sandbox\nextends: ../y\n")
    y = write_kit("y", "kind: sandbox\nextends: ../x\n")
    with pytest.raises(ConfigError, match=r"extends runs in a circle: y → x → \.\./y") as caught:
        compose(y)
    assert caught.value.place == f"{top / 'x' / 'spec.yaml'}:4:10"
    write_kit("tool")
    with pytest.raises(ConfigError, match="extends names 'tool', a mixin"):
        compose(write_kit("z", "kind: sandbox\nextends: ../tool\n"))


def test_a_child_that_nobody_gives_an_image_is_an_error(write_kit):
    write_kit("parent", "kind: sandbox\nextends: ../child\n")
    child = write_kit("child", "kind: sandbox\nextends: ../parent\n")
    with pytest.raises(ConfigError, match="runs in a circle"):
        compose(child)


def test_arguments_reach_their_kits(write_kit):
    body = (
        "kind: mixin\nargs: {version: {default: '1'}}\nsetup: {install: [{command: 'get ${{ kit.args.version }}'}]}\n"
    )
    write_kit("one", body)
    write_kit("two", body)
    box = write_kit("box", BOX + mixins("one", "two"))
    plan = compose(box, arguments=parse_kit_arguments(["two.version=2"]))
    assert [i.command for layer in plan.layers for i in layer.install] == ["get 1", "get 2"]
    assert plan.kits[2].arguments == (("version", "2"),)
    with pytest.raises(UsageError, match="several kits declare the argument 'version'"):
        compose(box, arguments=parse_kit_arguments(["version=2"]))
    with pytest.raises(UsageError, match=r"no kit declares the argument 'three.version'"):
        compose(box, arguments=parse_kit_arguments(["three.version=2"]))


def test_a_missing_mixin_is_named_at_its_line(write_kit):
    box = write_kit("box", BOX + "mixins:\n  - ../tool\n  - ../tol\n")
    write_kit("tool")
    with pytest.raises(NotFoundError, match=r"no such folder: .*tol; did you mean 'tool'"):
        compose(box)
    named = write_kit("named", BOX + "mixins: [nod]\n")
    (named.parent / "config/sbx/kits").mkdir(parents=True)
    write_kit("config/sbx/kits/node")
    finder = Finder({"XDG_CONFIG_HOME": str(named.parent / "config"), "HOME": "/nonexistent"})
    with pytest.raises(NotFoundError, match="no mixin is called 'nod'; did you mean 'node'") as caught:
        compose(named, finder=finder)
    assert caught.value.place == f"{named / 'spec.yaml'}:5:10"


def test_privileged_names_who_asks(write_kit):
    write_kit("deep", "kind: mixin\nsecurity: {privileged: true}\n")
    assert compose(write_kit("box", BOX + mixins("deep"))).privileged == ("deep",)


def digests(box: Path, **arguments: str) -> dict[str, str]:
    settings = parse_kit_arguments([f"{name}={value}" for name, value in arguments.items()])
    return {layer.kit: layer.digest for layer in compose(box, arguments=settings).layers}


def test_a_changed_mixin_changes_its_own_layer_only(write_kit):
    names = ("a", "b", "c", "d")
    body = "kind: mixin\nargs: {v: {default: '1'}}\nsetup: {install: [{command: 'get %s ${{ kit.args.v }}'}]}\n"
    for name in names:
        write_kit(name, body % name, {"files/home/.rc": "x"})
    box = write_kit("box", BOX + mixins(*names))
    before = digests(box)

    def changed(after: dict[str, str]) -> list[str]:
        return [name for name in after if after[name] != before[name]]

    assert changed(digests(box)) == []
    (box.parent / "d/files/home/.rc").write_text("y")
    assert changed(digests(box)) == ["d"], "one byte of a file"
    (box.parent / "d/files/home/.rc").write_text("x")
    (box.parent / "d/files/home/.rc").chmod(0o755)
    assert changed(digests(box)) == ["d"], "its mode"
    (box.parent / "d/files/home/.rc").chmod(0o600)
    assert changed(digests(box)) == [], "a umask is not the kit's"
    assert changed(digests(box, **{"b.v": "2"})) == ["b"], "an argument"
    write_kit("c", "# a comment\n" + (body % "c"), {"files/home/.rc": "x"})
    assert changed(digests(box)) == [], "a comment and the lines that it moves"
    write_kit("c", (body % "c") + "environment: {variables: {A: x}}\n")
    assert changed(digests(box)) == [], "what is set at start is not of the layer"


def test_the_same_kit_makes_the_same_plan_wherever_it_lies(write_kit):
    def kit(top: str) -> Path:
        write_kit(f"{top}/tool", "kind: mixin\nsetup: {install: [{command: x}]}\n", {"files/home/a": "b"})
        return write_kit(f"{top}/box", BOX + mixins("tool"))

    one, two = compose(kit("here")), compose(kit("there/deeper"))
    assert one.layers == two.layers
    assert [ref.digest for ref in one.kits] == [ref.digest for ref in two.kits]
    assert one.base == two.base


def test_a_build_of_its_own_is_hashed_with_its_files(fixtures, write_kit):
    base = compose(fixtures / "built").base
    assert base.context == fixtures / "built/image"
    assert (base.image, base.dockerfile, base.target) == ("", "Dockerfile", "runtime")
    box = write_kit("box", "kind: sandbox\nsandbox: {build: {}}\n", {"Dockerfile": "FROM debian\n", "a": "1"})
    before = compose(box).base
    assert before == Base("", box, digest=before.digest)
    (box / "a").write_text("2")
    assert compose(box).base.digest != before.digest


def test_a_build_that_is_not_there_or_leads_out_is_refused(write_kit, tmp_path):
    with pytest.raises(ConfigError, match=r"sandbox\.build\.dockerfile: no such file"):
        compose(write_kit("a", "kind: sandbox\nsandbox: {build: {}}\n"))
    with pytest.raises(ConfigError, match=r"sandbox\.build\.context: no such folder"):
        compose(write_kit("b", "kind: sandbox\nsandbox: {build: {context: img}}\n"))
    out = write_kit("c", "kind: sandbox\nsandbox: {build: {context: img}}\n")
    (out / "img").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"sandbox\.build\.context leads out of the kit's folder"):
        compose(out)
    file = write_kit("d", "kind: sandbox\nsandbox: {build: {}}\n")
    (file / "Dockerfile").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"sandbox\.build\.dockerfile leads out"):
        compose(file)
