"""What `kohort log import` takes for a directory of Apache Kafka's; the rest is tried on a real one (tests/interop)."""

from __future__ import annotations

from struct import pack

import pytest

from kohort.coordinator.records.codec import build_log_batch, read_log_batch
from kohort.coordinator.records.types import OffsetCommitted, TransactionalOffsetCommitted, TransactionCompleted
from kohort.errors import StorageError
from kohort.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.records.batch import build_batch, build_marker, iterate_records, seal_batch
from kohort.records.header import parse_header, rebase
from kohort.storage.data_directory import write_partition_metadata
from kohort.storage.segments.segment import segment_name
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.storage.tools.kafka_import import (
    Survey,
    leave_coordinator,
    read_coordinator,
    read_topic,
    survey_directories,
    take_over,
)
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch, take_producer_ids
from support.builders.transactional_logs import committed

SOURCE, TARGET = "/logs", "/data"


def test_directory_of_our_own_is_no_source() -> None:
    """A copy without its configs and holes would not be the same."""
    fs = MemoryFileSystem()
    Store.open(TARGET, fs=fs).close()
    with pytest.raises(StorageError, match="is a data directory of kohort already"):
        survey_directories(fs, [TARGET])


# ---- transactions


def sent(producer_id: int, *values: str) -> bytes:
    """A transactional batch."""
    rows = [(None, value.encode(), 1_000, ()) for value in values]
    return build_batch(rows, producer_id=producer_id, producer_epoch=3, base_sequence=0, is_transactional=True)


def ended(producer_id: int, *, is_commit: bool) -> bytes:
    return build_marker(producer_id=producer_id, producer_epoch=3, is_commit=is_commit, timestamp_ms=1_000)


def decided(producer_id: int, state: int, topic: str = "orders") -> bytes:
    """What the coordinator of transactions has written of one (`TransactionLogValue`, version 0)."""
    key = pack(">hh", 0, 1) + b"%d" % producer_id
    partitions = pack(">ih", 1, len(topic)) + topic.encode() + pack(">ii", 1, 0)
    value = pack(">hqhib", 0, producer_id, 3, 60_000, state) + partitions + pack(">qq", 1, 1)
    return build_batch([(key, value, 1_000, ())])


class Kafka:
    """A log directory as Apache Kafka leaves it."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory(SOURCE)
        self._write(f"{SOURCE}/meta.properties", b"version=1\ncluster.id=abc\nnode.id=1\n")

    def _write(self, path: str, data: bytes) -> None:
        self.fs.open(path, create=True).write(0, data)

    def partition(self, name: str, *files: list[bytes], torn: bytes = b"") -> None:
        """A folder with a segment for each list of batches; `torn` stands behind the last one."""
        folder = f"{SOURCE}/{name}"
        self.fs.make_directory(folder)
        write_partition_metadata(self.fs, folder, TOPIC_ID)
        offset = 0
        for number, batches in enumerate(files):
            base, data = offset, bytearray()
            for each in batches:
                placed = bytearray(each)
                rebase(placed, 0, offset, 0)
                data += placed
                offset = parse_header(placed).next_offset
            self._write(f"{folder}/{segment_name(base)}", bytes(data + (torn if number == len(files) - 1 else b"")))

    def taken(self, *, is_ended: bool = True) -> tuple[Survey, Store]:
        """What a copy has, as a broker finds it; unless `is_ended`, the coordinator is taken over, too."""
        survey = survey_directories(self.fs, [SOURCE])
        if is_ended:
            leave_coordinator(survey)
        coordinator = read_coordinator(self.fs, survey)
        for topic in survey.topics.values():
            read_topic(self.fs, topic, coordinator)
        take_over(self.fs, survey, TARGET, source_fs=self.fs, coordinator=coordinator, configs={})
        # The first start makes the lists of aborted transactions.
        Store.open(TARGET, fs=self.fs).close()
        assert [damage for each in inspect_directory(self.fs, TARGET) for damage in each.damages] == []
        return survey, Store.open(TARGET, fs=self.fs)


def records(store: Store, topic: str = "orders") -> dict[int, str]:
    """Offset -> value of all that readers of committed records see."""
    return {offset: (value or b"").decode() for offset, value in committed(store.topics[topic].partitions[0])}


def test_aborted_records_are_copied_and_shown_to_no_reader_of_committed_ones() -> None:
    kafka = Kafka()
    kafka.partition(
        "orders-0",
        [bytes(batch(1, value=b"plain")), sent(7, "a", "b"), sent(8, "c")],
        [sent(9, "open"), ended(7, is_commit=False)],
        [ended(8, is_commit=True), sent(7, "d"), ended(7, is_commit=True), sent(8, "open", "too")],
    )
    survey, store = kafka.taken()
    found = survey.topics["orders"].transactions[0]
    assert [(each.producer_id, each.records, each.is_committed) for each in found.open] == [
        (9, 1, False),
        (8, 2, False),
    ]
    assert records(store) == {0: "plain", 3: "c", 7: "d"}
    (log,) = store.topics["orders"].partitions
    everything = [row.offset for view in log.read(0, 1 << 30) for row in iterate_records(view)]
    assert everything == [0, 1, 2, 3, 4, 7, 9, 10], "each keeps its offset"
    assert (log.log_end_offset, log.last_stable_offset) == (13, 13), "behind two markers"


def test_markers_without_records_before_them_are_copied() -> None:
    kafka = Kafka()
    kafka.partition("orders-0", [sent(7, "a")], [sent(7, "b")], [ended(7, is_commit=False)], [sent(7, "c")])
    _, store = kafka.taken()
    (log,) = store.topics["orders"].partitions
    assert (records(store), log.log_start_offset, log.log_end_offset) == ({}, 0, 5)


@pytest.mark.parametrize(("state", "is_left"), [(1, True), (2, True), (3, True), (4, False), (5, False)])
def test_coordinator_that_is_taken_over_ends_what_it_knows(state: int, is_left: bool) -> None:
    """1: ongoing, 2 and 3: decided, 4 and 5: complete, so that what is open here hangs."""
    kafka = Kafka()
    kafka.partition(f"{TRANSACTIONS_TOPIC}-0", [decided(7, state), decided(1_000_000, 4)])
    kafka.partition("orders-0", [sent(7, "a"), sent(8, "hangs")])
    survey, store = kafka.taken(is_ended=False)
    assert [each.is_coordinated for each in survey.topics["orders"].transactions[0].open] == [is_left, False]
    (log,) = store.topics["orders"].partitions
    assert log.producers.is_in_transaction(7, 3) is is_left
    assert not log.producers.is_in_transaction(8, 3)
    assert records(store) == {}
    assert len(store.topics[TRANSACTIONS_TOPIC].partitions) == 1
    assert store.topics[TRANSACTIONS_TOPIC].partitions[0].config.is_compacted
    assert take_producer_ids(store)[0] > 1_000_000, "an id of the coordinator is not given out again"


def test_open_transaction_behind_a_torn_end_is_ended_where_the_torn_end_was() -> None:
    kafka = Kafka()
    kafka.partition("orders-0", [bytes(batch(2)), sent(7, "a")], torn=bytes(batch(1))[:-3])
    survey, store = kafka.taken()
    assert [damage.bytes for damage in survey.topics["orders"].damages] == [len(batch(1)) - 3]
    assert records(store) == {0: "v", 1: "v"}
    assert store.topics["orders"].partitions[0].log_end_offset == 4
    assert store.recovery.cuts == ()


@pytest.mark.parametrize(("states", "is_kept"), [([1], False), ([1, 2], True), ([1, 3], False), ([2, 4, 1], False)])
def test_open_transaction_ends_as_its_coordinator_had_decided(states: list[int], is_kept: bool) -> None:
    """1: ongoing, 2: to be committed, 3: to be aborted, 4: committed everywhere."""
    kafka = Kafka()
    kafka.partition(f"{TRANSACTIONS_TOPIC}-0", [decided(7, state) for state in states])
    kafka.partition("orders-0", [sent(7, "a"), ended(7, is_commit=False), sent(7, "b")])
    _, store = kafka.taken()
    assert records(store) == ({2: "b"} if is_kept else {})


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_in_an_open_transaction_get_the_marker_that_is_missing(is_commit: bool) -> None:
    kafka = Kafka()
    offset = OffsetCommitted(
        group_id="g", topic="orders", partition=0, offset=5, leader_epoch=-1, metadata="", commit_timestamp_ms=1_000
    )
    rows = [
        TransactionalOffsetCommitted(group_id="g", producer_id=producer_id, producer_epoch=3, commit=offset)
        for producer_id in (8, 7)
    ]
    eight, seven = (build_log_batch([row], now_ms=1_000) or b"" for row in rows)
    kafka.partition(f"{TRANSACTIONS_TOPIC}-0", [decided(7, 2 if is_commit else 1, OFFSETS_TOPIC)])
    kafka.partition(f"{OFFSETS_TOPIC}-0", [eight, ended(8, is_commit=False), seven])
    survey, store = kafka.taken()
    assert [each.is_committed for each in survey.topics[OFFSETS_TOPIC].transactions[0].open] == [is_commit]
    (log,) = store.topics[OFFSETS_TOPIC].partitions
    (view,) = log.read(3, 1 << 20)
    assert read_log_batch(view) == [
        TransactionCompleted(group_id="", producer_id=7, producer_epoch=3, is_commit=is_commit)
    ]


def test_what_compaction_and_deletion_have_left_of_transactions_is_in_nobodys_way() -> None:
    """An empty batch that remembers a producer, a commit whose beginning is gone, and markers alone."""
    kafka = Kafka()
    empty = bytearray(sent(7, "a"))
    # Compaction keeps the header of a producer's last batch: no records, and a checksum of its own.
    header = parse_header(empty)._replace(record_count=0, batch_length=49)
    kafka.partition("orders-0", [seal_batch(header, b""), ended(8, is_commit=True), ended(9, is_commit=False)])
    survey, store = kafka.taken()
    assert survey.topics["orders"].transactions[0].open == []
    assert store.topics["orders"].partitions[0].log_end_offset == 3
