import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.wire import frames

FRAMES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 50), max_size=40))
def test_any_split_of_the_bytes_gives_the_same_frames(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(frames.encode(channel, payload) for channel, payload in sent)
    decoder, received = frames.Decoder(), []
    for size in [*cuts, len(data) + 1]:
        piece, data = data[:size], data[size:]
        received += decoder.feed(piece)
    assert received == sent


def test_a_header_is_two_big_endian_numbers() -> None:
    assert frames.encode(3, b"hey") == b"\x00\x00\x00\x03\x00\x00\x00\x03hey"


@pytest.mark.parametrize(("channel", "cap"), [(0, 64 * 1024 * 1024), (7, 256 * 1024)])
def test_a_length_over_the_cap_is_an_error_before_any_of_it_arrives(channel: int, cap: int) -> None:
    header = (cap + 1).to_bytes(4, "big") + channel.to_bytes(4, "big")
    with pytest.raises(frames.FrameError, match=f"{cap + 1} bytes on channel {channel}"):
        list(frames.Decoder().feed(header))


def test_frames_before_a_broken_one_are_still_delivered() -> None:
    decoder = frames.Decoder()
    received = []
    with pytest.raises(frames.FrameError):
        for frame in decoder.feed(frames.encode(2, b"good") + b"\xff" * 8):
            received.append(frame)
    assert received == [(2, b"good")]
