"""Idempotent producers: what a partition answers to a repeated, a lost and a late batch."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import ErrorCode, Refused
from kohort.records.checksum import crc32c
from kohort.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from kohort.storage.log_state import LogState, load_snapshot, snapshot_of
from kohort.storage.partitions.producers import REMEMBERED_BATCHES, ProducerStates, StoredBatch
from kohort.testing.disks import MemoryFileSystem

INT32_MAX = (1 << 31) - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, base_offset: int = 0) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=1000,
        max_timestamp=1000,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


class Producers:
    """A partition's states with the log that feeds them, as a dialogue."""

    def __init__(self, *, limit: int = 100) -> None:
        self.states = ProducerStates(limit=limit)
        self.log: list[BatchHeader] = []
        self.end = 0

    def send(self, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> int | str:
        """The base offset that the batch has, or the name of the refusal."""
        sent = header(sequence, count, producer_id=producer_id, epoch=epoch)
        try:
            repeated = self.states.check(sent)
        except Refused as refusal:
            return refusal.code.name
        if repeated:
            return repeated.base_offset
        stored = sent._replace(base_offset=self.end)
        self.states.note(stored)
        self.log.append(stored)
        self.end += count
        return stored.base_offset


def test_batches_in_order_are_taken() -> None:
    producers = Producers()
    assert [producers.send(0, 3), producers.send(3), producers.send(4, 2)] == [0, 3, 4]


def test_any_of_the_last_five_batches_is_answered_again() -> None:
    """KIP-98, KIP-185: a client has at most five batches in flight."""
    producers = Producers()
    for at in range(8):
        producers.send(at * 2, 2)

    assert [producers.send(at * 2, 2) for at in range(3, 8)] == [6, 8, 10, 12, 14]
    assert producers.send(4, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producers.end == 16


def test_a_batch_that_only_overlaps_is_out_of_order() -> None:
    producers = Producers()
    producers.send(0, 4)
    assert producers.send(0, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producers.send(2, 4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_gap_is_out_of_order() -> None:
    producers = Producers()
    producers.send(0, 4)
    assert producers.send(5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producers.send(4) == 4


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """KIP-360: its state may have gone with its records."""
    producers = Producers()
    assert producers.send(42) == 0
    assert producers.send(43) == 1


def test_an_older_epoch_is_refused() -> None:
    producers = Producers()
    producers.send(0, epoch=3)
    assert producers.send(1, epoch=2) == "INVALID_PRODUCER_EPOCH"


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    producers = Producers()
    producers.send(0, 5)
    assert producers.send(5, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producers.send(0, 5, epoch=1) == 5
    assert producers.send(0, 5, epoch=0) == "INVALID_PRODUCER_EPOCH"


def test_batches_of_an_old_epoch_are_not_repeats() -> None:
    producers = Producers()
    producers.send(0)
    assert producers.send(0, epoch=1) == 1


def test_sequences_of_a_new_epoch_are_not_repeats_of_the_old_one() -> None:
    producers = Producers()
    for sequence in range(3):
        producers.send(sequence)
    assert [producers.send(sequence, epoch=1) for sequence in range(3)] == [3, 4, 5]


def test_sequences_begin_again_behind_the_largest() -> None:
    producers = Producers()
    producers.send(INT32_MAX - 1)
    assert producers.send(INT32_MAX) == 1
    assert producers.send(0) == 2
    assert producers.send(INT32_MAX) == 1


def test_a_batch_may_run_over_the_largest_sequence() -> None:
    producers = Producers()
    producers.send(INT32_MAX - 1, 4)
    assert producers.send(2) == 4
    assert producers.send(INT32_MAX - 1, 4) == 0


def test_producers_do_not_disturb_each_other() -> None:
    producers = Producers()
    producers.send(0, producer_id=1)
    assert producers.send(0, producer_id=2) == 1
    assert producers.send(1, producer_id=1) == 2
    assert len(producers.states) == 2


def test_of_too_many_producers_the_most_silent_is_forgotten() -> None:
    producers = Producers(limit=2)
    producers.send(0, producer_id=1)
    producers.send(0, producer_id=2)
    producers.send(1, producer_id=1)
    producers.send(0, producer_id=3)

    assert producers.states.get(2) is None
    assert producers.send(2, producer_id=1) == 4
    assert len(producers.states) == 2


def test_a_check_changes_nothing() -> None:
    states = ProducerStates()
    assert states.check(header(0, 2)) is None
    assert len(states) == 0
    states.note(header(0, 2, base_offset=10))
    for _ in range(2):
        assert states.check(header(0, 2)) == StoredBatch(0, 1, 10, 11, 1000)
    with pytest.raises(Refused) as refusal:
        states.check(header(3))
    assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_without_a_producer_leave_no_trace() -> None:
    states = ProducerStates()
    states.note(header(-1, producer_id=-1, epoch=-1))
    assert len(states) == 0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)), max_size=60))
def test_reading_the_log_again_gives_the_same_state(sent: list[tuple[int, int, int, int]]) -> None:
    """What a restart rebuilds is what was there; and the log never holds a gap within an epoch."""
    producers = Producers()
    for sequence, count, producer_id, epoch in sent:
        producers.send(sequence, count, producer_id=producer_id, epoch=epoch)
    rebuilt = ProducerStates()
    for stored in producers.log:
        rebuilt.note(stored)

    for producer_id in (1, 2):
        live, again = producers.states.get(producer_id), rebuilt.get(producer_id)
        assert (live and (live.epoch, live.batches)) == (again and (again.epoch, again.batches))
        batches = [
            (h.producer_epoch, h.base_sequence, h.record_count) for h in producers.log if h.producer_id == producer_id
        ]
        for (epoch, base, count), (next_epoch, next_base, _) in pairwise(batches):
            assert next_base == (base + count if next_epoch == epoch else 0)
    assert all(len(state.batches) <= REMEMBERED_BATCHES for i in (1, 2) if (state := producers.states.get(i)))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=30))
def test_what_is_kept_comes_back(sent: list[tuple[int, int, int]]) -> None:
    producers = Producers()
    for sequence, producer_id, epoch in sent:
        producers.send(sequence, producer_id=producer_id, epoch=epoch)
    again = ProducerStates()
    again.restore(producers.states.rows())
    assert again.rows() == producers.states.rows()


def test_those_that_are_silent_are_forgotten() -> None:
    """By the time of writing; after a restart by that of the record, which is all that is known then."""
    states = ProducerStates()
    states.note(header(0, producer_id=1), 5_000)
    states.note(header(0, producer_id=2), 6_000)
    states.note(header(0, producer_id=3))
    assert states.expire(5_001) == 2
    assert [row.producer_id for row in states.rows()] == [2]
    states.note(header(1, producer_id=2), 9_000)
    assert states.expire(9_000) == 0
    assert states.check(header(7, producer_id=1)) is None, "who comes back is taken at any sequence"


def in_transaction(sequence: int, *, producer_id: int = 7, base_offset: int = 0, count: int = 1) -> BatchHeader:
    sent = header(sequence, max(count, 1), producer_id=producer_id, base_offset=base_offset)
    return sent._replace(attributes=TRANSACTIONAL_BIT, record_count=count)


def marker(*, producer_id: int = 7, epoch: int = 0, base_offset: int = 0) -> BatchHeader:
    sent = header(-1, producer_id=producer_id, epoch=epoch, base_offset=base_offset)
    return sent._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


def test_producer_with_an_open_transaction_is_not_forgotten() -> None:
    """Neither for its silence nor for room; the first to be forgotten is the next one."""
    states = ProducerStates(limit=2)
    states.note(in_transaction(0), 1)
    states.note(header(0, producer_id=8, base_offset=1), 2)
    states.note(header(0, producer_id=9, base_offset=2), 3)
    assert states.get(7) and states.get(9) and not states.get(8)
    assert states.expire(100) == 1
    assert [row.producer_id for row in states.rows()] == [7]
    states.note_marker(marker(base_offset=3), 0, 4)
    assert states.expire(100) == 1
    assert states.rows() == ()


def test_producer_that_hangs_before_a_hole_is_not_forgotten() -> None:
    """Its row is what an administrator aborts it by."""
    states = ProducerStates()
    states.note(in_transaction(0), 1)
    states.lose(5)
    assert (states.expire(100), len(states)) == (0, 1)
    states.end_hanging(7)
    assert (states.expire(100), len(states)) == (1, 0)


def test_marker_keeps_batches_of_its_epoch_and_ends_the_sequence_of_an_older_one() -> None:
    """KIP-890: a marker of a new epoch begins the next transaction's sequence at 0."""
    states = ProducerStates()
    states.note(in_transaction(0), 1)
    states.note_marker(marker(base_offset=1), 0, 2)
    assert states.check(in_transaction(1)) is None
    assert states.check(in_transaction(0)) is not None, "a repetition"
    states.note_marker(marker(epoch=1, base_offset=2), 0, 3)
    with pytest.raises(Refused) as refused:
        states.check(in_transaction(0))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(Refused) as refused:
        states.check(in_transaction(1)._replace(producer_epoch=1))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(in_transaction(0)._replace(producer_epoch=1)) is None


def test_empty_batch_opens_no_transaction() -> None:
    """Compaction has left it; its marker may be gone."""
    states = ProducerStates()
    states.note(in_transaction(4, count=0))
    assert not states.has_undecided
    states.note(in_transaction(5, base_offset=9))
    assert dict(states.open_transactions) == {7: 9}


def test_marker_of_an_older_coordinator_or_epoch_is_refused() -> None:
    states = ProducerStates()
    states.note(in_transaction(0), 1)
    states.note_marker(marker(epoch=1, base_offset=1), 5, 2)
    cases = {
        (0, 5, False): ErrorCode.INVALID_PRODUCER_EPOCH,
        (1, 5, True): ErrorCode.INVALID_PRODUCER_EPOCH,
        (1, 4, False): ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        (1, 5, False): None,
        (2, 6, True): None,
    }
    for (epoch, coordinator_epoch, is_v2), code in cases.items():
        asked = partial(
            states.check_marker,
            producer_id=7,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            is_v2=is_v2,
        )
        if code is None:
            asked()
            continue
        with pytest.raises(Refused) as refused:
            asked()
        assert refused.value.code is code


def test_snapshot_is_apache_kafkas() -> None:
    """Version 1: id, epoch, last sequence, last offset, its delta, time, coordinator's epoch, open transaction."""
    states = ProducerStates()
    states.note(in_transaction(3, base_offset=10, count=2), 1_000)
    states.note_marker(marker(producer_id=8, epoch=2, base_offset=12), 6, 1_000)
    content = snapshot_of(states.rows())
    assert content.hex() == (
        "0001" + f"{crc32c(content[6:]):08x}" + "00000002"
        "0000000000000007" "0000" "00000004" "000000000000000b" "00000001" "00000000000003e8" "ffffffff"
        "000000000000000a"
        "0000000000000008" "0002" "ffffffff" "ffffffffffffffff" "00000000" "00000000000003e8" "00000006"
        "ffffffffffffffff"
    )  # fmt: skip
    fs = MemoryFileSystem()
    fs.make_directory("/p")
    fs.open("/p/13.snapshot", create=True).write(0, content)
    again = ProducerStates()
    again.restore(load_snapshot(fs, "/p", ["13.snapshot"]))
    assert again.rows() == states.rows()


def test_state_of_an_earlier_version_is_read() -> None:
    """Its producers have no transactions."""
    rows = [[7, 2, [[0, 1, 10, 11, 1_000]]]]
    state = LogState.of({"offset": 12, "epochs": [[0, 0]], "producers": rows})
    assert state.producers[0].transaction_start == state.producers[0].coordinator_epoch == -1
    assert (state.aborted, state.hanging) == ((), ())
