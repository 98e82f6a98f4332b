"""Batches of what compaction has left."""

from __future__ import annotations

import pytest

from kohort.records.batch import iterate_records
from kohort.records.header import CODEC_NAMES, check_batch, parse_header
from kohort.records.sparse import LooseRecord, gather_batch


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
@pytest.mark.parametrize("count", [0, 2])
def test_batch_of_a_range_of_offsets_is_one_that_any_reader_takes(codec: int, count: int) -> None:
    """One without records names no codec: not even the frame of one is in it."""
    records = [LooseRecord(12 + each, 1_000 + each, 0, b"\x02k\x02v\x00") for each in range(count)]
    batch = gather_batch(records, base_offset=10, last_offset=19, leader_epoch=3, codec=codec, delete_horizon_ms=None)
    header = parse_header(batch)
    check_batch(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (10, 19, 3)
    assert header.compression == CODEC_NAMES[codec if count else 0]
    found = [(each.offset, each.timestamp, bytes(each.value or b"")) for each in iterate_records(memoryview(batch))]
    assert found == [(12 + each, 1_000 + each, b"v") for each in range(count)]
