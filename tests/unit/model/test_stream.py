"""Any way of cutting the bytes gives the same events and the same answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.guest.model.answer import Accumulator
from runner.guest.model.items import Answer, ReasoningDelta, TextDelta
from runner.guest.model.reading import Events
from runner.guest.model.sse import MAX_EVENT, Event, EventTooLarge, Parser
from runner.guest.model.thinking import Splitter


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return (data[a:b] for a, b in itertools.pairwise(edges))


def events(chunks: Iterator[bytes] | list[bytes]) -> list[Event]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + list(parser.close())


cuts = st.lists(st.integers(0, 10_000), max_size=30)
sse_bytes = st.lists(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"data",
            b"event: error",
            b"event:",
            b": x",
            b"id: 1",
            b"error: {}",
            b"\r",
            b"\n",
            b"\r\n",
            b"\n\n",
            b"\xef\xbb\xbf",
            "é🪝".encode(),
            b"\xff",
            b"{}",
            b"[DONE]",
            b"a:b",
            b" ",
            b"\x00",
        ]
    ),
    max_size=40,
).map(b"".join)


@given(sse_bytes, cuts)
def test_any_split_of_the_bytes_gives_the_same_events(data: bytes, where: list[int]) -> None:
    assert events(pieces(data, where)) == events([data])


@given(st.binary(max_size=300), cuts)
def test_any_bytes_at_all_are_parsed_without_an_error(data: bytes, where: list[int]) -> None:
    assert events(pieces(data, where)) == events([data])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_is_its_data_lines_joined(end: str) -> None:
    text = end.join(["event: x", "data: a", "data:b", "data:  c", "", "data: d", "", ""])
    assert events([text.encode()]) == [Event("x", "a\nb\n c"), Event("", "d")]


def test_comments_ids_and_unknown_fields_are_skipped() -> None:
    assert events([b": hi\n\nid: 3\nretry: 5\nnonsense\n\ndata: x\n\n"]) == [Event("", "x")]


def test_the_last_event_needs_no_blank_line() -> None:
    assert events([b"data: x"]) == [Event("", "x")]


def test_an_event_over_the_cap_is_refused_before_it_is_whole() -> None:
    parser = Parser()
    with pytest.raises(EventTooLarge):
        for _ in range(MAX_EVENT // 1_000_000 + 2):
            list(parser.feed(b"x" * 1_000_000))


# ---- deltas to an answer

names = st.sampled_from(["", "bash", "clock"])
ids = st.sampled_from(["", "a", "b", None])
fragments = st.sampled_from(["", "{", "}", '{"a": 1}', '"a"', ": 1", None, "ü"])
entry = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": names, "arguments": fragments})},
    optional={"index": st.integers(0, 2), "id": ids},
)
delta = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["", None, "x", "<think>", "</think>", "<", "🪝", "\n", "\ud83e"]),
        "reasoning_content": st.sampled_from(["", "hm", None]),
        "tool_calls": st.lists(entry, max_size=2),
    },
)
document = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"delta": delta, "finish_reason": st.sampled_from([None, "stop"])}), max_size=1
        )
    }
)


def answer(chunks: Iterator[bytes] | list[bytes]) -> tuple[Answer, str, str]:
    numbers = iter(range(1000))
    accumulator = Accumulator(lambda: f"made{next(numbers)}")
    reader = Events()
    items = []
    for chunk in [*chunks, None]:
        for found in reader.take(chunk):
            items += accumulator.take(found)
    items += accumulator.close()
    text = "".join(i.text for i in items if isinstance(i, TextDelta))
    return accumulator.answer(), text, "".join(i.text for i in items if isinstance(i, ReasoningDelta))


@given(st.lists(document, max_size=8), cuts, st.booleans())
def test_any_split_of_the_bytes_gives_the_same_answer(
    documents: list[object], where: list[int], ascii_only: bool
) -> None:
    parts = [json.dumps(d, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for d in documents]
    data = b"".join(b"data: " + part + b"\n\n" for part in parts)
    assert answer(pieces(data, where)) == answer([data])


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "index",
                    "id",
                    "usage",
                    "finish_reason",
                    "text",
                    "type",
                    "reasoning",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "x"]), json_value), max_size=4))
def test_no_shape_of_a_chunk_breaks_the_accumulator(documents: list[dict[str, object]]) -> None:
    accumulator = Accumulator()
    for found in documents:
        accumulator.take(found)
    accumulator.close()
    assert isinstance(accumulator.answer(), Answer)


# ---- thinking


def split(texts: Iterator[str] | list[str]) -> tuple[str, str]:
    splitter = Splitter()
    found = [piece for text in texts for piece in splitter.feed(text)] + list(splitter.close())
    return "".join(t for is_reasoning, t in found if is_reasoning), "".join(
        t for is_reasoning, t in found if not is_reasoning
    )


think_text = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thi", "nk>", "\n", " ", "a", "<", "</", "think>", "<thinking>", "</thinking>"]
    ),
    max_size=12,
).map("".join)


@given(think_text, cuts)
def test_any_split_of_the_content_gives_the_same_thinking(text: str, where: list[int]) -> None:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in where)})
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert split(parts) == split([text])


@pytest.mark.parametrize(
    ("text", "reasoning", "shown"),
    [
        ("<think>a</think>b", "a", "b"),
        ("\n<think>\na\n</think>\n\nb", "\na\n", "b"),
        ("<think>a</think><think>b</think>c", "ab", "c"),
        ("<thinking>a</thinking>b", "a", "b"),
        ("<think>never closed", "never closed", ""),
        (
            "The tag <think> opens a block, </think> closes it.",
            "",
            "The tag <think> opens a block, </think> closes it.",
        ),
        ("  indented", "", "  indented"),
        ("<thin", "", "<thin"),
        ("<b>bold</b>", "", "<b>bold</b>"),
    ],
)
def test_only_a_block_at_the_beginning_is_thinking(text: str, reasoning: str, shown: str) -> None:
    assert split([text]) == (reasoning, shown)


def test_a_block_whose_begin_tag_stood_in_the_prompt_is_taken_out_of_the_answer() -> None:
    accumulator = Accumulator()
    accumulator.take({"choices": [{"delta": {"content": "hm, 6 times 7\n</think>\n\n42"}}]})
    found = accumulator.answer()
    assert (found.text, found.reasoning) == ("42", "hm, 6 times 7\n")
