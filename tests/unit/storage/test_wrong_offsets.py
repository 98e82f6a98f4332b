"""Offsets that are damaged: no checksum covers them, and no record is ever served under one that nobody gave it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import iterate_records
from kohort.records.header import split_batches
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.storage.topicconfig import LONG_MAX
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch

FOLDER = "/data/orders-0"
BATCHES = 6
PER_BATCH = 2
WRITTEN = {number: b"value %d" % (number // PER_BATCH) for number in range(BATCHES * PER_BATCH)}
#: Bits of a base offset; the last ones are beyond what a file can have.
BITS = (0, 1, 2, 5, 10, 30, 31, 40)
#: Bytes of a header or its records: length, checksum, last delta, count, a record.
BYTES = (10, 17, 23, 57, 70)


def left(*, segment_bytes: int, flush_messages: int) -> tuple[MemoryFileSystem, list[tuple[str, int]]]:
    """A directory whose broker was killed, and (file, position) of each batch."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    configs = {"segment.bytes": str(segment_bytes), "flush.messages": str(flush_messages)}
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions
    for at in range(BATCHES):
        log.append(batch(PER_BATCH, value=b"value %d" % at), now_ms=5)
    log.mark_durable(log.sync())
    store.close(clean=False)
    paths = [f"{FOLDER}/{name}" for name in fs.list_directory(FOLDER) if name.endswith(".log")]
    places = [(path, at) for path in paths for at, _ in split_batches(fs.open(path).read(0, 1 << 20))]
    assert len(places) == BATCHES
    return fs, places


def served(log: PartitionLog) -> Iterator[tuple[int, bytes | None]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            views = log.read(offset, 1 << 20)
        except Refused as refused:
            assert refused.code is ErrorCode.CORRUPT_MESSAGE
            offset = next(hole.next_offset for hole in log.holes if hole.next_offset > offset)
            continue
        for record in (record for view in views for record in iterate_records(view)):
            yield record.offset, record.value
            offset = record.offset + 1


def flip(fs: MemoryFileSystem, path: str, position: int, bits: int) -> None:
    file = fs.open(path)
    file.write(position, bytes([file.read(position, 1)[0] ^ bits]))


@pytest.mark.large
@pytest.mark.parametrize("neighbour", [None, -1, 1])
@pytest.mark.parametrize("flush_messages", [1, LONG_MAX])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 250])
def test_no_record_gets_an_offset_that_nobody_gave_it(
    segment_bytes: int, flush_messages: int, neighbour: int | None
) -> None:
    """A wrong offset alone, and beside a batch that is damaged, too: as of a write that tore the border of the two."""
    origin, places = left(segment_bytes=segment_bytes, flush_messages=flush_messages)
    for at, (path, start) in enumerate(places):
        beside = None if neighbour is None else at + neighbour
        if beside is not None and not 0 <= beside < BATCHES:
            continue
        for bit in BITS:
            for byte in BYTES if beside is not None else (0,):
                fs = origin.copy()
                flip(fs, path, start + 7 - bit // 8, 1 << bit % 8)
                if beside is not None:
                    flip(fs, places[beside][0], places[beside][1] + byte, 0x15)
                where = f"batch {at} bit {bit}, batch {beside} byte {byte}"
                (content,) = [each for each in inspect_directory(fs, "/data") if each.damages]
                assert content.end <= len(WRITTEN), where
                (log,) = Store.open("/data", fs=fs).topics["orders"].partitions
                found = dict(served(log))
                assert found.items() <= WRITTEN.items(), where
                assert log.log_end_offset <= len(WRITTEN), where
                assert len(found) >= len(WRITTEN) - PER_BATCH * (1 if beside is None else 3), where
