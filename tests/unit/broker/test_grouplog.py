"""Loading the coordinator's log: every record in order, transactions by their markers, nothing left out silently."""

from __future__ import annotations

import gc

import pytest

from kohort.base import without_collections
from kohort.broker.groups.shard_log import GroupLogLoader, Loaded
from kohort.coordinator.records import codec as recordcodec
from kohort.coordinator.records.types import OffsetCommitted, OffsetForgotten, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import CorruptRecordError, StorageError
from kohort.records.batch import build_batch
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import empty_log

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def commit(partition: int, offset: int) -> OffsetCommitted:
    return OffsetCommitted(
        group_id="g",
        topic="t",
        partition=partition,
        offset=offset,
        leader_epoch=0,
        metadata="",
        commit_timestamp_ms=1,
    )


def batch(*records: Record, compression: str = "none", producer_id: int = -1) -> bytes:
    rows = [(*recordcodec.encode(record), 1, ()) for record in records]
    return build_batch(
        rows,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=min(producer_id, 0),
        is_transactional=producer_id >= 0,
    )


def marker(key: bytes, producer_id: int) -> bytes:
    return build_batch(
        [(key, b"\0\0\0\0\0\0", 1, ())],
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


@pytest.fixture
def log() -> PartitionLog:
    return empty_log(MemoryFileSystem(volatile=True))


def load(log: PartitionLog, *batches: bytes) -> tuple[dict[int, int], Loaded]:
    """Partition -> offset of the group, and what was counted."""
    for entry in batches:
        log.append(bytearray(entry), now_ms=1, validate=False)
    shard = Shard(GroupSettings())
    loaded = GroupLogLoader().load(shard, log)
    partitions = shard.groups.offsets.get("g", {}).get("t", {})
    return {partition: committed.offset for partition, committed in partitions.items()}, loaded


def test_later_records_win_over_batches_of_any_size(log: PartitionLog) -> None:
    first = batch(*(commit(partition, 1) for partition in range(50)))
    found, loaded = load(log, first, batch(commit(0, 2)), batch(OffsetForgotten(group_id="g", topic="t", partition=1)))
    assert found == {0: 2, **dict.fromkeys(range(2, 50), 1)}
    assert (loaded.records, loaded.unknown) == (52, 0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_that_unfold_to_more_than_the_file_has(log: PartitionLog, codec: str) -> None:
    """`offsets.topic.compression.codec` of Apache Kafka; nothing behind the first of them may be left out."""
    batches = [
        batch(*(commit(partition, at) for partition in range(at * 1000, at * 1000 + 1000)), compression=codec)
        for at in range(5)
    ]
    found, loaded = load(log, *batches, batch(commit(0, 9)))
    assert len(found) == 5_000 and found[0] == 9 and found[4_999] == 4
    assert loaded.records == 5_001


def test_unknown_types_are_counted(log: PartitionLog) -> None:
    """Share and streams groups' facts are no error, and none of ours."""
    foreign = build_batch([(b"\0\x0b\0\1g", b"\0\0\0", 1, ()), (b"\0\x11\0\1g", None, 1, ())])
    assert load(log, foreign, batch(commit(0, 1))) == ({0: 1}, Loaded(records=1, unknown=2))


def test_offsets_of_a_transaction_count_from_its_commit_on(log: PartitionLog) -> None:
    """An ordinary commit that lies between a transaction's and its marker is the newer one, as in Apache Kafka."""
    found, _ = load(log, batch(commit(0, 5), commit(1, 6), producer_id=3), batch(commit(0, 7)), marker(COMMIT, 3))
    assert found == {0: 7, 1: 6}


def test_offsets_of_aborted_and_of_open_transactions_do_not_count(log: PartitionLog) -> None:
    aborted, open_one = batch(commit(0, 5), producer_id=3), batch(commit(1, 5), producer_id=4)
    found, _ = load(log, aborted, open_one, batch(commit(2, 1)), marker(ABORT, 3))
    assert found == {2: 1}


def test_transactions_of_producers_do_not_mix(log: PartitionLog) -> None:
    found, _ = load(
        log,
        batch(commit(0, 5), producer_id=3),
        batch(commit(1, 6), producer_id=4),
        marker(ABORT, 3),
        marker(COMMIT, 4),
        batch(commit(2, 7), producer_id=3),
        marker(COMMIT, 3),
    )
    assert found == {1: 6, 2: 7}


def test_record_that_cannot_be_read_stops_the_load(log: PartitionLog) -> None:
    with pytest.raises(StorageError, match="__consumer_offsets"):
        load(log, build_batch([(b"\0\1\0\1g", b"\0\1", 1, ())]))


def test_damaged_batch_stops_the_load(log: PartitionLog) -> None:
    damaged = bytearray(batch(commit(0, 1)))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        load(log, batch(commit(0, 1)), bytes(damaged))


def test_collector_is_as_it_was_after_a_load_that_failed() -> None:
    assert gc.isenabled()
    with pytest.raises(StorageError), without_collections():
        assert not gc.isenabled()
        raise StorageError("no")
    assert gc.isenabled()
