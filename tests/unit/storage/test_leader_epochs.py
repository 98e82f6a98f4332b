"""Leader epochs: they rise when a stop was not clean, and say where the records of an earlier one end."""

from __future__ import annotations

import pytest

from kohort.records.header import parse_header
from kohort.storage.data_directory import EPOCH_NAME
from kohort.storage.partitions.leader_epochs import UNKNOWN, LeaderEpochs
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(-1, UNKNOWN), (0, (0, 10)), (1, (0, 10)), (2, (2, 30)), (4, (2, 30)), (5, (5, 50)), (6, (5, 50)), (7, (7, 50))],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, end: tuple[int, int]) -> None:
    """Apache Kafka's LeaderEpochFileCache.endOffsetFor; nothing was written in today's epoch, 7, yet."""
    epochs = LeaderEpochs([(0, 0), (2, 10), (5, 30)])
    assert epochs.end_of(epoch, current=7, end_offset=50) == end
    assert epochs.end_of(8, current=7, end_offset=50) == UNKNOWN


def test_records_know_their_epoch() -> None:
    epochs = LeaderEpochs([(1, 5), (2, 10)])
    assert [epochs.of(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]
    epochs.cut(10)
    assert (epochs.latest, epochs.starts) == (1, ((1, 5),))


def reopened(fs: MemoryFileSystem) -> tuple[Store, PartitionLog]:
    store = Store.open("/data", fs=fs)
    return store, store.topics["orders"].partitions[0]


def test_epoch_rises_at_each_start_after_a_stop_that_was_not_clean() -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    assert log.leader_epoch == 0
    log.append(batch(3), now_ms=5)
    store.close()

    store, log = reopened(fs)
    assert log.leader_epoch == 0, "that stop was clean"
    store.close(clean=False)
    store, log = reopened(fs)
    assert log.leader_epoch == 1
    store.close(clean=False)
    store, log = reopened(fs)
    assert log.leader_epoch == 2, "it has risen though nothing was written"
    log.append(batch(2), now_ms=5)
    store.close()

    store, log = reopened(fs)
    assert log.leader_epoch == 2, "a clean stop keeps it"
    assert log.epochs.starts == ((0, 0), (2, 3))
    assert [parse_header(view).partition_leader_epoch for view in log.read(3, 1000)] == [2]
    assert store.create_topic("flights", 1, topic_id=bytes(16)).partitions[0].leader_epoch == 2  # type: ignore[arg-type]


def test_epoch_that_nothing_was_written_in_is_kept_over_a_clean_stop() -> None:
    """Clients were told of it, and take no lower one."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.close(clean=False)
    reopened(fs)[0].close()
    assert reopened(fs)[1].leader_epoch == 1


@pytest.mark.parametrize("text", [b"x\n3\n", b"3\n\n", b"1\n3\n", b"3\n3"])
def test_a_damaged_copy_of_the_epoch_does_no_harm(text: bytes) -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.close()
    fs.open(f"/data/{EPOCH_NAME}", create=True).write(0, text)
    assert reopened(fs)[1].leader_epoch == 3
