"""A data directory as a broker leaves it, with a file of nearly every kind, and what is served of one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import iterate_records
from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.leader_epoch_runs import mend_epochs
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import delete_before, keep_log_start
from kohort.storage.scrubbing import keep, scrub, scrub_newest
from kohort.storage.segments.segment import segment_name
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, sequenced

BATCHES = 24
PER_BATCH = 2
#: Offsets before it were deleted by request.
START = 4
FOLDER = "/data/orders-0"
NEWEST = segment_name(44)
#: Offset -> value, of all that was ever written, and of what is to be served.
WRITTEN = {number: b"value %d" % (number // PER_BATCH) for number in range(BATCHES * PER_BATCH)}
ACKNOWLEDGED = {number: value for number, value in WRITTEN.items() if number >= START}


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
        began = offset
        for view in views:
            for record in iterate_records(view):
                if record.offset >= offset:
                    yield record.offset, record.value
                    offset = record.offset + 1
        assert offset > began, f"a reader stands still at offset {began}"


def scrub_all(fs: MemoryFileSystem, log: PartitionLog) -> None:
    """What the scrubber does, in time: damage where a start looks at nothing is found by it."""
    epochs = log.epochs.starts
    for segment in log.segments[:-1]:
        found = scrub(fs, FOLDER, segment.base_offset, pause=lambda _: None, epochs=epochs)
        if found is not None:
            keep(fs, FOLDER, segment.base_offset, found)
            log.refuse(found.damages)
            mend_epochs([segment], found.epochs)
    newest = log.segments[-1]
    if newest.size:
        look = partial(scrub_newest, fs, FOLDER, newest.base_offset, pause=lambda _: None, epochs=epochs)
        seen = look(end_offset=log.log_end_offset, size_bytes=newest.size, has_gaps=newest.has_gaps)
        keep(fs, FOLDER, newest.base_offset, seen)
        log.refuse(seen.damages)
        mend_epochs([newest], seen.epochs)
