"""The first record of a batch that is late enough, as walking over all of them finds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import CorruptRecordError
from kohort.records import timesearch
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import parse_header
from kohort.records.timesearch import first_record_since

TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@given(
    times=TIMES,
    asked=st.integers(-1, 51),
    codec=st.sampled_from(["none", "gzip", "zstd", "lz4", "snappy"]),
    at_once=st.integers(1, 50),
)
def test_it_is_the_first_of_all_records(times: list[int], asked: int, codec: str, at_once: int) -> None:
    """However many records are looked at in one go."""
    raw = memoryview(
        build_batch([(b"k", b"v", time, [("h", b"x")]) for time in times], base_offset=7, compression=codec)
    )
    expected = next(
        ((record.timestamp, record.offset) for record in iterate_records(raw) if record.timestamp >= asked), None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timesearch, "_RECORDS_AT_ONCE", at_once)
        assert first_record_since(raw, parse_header(raw), asked) == expected


@pytest.mark.parametrize("damaged_at", range(61, 61 + 3 * 8))
def test_damage_before_the_record_is_an_error(damaged_at: int) -> None:
    """The header says more than there is, or a record's length is impossible: never a wrong answer."""
    raw = bytearray(build_batch([(None, b"v", time, ()) for time in (1, 2, 3)]))
    assert len(raw) == 61 + 3 * 8
    raw[damaged_at] = 0xFF
    try:
        found = first_record_since(memoryview(raw), parse_header(raw), 1 << 40)
    except CorruptRecordError:
        return
    assert found is None


def test_what_it_unfolds_is_bounded() -> None:
    raw = memoryview(build_batch([(None, bytes(100_000), 1, ())], compression="zstd"))
    with pytest.raises(CorruptRecordError, match="unfolds to more than"):
        first_record_since(raw, parse_header(raw), 0, limit_bytes=50_000)


def test_fewer_records_than_none_are_an_error() -> None:
    raw = memoryview(build_batch([(None, b"v", 1, ())]))
    header = parse_header(raw)._replace(record_count=-5)
    with pytest.raises(CorruptRecordError, match="claims -5 records"):
        first_record_since(raw, header, 0)
