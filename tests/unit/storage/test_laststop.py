"""What a clean stop leaves of its logs in one file: a start believes what is unchanged, and costs what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId
from kohort.storage.data_directory import PartitionEnd, load_marker, save_marker
from kohort.storage.files.volatilefs import VolatileFile
from kohort.storage.log_state import LAST_STOP_NAME, is_outdated
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.testing.disks import Crashed, MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch, find_time, offsets, sequenced, values

#: More than a stop writes down one by one.
MANY = 250
NEWEST = "/data/orders-3/00000000000000000000.log"


class Disk(MemoryFileSystem):
    """Counts what is opened in the folders of partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> VolatileFile:
        if "/orders-" in path:
            self.opened.append(path)
        return super().open(path, create=create)


def stopped(**configs: str) -> Disk:
    """A directory in which many partitions were written to, by a producer that is remembered."""
    disk = Disk()
    store = Store.open("/data", fs=disk)
    for log in store.create_topic("orders", MANY, topic_id=TOPIC_ID, configs=configs).partitions:
        log.append(sequenced(0, 2), now_ms=1)
        log.mark_durable(log.sync())
    disk.opened.clear()
    store.close()
    return disk


def logs_of(disk: Disk) -> tuple[Store, list[PartitionLog]]:
    store = Store.open("/data", fs=disk)
    return store, store.topics["orders"].partitions


def is_whole(log: PartitionLog) -> bool:
    """Records, epochs and producers are what they were."""
    assert log.append(sequenced(0, 2), now_ms=1).duplicate
    with pytest.raises(Refused) as refusal:
        log.append(sequenced(7, 2), now_ms=1)
    assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return offsets(log.read(0, 1_000)) == [0, 1] and log.epochs.starts == ((0, 0),)


@pytest.mark.large
def test_stop_and_start_of_many_logs_open_none_of_their_files() -> None:
    disk = stopped()
    assert disk.opened == []
    store, logs = logs_of(disk)
    assert disk.opened == []
    assert store.recovery.is_clean
    assert all(map(is_whole, logs))
    store.close(clean=False)


def test_kill_after_such_a_start_takes_nothing() -> None:
    disk = stopped()
    store, logs = logs_of(disk)
    logs[3].append(sequenced(2, 1), now_ms=1)
    logs[3].mark_durable(logs[3].sync())
    disk.crash()

    store, logs = logs_of(disk)
    assert not store.recovery.is_clean
    assert offsets(logs[3].read(0, 1_000)) == [0, 1, 2]
    assert all(is_whole(log) for log in logs if log is not logs[3])
    store.close()


def test_start_after_a_kill_reads_every_log() -> None:
    """What is unchanged is as likely as not what a crash has left."""
    disk = stopped()
    store, _ = logs_of(disk)
    store.close(clean=False)
    store, logs = logs_of(disk)
    assert len({path.split("/")[2] for path in disk.opened}) == MANY
    assert all(map(is_whole, logs))
    store.close(clean=False)


@pytest.mark.large
def test_record_that_a_stop_has_promised_is_missed_after_a_kill() -> None:
    """Its end is not what a crash tore: it was durable, and is a hole and no cut."""
    disk = stopped()
    store, _ = logs_of(disk)
    disk.crash()
    disk.open(NEWEST).write(70, b"\xff")
    store, logs = logs_of(disk)
    assert store.recovery.cuts == ()
    assert [(hole.first_offset, hole.next_offset) for hole in logs[3].holes] == [(0, 2)]
    store.close()


def test_what_a_stop_has_promised_is_damage_to_those_who_look_after_a_kill() -> None:
    """`kohort log check` and `repair` say what the next start does: it keeps the bytes and cuts nothing."""
    disk = stopped()
    logs_of(disk)
    disk.crash()
    disk.open(NEWEST).write(70, b"\xff")
    found = [damage for content in inspect_directory(disk, "/data") for damage in content.damages]
    assert [(damage.path, damage.offset, damage.next_offset) for damage in found] == [(NEWEST, 0, 2)]


def flip(disk: Disk) -> None:
    disk.open(NEWEST).write(70, b"\xff")


def cut(disk: Disk) -> None:
    disk.open(NEWEST).truncate(70)


def take_away(disk: Disk) -> None:
    disk.remove(NEWEST)


@pytest.mark.parametrize("change", [cut, take_away])
def test_log_that_somebody_has_changed_is_read(change: Callable[[Disk], None]) -> None:
    disk = stopped()
    change(disk)
    disk.opened.clear()
    store, logs = logs_of(disk)
    assert {path.split("/")[2] for path in disk.opened} == {"orders-3"}
    assert [(hole.first_offset, hole.next_offset) for hole in logs[3].holes] == [(0, 2)]
    store.close()


@pytest.mark.parametrize("content", [b"", b"00000000 {}\n", b"\xff" * 100, None])
def test_what_cannot_be_believed_costs_a_longer_start_and_nothing_else(content: bytes | None) -> None:
    disk = stopped()
    if content is None:
        disk.remove(f"/data/{LAST_STOP_NAME}")
    else:
        file = disk.open(f"/data/{LAST_STOP_NAME}")
        file.truncate(0)
        file.write(0, content)
    store, logs = logs_of(disk)
    assert len({path.split("/")[2] for path in disk.opened}) == MANY
    assert all(map(is_whole, logs))
    store.close()


def test_nothing_is_promised_for_the_next_topic_of_the_name() -> None:
    disk = stopped()
    store, _ = logs_of(disk)
    store.delete_topic("orders")
    store.create_topic("orders", MANY, topic_id=TopicId(bytes(reversed(TOPIC_ID))))
    disk.crash()
    store, logs = logs_of(disk)
    assert [(log.log_end_offset, log.holes, len(log.producers)) for log in logs] == [(0, (), 0)] * MANY
    store.close()


def test_rows_of_a_stop_before_the_last_one_promise_nothing() -> None:
    """A copy that an older kohort has left is put back over the directory, and its marker knows of no rows."""
    disk = stopped()
    disk.remove("/data/orders-3")
    disk.make_directory("/data/orders-3")
    ends = load_marker(disk, "/data")
    assert ends is not None
    save_marker(disk, "/data", {**ends, "orders-3": PartitionEnd(0, 0)})
    assert not [damage for content in inspect_directory(disk, "/data") for damage in content.concerned]
    store, logs = logs_of(disk)
    assert (logs[3].log_end_offset, logs[3].holes) == (0, ())
    assert all(is_whole(log) for log in logs if log is not logs[3])
    store.close()


@pytest.mark.large
def test_log_that_was_mended_is_not_promised_again() -> None:
    """A kill in the middle of mending begins anew, with what the files say."""
    disk = stopped()
    store, _ = logs_of(disk)
    disk.crash()
    flip(disk)
    store, logs = logs_of(disk)
    assert not disk.exists(f"/data/{LAST_STOP_NAME}")
    # Of the others nothing says any more what was durable: each is written down with the next checkpoint.
    assert all(map(is_outdated, logs))
    store.close()


def test_newest_file_goes_on_where_its_index_is_in_files() -> None:
    """An index of many entries is written at the stop, and read with the first append."""
    disk = Disk()
    store = Store.open("/data", fs=disk)
    configs = {"index.interval.bytes": "100"}
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions
    for number in range(200):
        log.append(batch(timestamp=1_000 + number), now_ms=1)
    store.close()
    disk.opened.clear()
    store, (log,) = logs_of(disk)
    assert disk.opened == []
    assert find_time(log, 1_150) == (1_150, 150)
    for number in range(200, 300):
        log.append(batch(timestamp=1_000 + number), now_ms=1)
    for offset in (0, 199, 200, 299):
        assert offsets(log.read(offset, 80)) == [offset]
        assert find_time(log, 1_000 + offset) == (1_000 + offset, offset)
    store.close()

    disk.open("/data/orders-0/00000000000000000000.index").write(8, b"\xff")
    store, (log,) = logs_of(disk)
    log.append(batch(timestamp=1_300), now_ms=1)
    assert offsets(log.read(299, 1_000)) == [299, 300]
    assert len(values(log)) == 301
    store.close()


def test_files_that_wait_to_be_removed_are_removed_by_the_next_start() -> None:
    disk = Disk()
    store = Store.open("/data", fs=disk)
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "100"}).partitions
    for _ in range(5):
        log.append(batch(), now_ms=1)
    log.mark_durable(log.sync())
    assert log.drop_segments(2)
    store.close()
    assert any(name.endswith(".deleted") for name in disk.list_directory("/data/orders-0"))
    store, (log,) = logs_of(disk)
    assert not any(name.endswith(".deleted") for name in disk.list_directory("/data/orders-0"))
    assert log.log_start_offset == 2
    store.close()


@pytest.mark.large
def test_power_may_fail_at_any_step_of_a_stop_and_of_the_next_start() -> None:
    step = 0
    while True:
        disk = Disk()
        store = Store.open("/data", fs=disk)
        for log in store.create_topic("orders", MANY, topic_id=TOPIC_ID).partitions:
            log.append(sequenced(0, 2), now_ms=1)
            log.mark_durable(log.sync())
        disk.steps_left = step
        is_over = False
        try:
            store.close()
            store = Store.open("/data", fs=disk)
            is_over = True
        except Crashed:
            pass
        disk.crash()
        store, logs = logs_of(disk)
        assert all(map(is_whole, logs)), step
        store.close(clean=False)
        if is_over:
            assert step > 10
            return
        step += 1
