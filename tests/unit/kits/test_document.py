"""What the YAML reader takes, what it refuses, and where it says things stand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import ConfigError
from runner.kits.document import MAX_BYTES, dotted, load_mapping, nearest


def load(tmp_path: Path, text: str | bytes):
    path = tmp_path / "spec.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_mapping(path)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)

REFUSED = {
    "empty": ("", 1, 1, "is empty"),
    "only a comment": ("# nothing\n", 1, 1, "is empty"),
    "a list": ("- a\n- b\n", 1, 1, "must be a mapping of keys at its top level, not a list"),
    "a scalar": ("hello\n", 1, 1, "must be a mapping of keys at its top level, not a scalar"),
    "a duplicate key": ("a: 1\nb: 2\na: 3\n", 3, 1, "the key 'a' is here twice; first at line 1"),
    "a duplicate key deep down": ("a:\n  b: {c: 1, c: 2}\n", 2, 13, "the key 'c' is here twice; first at line 2"),
    "a tab": ("a:\n\tb: 1\n", 2, 1, "a tab indents this line; YAML allows only spaces"),
    "a tab after spaces": ("a:\n  b: 1\n  \tc: 2\n", 3, 3, "a tab indents this line; YAML allows only spaces"),
    "an anchor that holds itself": ("a: &a\n  b: [*a]\n", 1, 4, "an anchor holds itself"),
    "a bomb": (BOMB, 5, 5, "expands to more than 50,000 parts; anchors may be the cause"),
    "an unknown alias": ("a: *b\n", 1, 4, "undefined alias"),
    "an open bracket": ("a: [1, 2\nb: 3\n", 2, 2, "is not YAML"),
    "two colons": ("a: b: c\n", 1, 5, "is not YAML: mapping values are not allowed in this context"),
    "a second document": ("a: 1\n---\nb: 2\n", 2, 1, "holds a second document; only one is read"),
    "a Python object": ("a: !!python/object/apply:os.system [id]\n", 1, 4, "the tag !!python/object/apply:os.system"),
    "a foreign tag": ("a: !Ref b\n", 1, 4, "the tag !Ref is not read"),
    "binary data": ("a: !!binary aGk=\n", 1, 4, "the tag !!binary is not read"),
    "a tag that lies": ("a: !!int five\n", 1, 4, "'five' is not a value for the tag !!int"),
    "a key that is a list": ("? [a, b]\n: 1\n", 1, 3, "a key must be text"),
    "a control character": ("a: 1\nb: \x07\n", 2, 4, "holds the control character U+0007"),
    "a NUL": ("a: 1\nb: x\x00\n", 2, 5, "it holds a NUL byte"),
    "UTF-16": ("a: 1\n".encode("utf-16"), 1, 1, "is UTF-16 or UTF-32; only UTF-8 is read"),
    "UTF-16 without a mark": ("a: 1\n".encode("utf-16-be"), 1, 1, "is UTF-16 or UTF-32; only UTF-8 is read"),
    "UTF-32": ("a: 1\n".encode("utf-32"), 1, 1, "is UTF-16 or UTF-32; only UTF-8 is read"),
    "Latin-1": (b"a: 1\nb: caf\xe9\n", 2, 7, "byte 0xe9 is not UTF-8"),
    "a program": (b"\x7fELF\x02\x01\x01\x80\x81", 1, 8, "byte 0x80 is not UTF-8"),
    "deep nesting": ("a: " + "[" * 70 + "]" * 70, 1, 64, "is nested deeper than 60 levels"),
    "a merge of text": ("a: {<<: x}\n", 1, 9, "'<<' takes a mapping, or a list of mappings"),
}


@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_two_readers_could_read_differently_is_refused_with_its_place(tmp_path, text, line, column, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.place == f"{tmp_path / 'spec.yaml'}:{line}:{column}"


def test_nesting_that_would_crash_a_parser_is_an_error(tmp_path):
    for text in ("[" * 100_000, "- " * 100_000, "a: " + "{a: " * 100_000):
        with pytest.raises(ConfigError, match=r"is not YAML|is nested deeper"):
            load(tmp_path, text)


def test_scalars_have_the_type_that_the_core_schema_gives_them(tmp_path):
    text = "a: 12\nb: 0644\nc: 0x1f\nd: 0o17\ne: 1.5\nf: 1e3\ng: true\nh: on\ni: ~\nj:\nk: 12:30\n"
    text += "l: '12'\nm: 1_000\nn: 2026-11-30\n"
    assert load(tmp_path, text).data == {
        "a": 12,
        "b": 644,
        "c": 31,
        "d": 15,
        "e": 1.5,
        "f": 1000.0,
        "g": True,
        "h": "on",
        "i": None,
        "j": None,
        "k": "12:30",
        "l": "12",
        "m": "1_000",
        "n": "2026-11-30",
    }


def test_a_scalar_keeps_its_text(tmp_path):
    document = load(tmp_path, "mode: 0644\nversion: 1.20\n")
    assert document.root.get("mode").text == "0644"
    assert document.root.get("version").text == "1.20"


def test_an_alias_and_a_merge_key_are_read(tmp_path):
    text = "base: &b {x: 1, y: 2}\nother: *b\nmerged:\n  <<: *b\n  y: 3\nmany:\n  <<: [*b, {z: 4}]\n"
    data = load(tmp_path, text).data
    assert data["other"] == {"x": 1, "y": 2}
    assert data["merged"] == {"x": 1, "y": 3}
    assert data["many"] == {"x": 1, "y": 2, "z": 4}


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path):
    assert load(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: x\r\n").data == {"a": 1, "b": "x"}


def test_places_are_those_of_values_and_keys(tmp_path):
    document = load(tmp_path, "hooks:\n  pre:\n    - name: one\n      command: x\n    -   name: two\n")
    path = document.path
    assert document.place(("hooks", "pre", 0, "command")) == f"{path}:4:16"
    assert document.key_place(("hooks", "pre", 0, "command")) == f"{path}:4:7"
    assert document.place(("hooks", "pre", 1)) == f"{path}:5:9"
    assert document.place(("hooks", "missing", 7)) == f"{path}:2:3", "the nearest that exists"
    error = document.error("no such thing", ("hooks", "pre"), key=True)
    assert str(error) == f"[config error: {path}:2:3: no such thing]"


def test_an_unknown_key_names_the_nearest(tmp_path):
    document = load(tmp_path, "permissions:\n  netwrok: {}\n")
    with pytest.raises(ConfigError) as caught:
        document.check_keys(("network",), ("permissions",))
    assert caught.value.message == "unknown key 'netwrok' in permissions; did you mean 'network'?"
    assert caught.value.place == f"{document.path}:2:3"


def test_a_spec_of_50_mib_fails_without_being_read(tmp_path):
    path = tmp_path / "spec.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    started = time.perf_counter()
    with pytest.raises(ConfigError, match="is too large: 52,428,800 bytes, at most 1,048,576 are read"):
        load_mapping(path)
    assert time.perf_counter() - started < 0.1


def test_a_spec_at_the_limit_is_read(tmp_path):
    head = "a: "
    assert load(tmp_path, head + "x" * (MAX_BYTES - len(head))).data["a"].startswith("xxx")


def test_a_file_that_is_none_is_refused_and_not_waited_for(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in (
        (fifo, "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "missing", "no such file"),
        (Path("/dev/zero"), "is not a regular file"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_mapping(path)


def test_a_bomb_is_refused_quickly(tmp_path):
    started = time.perf_counter()
    with pytest.raises(ConfigError):
        load(tmp_path, BOMB)
    assert time.perf_counter() - started < 0.5


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cc", "Cs")), max_size=20),
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefgh<=:-# ", max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c d", "on", "1"]), trees, min_size=1, max_size=4), st.booleans())
def test_what_is_written_without_doubt_is_read_back(data, flow):
    """Quoted text, tagged scalars: what PyYAML leaves unquoted would depend on the reader."""
    text = yaml.safe_dump(data, default_style='"', default_flow_style=flow, allow_unicode=True)
    assert load_mapping("spec.yaml", source=text).data == data


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_no_text_makes_it_fail_otherwise_than_with_an_error(text):
    try:
        assert isinstance(load_mapping("spec.yaml", source=text).data, dict)
    except ConfigError as error:
        assert (error.place or "").startswith("spec.yaml")


def test_near_names_are_found_whatever_their_case():
    assert nearest("displayname", ["displayName", "name"]) == "displayName"
    assert nearest("zzz", ["displayName", "name"]) is None


def test_dotted_paths_read_as_people_write_them():
    assert dotted(("setup", "install", 0, "command")) == "setup.install[0].command"
