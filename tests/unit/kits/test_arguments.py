"""Arguments: who gets which value, and that a value stays a value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import ConfigError, UsageError
from runner.kits.arguments import GivenArguments, parse_kit_arguments
from runner.kits.document import load_mapping
from runner.kits.load import load_kit

BODY = """kind: mixin
args:
  version: {default: "1.20", pattern: '[0-9.]+'}
  note: {default: "", description: What to say}
description: "${{ kit.args.note }}"
environment:
  variables:
    VERSION: ${{ kit.args.version }}
    BOTH: "${{kit.args.version}}-${{  kit.args.version  }}"
    OTHER: "${{ secrets.NAME }} ${{ matrix.os }}"
"""


def values(**given):
    return lambda kit, declared: {name: value for name, value in given.items() if name in declared}


def test_defaults_count_and_other_expressions_are_left_alone(write_kit):
    kit = load_kit(write_kit("tool", BODY))
    assert kit.spec.variables["VERSION"].text == "1.20"
    assert kit.spec.variables["BOTH"].text == "1.20-1.20"
    assert kit.spec.variables["OTHER"].text == "${{ secrets.NAME }} ${{ matrix.os }}"


def test_a_value_cannot_become_structure(write_kit):
    evil = 'x"\nsecurity:\n  privileged: true\n#'
    kit = load_kit(write_kit("tool", BODY), values(note=evil))
    assert kit.spec.description == evil
    assert kit.spec.privileged is False


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_arrives_unchanged(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("kit")
    (folder / "spec.yaml").write_text('schemaVersion: "2"\nname: tool\n' + BODY)
    assert load_kit(folder, values(note=value)).spec.description == value


def test_quoting_decides_the_type(write_kit):
    body = "kind: mixin\nargs: {port: {default: '80'}}\nports: [{container: %s}]\n"
    assert load_kit(write_kit("plain", body % "${{ kit.args.port }}")).spec.ports[0].container == 80
    with pytest.raises(ConfigError, match="must be a whole number"):
        load_kit(write_kit("quoted", body % "'${{ kit.args.port }}'"))


def test_columns_stay_right_after_an_argument(write_kit):
    folder = write_kit("tool", "kind: mixin\nargs: {a: {default: x}}\nlicenses: ['${{ kit.args.a }}', x]\n")
    with pytest.raises(ConfigError) as caught:
        load_kit(folder)
    assert caught.value.place == f"{folder / 'spec.yaml'}:5:33"


def test_a_required_argument_without_a_value_says_how_to_give_it(write_kit):
    folder = write_kit("tool", "kind: mixin\nargs: {token: {required: true}}\ndescription: ${{ kit.args.token }}\n")
    with pytest.raises(UsageError, match="the kit tool needs the argument 'token'") as caught:
        load_kit(folder)
    assert caught.value.hint == "say --kit-arg tool.token=VALUE"
    assert load_kit(folder, checking=True).spec.description == "${{ kit.args.token }}"


def test_what_waits_for_an_argument_is_not_held_against_its_rule(write_kit):
    body = (
        "kind: mixin\nargs: {p: {required: true}}\nports: [{container: '${{ kit.args.p }}'}]\n"
        "permissions: {network: {allow: ['${{ kit.args.p }}']}}\nvolumes: [{path: '${{ kit.args.p }}'}]\n"
    )
    assert load_kit(write_kit("tool", body), checking=True).name == "tool"


def test_a_value_is_held_against_its_pattern_as_a_whole(write_kit):
    with pytest.raises(UsageError, match="argument version: 'v1' does not match the pattern"):
        load_kit(write_kit("tool", BODY), values(version="v1"))


def test_a_file_that_uses_an_undeclared_argument_is_named(write_kit):
    folder = write_kit("tool", files={"files/home/a/b.txt": "x ${{ kit.args.nope }}"})
    with pytest.raises(ConfigError, match="the argument 'nope' is not declared") as caught:
        load_kit(folder)
    assert caught.value.place == str(folder / "files/home/a/b.txt")


def test_the_command_line_wins_over_the_file(tmp_path):
    for name, text in (
        ("args.yaml", "version: 1\ntool.note: two\nother: {note: three, flag: on}\n"),
        ("args.txt", "# values\nversion=1\n\n tool.note=two\nother.note=three\nother.flag=on\n"),
    ):
        (tmp_path / name).write_text(text)
        given_values = parse_kit_arguments(["version=9", "tool.note=a=b"], tmp_path / name).values
        assert given_values == {
            ("", "version"): "9",
            ("tool", "note"): "a=b",
            ("other", "note"): "three",
            ("other", "flag"): "on",
        }


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("version", "has no '='"),
        ("=x", "is not an argument name"),
        ("a b=x", "is not an argument name"),
        ("Tool.version=x", "is not a kit name"),
        ("../x.version=x", "is not a kit name"),
    ],
)
def test_a_setting_of_no_form_is_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        parse_kit_arguments([setting])


def test_a_bad_file_of_arguments_names_the_line(tmp_path):
    (tmp_path / "a.txt").write_text("version=1\nnonsense\n")
    with pytest.raises(ConfigError) as caught:
        parse_kit_arguments([], tmp_path / "a.txt")
    assert caught.value.place == f"{tmp_path / 'a.txt'}:2:1"
    (tmp_path / "a.yaml").write_text("version: [1]\n")
    with pytest.raises(ConfigError, match="the value of version must be text"):
        parse_kit_arguments([], tmp_path / "a.yaml")


def test_a_value_that_nobody_takes_is_an_error_that_lists_what_there_is():
    given_values = GivenArguments({("", "verson"): "1"})
    given_values.for_kit("tool", ["version"])
    with pytest.raises(UsageError, match="no kit declares the argument 'verson'; did you mean") as caught:
        given_values.check_all_used()
    assert caught.value.hint == "declared: tool.version"


def test_a_value_that_two_kits_would_take_must_say_which():
    given_values = GivenArguments({("", "version"): "1"})
    assert given_values.for_kit("a", ["version"]) == {"version": "1"}
    given_values.for_kit("b", ["version"])
    with pytest.raises(UsageError, match=r"say a\.version or b\.version"):
        given_values.check_all_used()


def test_the_more_exact_value_wins():
    given_values = GivenArguments({("", "version"): "1", ("tool", "version"): "2"})
    assert given_values.for_kit("tool", ["version"]) == {"version": "2"}


def test_the_characters_that_stand_for_arguments_are_refused_in_a_spec_that_uses_them(write_kit):
    folder = write_kit("tool", 'kind: mixin\nargs: {a: {default: x}}\ndescription: "\uf8e0${{ kit.args.a }}"\n')
    with pytest.raises(ConfigError, match="U\\+F8E0"):
        load_kit(folder)
    assert load_mapping("x", source="a: \uf8e0\n").data == {"a": "\uf8e0"}
