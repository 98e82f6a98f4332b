"""A byte stream becomes frames, however it is cut."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.frame import FrameSplitter, encode_frame


def framed(*bodies: bytes) -> bytes:
    return b"".join(b"".join(encode_frame([body])) for body in bodies)


def test_a_frame_is_its_size_and_its_parts_uncopied() -> None:
    records = memoryview(b"r" * 10)
    frame = encode_frame([b"ab", records])
    assert frame[0] == b"\x00\x00\x00\x0c"
    assert frame[2] is records
    assert b"".join(frame) == b"\x00\x00\x00\x0cab" + b"r" * 10
    assert encode_frame([]) == [b"\x00\x00\x00\x00"]


def test_a_frame_longer_than_int32_is_our_own_fault() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(LocalProtocolError, match="2147483648"):
        encode_frame([Huge()])


@given(
    bodies=st.lists(st.binary(max_size=30), max_size=6),
    cuts=st.lists(st.integers(0, 220), max_size=12),
    form=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_frames_come_out_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int], form: type) -> None:
    stream = framed(*bodies)
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    splitter, got, start = FrameSplitter(limit_bytes=30), [], 0
    for end in ends:
        got += splitter.feed(form(stream[start:end]))
        start = end
    assert [bytes(frame) for frame in got] == bodies
    assert splitter.is_between_frames


def test_dialogue_of_a_stream_that_comes_in_drops() -> None:
    splitter = FrameSplitter(limit_bytes=10)
    assert splitter.feed(b"") == []
    assert splitter.feed(b"\x00\x00") == []
    assert not splitter.is_between_frames
    assert splitter.feed(b"\x00\x03a") == []
    assert not splitter.is_between_frames
    assert splitter.feed(b"bc\x00\x00\x00\x00\x00\x00\x00\x01") == [b"abc", b""]
    assert splitter.feed(b"z\x00") == [b"z"]
    assert not splitter.is_between_frames


@pytest.mark.parametrize("size", [b"\x00\x00\x00\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"])
@pytest.mark.parametrize("cut", [0, 2, 4])
def test_a_size_outside_the_limit_is_refused_at_once(size: bytes, cut: int) -> None:
    splitter = FrameSplitter(limit_bytes=10)
    with pytest.raises(RemoteProtocolError, match="0 to 10 are accepted"):
        splitter.feed(size[:cut]) or splitter.feed(size[cut:] or size)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    assert FrameSplitter(limit_bytes=10).feed(framed(b"x" * 10)) == [b"x" * 10]


@pytest.mark.parametrize("form", [bytearray, memoryview])
def test_a_frame_outlives_the_buffer_it_came_in(form: type) -> None:
    """A receive buffer is written over by the next read."""
    buffer = bytearray(framed(b"first", b"second"))
    splitter = FrameSplitter(limit_bytes=100)
    frames = splitter.feed(buffer if form is bytearray else memoryview(buffer)[:])
    buffer[:] = bytes(len(buffer))
    assert frames == [b"first", b"second"]


def test_whole_frames_of_a_constant_buffer_are_not_copied() -> None:
    data = framed(b"x" * 1000)
    assert FrameSplitter(limit_bytes=1000).feed(data)[0].obj is data


def test_an_announced_size_alone_allocates_nothing() -> None:
    splitter = FrameSplitter(limit_bytes=100_000_000)
    tracemalloc.start()
    assert splitter.feed(b"\x05\x00\x00\x00abc") == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
