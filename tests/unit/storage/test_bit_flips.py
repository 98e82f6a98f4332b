"""One bit that flips anywhere in a data directory: what is served is what was acknowledged, but for the batch it hit.

Whatever else is hit (indexes, catalogue, marker, checkpoints, producers) costs no record. The makefile's target `flips`
tries every byte, and `make test` some of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.batch import iterate_records
from kohort.storage.directory.datadir import META_NAME
from kohort.storage.files.memoryfs import MemoryFileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery.logstart import delete_before, keep_log_start
from kohort.storage.recovery.logstate import capture, settle, write
from kohort.storage.segments.segment import SUFFIX, segment_name
from kohort.storage.store import Store
from kohort.storage.upkeep.scrubbing import scrub
from support.storage_logs import PAGE_CACHE, TOPIC_ID, sequenced

BATCHES = 24
PER_BATCH = 2
#: Offsets before it were deleted by request.
START = 4
FOLDER = "/data/orders-0"
NEWEST = segment_name(44)
STRIDE = int(os.environ.get("FLIP_STRIDE", "13"))


def left(*, is_clean: bool) -> MemoryFileSystem:
    """A broker's directory with a log of three segments and all that goes with it; killed after the last batches."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs, settings={"index.interval.bytes": 100})
    configs = {**PAGE_CACHE, "segment.bytes": "1024"}
    topic = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs)
    (log,) = topic.partitions
    for at in range(BATCHES):
        log.append(sequenced(at * PER_BATCH, PER_BATCH, value=b"value %d" % at), now_ms=5)
        if at == BATCHES - 3:
            captured = capture(log)
            settle(captured, write(fs, captured))
            delete_before(log, START)
            keep_log_start(fs, FOLDER, START)
    log.mark_durable(log.sync())
    assert len(log.segments) == 3
    assert segment_name(log.segments[-1].base_offset) == NEWEST
    scrub_all(fs, log)
    store.close(clean=is_clean)
    return fs


def files_in(fs: MemoryFileSystem) -> list[str]:
    return [
        f"{folder}/{name}"
        for folder in ("/data", FOLDER)
        for name in fs.list_directory(folder)
        if not fs.list_directory(f"{folder}/{name}")
    ]


def served(log: PartitionLog) -> Iterator[tuple[int, bytes | None]]:
    """What a reader gets that goes on behind each hole; each CRC is checked."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            views = log.read(offset, 1 << 20)
        except Refused as refused:
            assert refused.code is ErrorCode.CORRUPT_MESSAGE
            offset = next(hole.next_offset for hole in log.holes if hole.next_offset > offset)
            continue
        for view in views:
            for record in iterate_records(view):
                if record.offset >= offset:
                    yield record.offset, record.value
                    offset = record.offset + 1


WRITTEN = {number: b"value %d" % (number // PER_BATCH) for number in range(BATCHES * PER_BATCH)}
ACKNOWLEDGED = {number: value for number, value in WRITTEN.items() if number >= START}


def scrub_all(fs: MemoryFileSystem, log: PartitionLog) -> None:
    """What the scrubber does, in time: damage where a start looks at nothing is found by it."""
    for segment in log.segments[:-1]:
        found = scrub(fs, FOLDER, segment.base_offset, pause=lambda _: None)
        if found is not None:
            log.refuse(found.damages)


@pytest.mark.parametrize("is_clean", [True, False])
def test_flipped_bit_costs_no_more_than_the_batch_that_it_hit(is_clean: bool) -> None:
    origin = left(is_clean=is_clean)
    tried = 0
    for path in files_in(origin):
        name = path.rpartition("/")[2]
        if name == META_NAME or (is_clean and name == NEWEST):
            # After a clean stop nobody looks at the newest segment before it is closed; its readers have the CRCs.
            continue
        for at in range(tried % STRIDE, origin.open(path).size(), STRIDE):
            fs = origin.copy()
            file = fs.open(path)
            file.write(at, bytes([file.read(at, 1)[0] ^ 1 << at % 8]))
            store = Store.open("/data", fs=fs)
            (log,) = store.topics["orders"].partitions
            scrub_all(fs, log)
            found = dict(served(log))
            missing = {number // PER_BATCH for number in ACKNOWLEDGED.keys() - found.keys()}
            assert found.items() <= ACKNOWLEDGED.items(), f"{path} byte {at}: wrong, or deleted long ago"
            assert len(missing) <= name.endswith(SUFFIX), f"{path} byte {at}: {missing} are gone"
            assert not missing or log.holes or store.recovery.cuts, f"{path} byte {at}: nothing says what is missing"
            assert log.log_end_offset >= BATCHES * PER_BATCH - PER_BATCH * len(missing)
            assert log.log_end_offset <= BATCHES * PER_BATCH, f"{path} byte {at}: offsets that nobody wrote"
            if not missing:
                repeated = sequenced((BATCHES - 3) * PER_BATCH, PER_BATCH)
                assert log.append(repeated, now_ms=5).duplicate, f"{path} byte {at}: the producer is forgotten"
            store.close(clean=False)
            tried += 1


def test_identity_with_a_flipped_bit_is_refused_in_a_sentence_or_costs_nothing() -> None:
    origin = left(is_clean=False)
    path = f"/data/{META_NAME}"
    for at in range(0, origin.open(path).size(), STRIDE):
        fs = origin.copy()
        file = fs.open(path)
        file.write(at, bytes([file.read(at, 1)[0] ^ 1 << at % 8]))
        try:
            store = Store.open("/data", fs=fs)
        except StorageError as why:
            assert path in str(why)
            continue
        assert dict(served(store.topics["orders"].partitions[0])) == ACKNOWLEDGED
