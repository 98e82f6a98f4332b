"""Codecs: round trips, forms of other clients, and bombs that must not go off."""

from __future__ import annotations

import gzip
import os
import tracemalloc
import zlib
from contextlib import suppress
from struct import pack

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptRecordError
from kohort.records.compression import blank, compress, decompress

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PACKED = CODECS[1:]
DATA = os.urandom(70_000) + bytes(200_000) + b"record" * 30_000


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.one_of(st.binary(max_size=300), st.integers(0, 300_000).map(lambda size: DATA[:size])))
@settings(max_examples=25)
def test_round_trip_at_exactly_the_limit(codec: str, data: bytes) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, limit_bytes=len(data))) == data
    if data:
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed, limit_bytes=len(data) - 1)


@pytest.mark.parametrize("number", range(5))
def test_codecs_have_kafkas_numbers(number: int) -> None:
    assert bytes(decompress(number, compress(CODECS[number], DATA))) == DATA


@pytest.mark.parametrize("number", [-1, 5, 7])
def test_number_without_a_codec_is_refused(number: int) -> None:
    with pytest.raises(CorruptRecordError, match="does not exist"):
        decompress(number, b"")


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        ("gzip", gzip.compress(DATA, 9)),
        ("snappy", bytes(cramjam.snappy.compress_raw(DATA))),
        ("lz4", bytes(cramjam.lz4.compress(DATA))),
        ("zstd", bytes(cramjam.zstd.compress(DATA, 19))),
    ],
)
def test_forms_of_other_encoders_are_read(codec: str, packed: bytes) -> None:
    """librdkafka writes raw snappy; other lz4 encoders link their blocks."""
    assert bytes(decompress(codec, packed)) == DATA


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_streamed_frames_without_a_declared_size_are_read(codec: str) -> None:
    module = getattr(cramjam, codec)
    compressor = module.Compressor()
    for start in range(0, len(DATA), 10_000):
        compressor.compress(DATA[start : start + 10_000])
    packed = bytes(compressor.finish())
    assert bytes(decompress(codec, packed, limit_bytes=len(DATA))) == DATA


def test_snappy_is_written_in_snappy_javas_framing() -> None:
    packed = compress("snappy", bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\0" + pack(">ii", 1, 1)
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == bytes(32 * 1024)


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    """Kafka's Java client refuses frames without the flag for independent blocks."""
    packed = compress("lz4", DATA)
    version_and_independence = 0x60
    assert packed[4] & 0xE0 == version_and_independence
    assert bytes(cramjam.lz4.decompress(packed)) == DATA


@pytest.mark.large
@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_does_not_go_off(codec: str) -> None:
    limit = 1 << 20
    packed = compress(codec, bytes(256 * limit))
    tracemalloc.start()
    with pytest.raises(CorruptRecordError):
        decompress(codec, packed, limit_bytes=limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * limit


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        ("lz4", b"\x04\x22\x4d\x18\x60\x40\x82" + b"\1\0\0\x80x" * 100_000 + bytes(4)),
        ("zstd", b"\x28\xb5\x2f\xfd\x00\x58" + b"\x08\0\0x" * 99_999 + b"\x09\0\0x"),
    ],
)
def test_frames_of_very_many_blocks_are_read_within_the_limit(codec: str, packed: bytes) -> None:
    assert bytes(decompress(codec, packed, limit_bytes=1 << 20)) == b"x" * 100_000
    with pytest.raises(CorruptRecordError, match="more than the 99999 bytes"):
        decompress(codec, packed, limit_bytes=99_999)


@pytest.mark.parametrize(
    ("codec", "packed", "says"),
    [
        ("snappy", b"\xff\xff\xff\xff\x07", "claims to unfold to 2147483647"),
        ("snappy", b"\x82SNAPPY\0" + pack(">ii", 1, 1) + pack(">i", -1), "block of -1"),
        ("snappy", b"\x82SNAPPY\0" + pack(">ii", 1, 1) + pack(">i", 1 << 30), "block of 1073741824"),
        ("snappy", b"\x82SNAPPY\0" + pack(">ii", 1, 1) + b"\0\0", "within the length"),
        ("snappy", b"\x82SNAPPY\0\0", "within its header"),
        ("lz4", b"\x04\x22\x4d\x18\x60\x00\x82", "block size 0"),
        ("lz4", b"not a frame at all", "does not begin with a frame"),
        ("lz4", compress("lz4", DATA) + b"more", "behind its end"),
        ("zstd", b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", "window of"),
        ("zstd", b"not a frame at all", "does not begin with a frame"),
        ("zstd", compress("zstd", DATA) + b"more", "behind its end"),
        ("gzip", zlib.compress(DATA), "does not decompress"),
        ("gzip", gzip.compress(DATA) + b"more", "behind its end"),
    ],
)
def test_impossible_input_is_refused_by_what_it_claims(codec: str, packed: bytes, says: str) -> None:
    with pytest.raises(CorruptRecordError, match=says):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.data())
@settings(max_examples=60)
def test_damaged_input_is_refused_or_bounded(codec: str, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, DATA[69_000:72_000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(packed)), st.integers(0, len(packed))))
    with suppress(CorruptRecordError):
        assert len(decompress(codec, packed[:cut], limit_bytes=4_000)) <= 4_000


@pytest.mark.parametrize("codec", PACKED)
@given(noise=st.binary(max_size=60))
@settings(max_examples=60)
def test_noise_behind_a_true_beginning_is_refused_or_bounded(codec: str, noise: bytes) -> None:
    beginning = compress(codec, b"x" * 500)[:12]
    with suppress(CorruptRecordError):
        assert len(decompress(codec, beginning + noise, limit_bytes=10_000)) <= 10_000


@pytest.mark.parametrize("codec", PACKED)
def test_no_more_memory_is_asked_for_than_the_data_can_fill(codec: str) -> None:
    """A limit is for bombs; what most batches unfold to is far below, and a fetch has many of them."""
    asked: list[int] = []

    def allocate(kind: str, count: int) -> memoryview:
        asked.append(count)
        return blank(kind, count)

    plain = DATA[:70_000]
    assert bytes(decompress(codec, compress(codec, plain), allocate=allocate)) == plain
    assert sum(asked) <= len(plain) + (1 << 17)
