"""The leader epoch of a batch is under no checksum: what cannot be right is found, and written as it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.storage.partitions.leader_epoch_runs import EpochRuns
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, batch

SIZE = len(batch())
FILE = "/data/orders-0/00000000000000000000.log"
EPOCH_AT = 12


def of(epochs: Sequence[int], *, known_before: int = 0, known: Sequence[tuple[int, int]] = ()) -> EpochRuns:
    runs = EpochRuns(known, known_before)
    for offset, epoch in enumerate(epochs):
        runs.note(offset, offset + 1, epoch)
    return runs


@given(lengths=st.lists(st.integers(5, 7), min_size=1, max_size=4), data=st.data())
def test_one_wrong_epoch_among_many_is_found_unless_it_may_be_right(lengths: list[int], data: st.DataObject) -> None:
    right = [epoch * 2 for epoch, count in enumerate(lengths) for _ in range(count)]
    at = data.draw(st.integers(0, len(right) - 1))
    value = data.draw(
        st.integers(-1, 8) | st.sampled_from([-(1 << 31), 1 << 30]).filter(lambda value: value != right[at])
    )
    found = [*right]
    found[at] = value
    runs = of(found)
    mended = list(found)
    for run in runs.wrong():
        mended[run.first_offset : run.next_offset] = [run.epoch] * run.batches
    assert mended == sorted(mended)
    assert sum(one != other for one, other in zip(mended, found, strict=True)) <= 1, "no more than is needed"
    if right[max(at - 2, 0)] == right[min(at + 2, len(right) - 1)] and 2 <= at < len(right) - 2:
        assert mended == right, "where its neighbours agree, all is known"
        assert runs.epochs().starts == tuple((epoch, right.index(epoch)) for epoch in dict.fromkeys(right))


def test_what_is_known_goes_first() -> None:
    runs = of([0, 7, 7, 0, 0, 1, 1], known=[(0, 0)], known_before=5)
    assert [(run.first_offset, run.epoch) for run in runs.wrong()] == [(1, 0), (2, 0)]
    assert runs.epochs().starts == ((0, 0), (1, 5))


def test_batch_that_compaction_has_stretched_may_be_of_any_epoch_that_it_covers() -> None:
    for epoch, is_wrong in ((0, False), (1, False), (2, False), (3, True), (-1, True)):
        runs = EpochRuns([(0, 0), (1, 10), (2, 20)], 30)
        runs.note(0, 25, epoch)
        assert bool(runs.wrong()) is is_wrong


def test_nothing_is_above_what_the_directory_has_had() -> None:
    runs = EpochRuns(highest=3)
    for offset, epoch in enumerate([1, 3, 3, 1 << 20]):
        runs.note(offset, offset + 1, epoch)
    assert [(run.first_offset, run.epoch) for run in runs.wrong()] == [(3, 3)]


def killed(lives: int = 3, batches: int = 4) -> MemoryFileSystem:
    """A log with so many epochs, after another kill."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=PAGE_CACHE)
    for _ in range(lives):
        log = log_of(store)
        for _ in range(batches):
            log.append(batch(), now_ms=1)
        store.close(clean=False)
        store = Store.open("/data", fs=fs)
    store.close(clean=False)
    return fs


def log_of(store: Store) -> PartitionLog:
    return store.topics["orders"].partitions[0]


@pytest.mark.parametrize("bit", [4, 30, 31])
def test_start_writes_an_epoch_as_it_was(bit: int) -> None:
    """Where two epochs meet nobody knows of which a batch was: it may be taken to be of the later one."""
    fs = killed()
    file = fs.open(FILE)
    right = file.read(0, file.size())
    for at in range(12):
        place = at * SIZE + EPOCH_AT + 3 - bit // 8
        file.write(place, bytes([right[place] ^ 1 << bit % 8]))
        store = Store.open("/data", fs=fs)
        epochs = log_of(store).epochs.starts
        if at in (3, 7):
            assert [epoch for epoch, _ in epochs] == [0, 1, 2]
        else:
            assert file.read(0, file.size()) == right, at
            assert [run.first_offset for _, run in store.recovery.mended_epochs] == [at]
            assert epochs == ((0, 0), (1, 4), (2, 8))
        store.close(clean=False)
        file.write(0, right)
