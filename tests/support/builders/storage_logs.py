"""Batches and logs for tests of storage: short to write, easy to read back."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.ids import TopicId
from kohort.records.batch import build_batch, iterate_records
from kohort.storage.files.fs import FileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import open_partition
from kohort.storage.segments.segment import place_of_latest, place_of_time
from kohort.storage.store import Store
from kohort.storage.topicconfig import LogConfig
from support.depth import at_depth

#: How many histories of a log are held against a model.
MODEL_CASES = at_depth(100, 500)
TOPIC_ID = TopicId(bytes(range(16)))
PAGE_CACHE = {"flush.messages": "9223372036854775807"}


def batch(count: int = 1, *, value: bytes = b"v", timestamp: int = 1000, compression: str = "none") -> bytearray:
    """`count` records with timestamps that rise by one."""
    records = [(None, value, timestamp + at, ()) for at in range(count)]
    return bytearray(build_batch(records, compression=compression))


def sequenced(
    base_sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, value: bytes = b"v"
) -> bytearray:
    """A batch of an idempotent producer."""
    records = [(None, value, 1000, ())] * count
    return bytearray(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence))


def take_producer_ids(store: Store) -> range:
    """1,000 producer ids that were never given out."""
    blocks: list[range] = []
    store.carry_out(store.changes.plan_producer_ids(blocks.append))
    return blocks[0]


def empty_log(fs: FileSystem, directory: str = "/orders-0", **config: int | bool) -> PartitionLog:
    """A log of `orders-0`; `config` are fields of `LogConfig`."""
    fs.make_directory(directory)
    return open_log(fs, directory, **config)


def open_log(fs: FileSystem, directory: str = "/orders-0", **config: int | bool) -> PartitionLog:
    """The log that is in the directory, as after a kill."""
    log, _ = open_partition(fs, directory, topic="orders", partition=0, config=LogConfig(**config))  # type: ignore[arg-type]
    return log


def offsets(views: Sequence[memoryview]) -> list[int]:
    """Offsets of all records of views that `read` returned; every CRC is checked."""
    return [record.offset for view in views for record in iterate_records(view)]


def values(log: PartitionLog) -> list[bytes | None]:
    """Every record's value from start to end."""
    views = log.read(log.log_start_offset, 1 << 40)
    return [record.value for view in views for record in iterate_records(view)]


def find_time(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record that is as late as that; `None`: there is none."""
    place = place_of_time(log.segments, timestamp_ms)
    return (place.find_record() or place.header_says) if place else None


def find_latest(log: PartitionLog) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp; `None` if no record has one."""
    place = place_of_latest(log.segments)
    return (place.find_record() or place.header_says) if place else None
