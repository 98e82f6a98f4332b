"""Which batch of a partition may leave."""

from __future__ import annotations

import pytest

from kohort.client.producer.core.accumulator import Accumulator, BatchState
from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import ConfigError
from kohort.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)


def accumulator_of(
    *, batch_bytes: int, linger_ms: int = 0, limit_bytes: int = 1, rule: object = "murmur2_random"
) -> Accumulator:
    return Accumulator(
        batch_bytes=batch_bytes,
        linger_ms=linger_ms,
        limit_bytes=limit_bytes,
        partitioner=Partitioner(rule, batch_bytes=batch_bytes),  # type: ignore[arg-type]
    )


def a_record(value: bytes = b"x", *, partition: int | None = 0) -> RecordFuture:
    record = RecordFuture("orders", None, value, 5, 24 + len(value))
    record.partition = partition
    return record


def filled(*, batches: int) -> Accumulator:
    """Batches of one record each, all of which may leave."""
    accumulator = accumulator_of(batch_bytes=1)
    for number in range(batches):
        accumulator.add(a_record(b"%d" % number), 1, now_ms=10)
    return accumulator


def test_batch_that_pauses_before_a_retry_holds_up_the_later_ones() -> None:
    """Order is kept: nothing overtakes it, and it goes first when its pause is over."""
    accumulator = filled(batches=2)
    first, second = accumulator.batches()
    first.not_before_ms = 100

    assert accumulator.ready(ORDERS, 99) is None
    assert accumulator.ready(ORDERS, 100) is first
    accumulator.leave(first)
    assert accumulator.ready(ORDERS, 100) is second


def test_open_batch_may_not_leave() -> None:
    accumulator = accumulator_of(batch_bytes=1_000, linger_ms=60_000)
    accumulator.add(a_record(), 1, now_ms=10)
    assert accumulator.ready(ORDERS, 20) is None
    accumulator.close_all()
    assert accumulator.ready(ORDERS, 20) is not None


def test_batch_that_may_leave_takes_more_until_it_does() -> None:
    """Up to the limit; what has left takes nothing."""
    accumulator = accumulator_of(batch_bytes=100, limit_bytes=300, linger_ms=60_000)
    for _ in range(12):
        accumulator.add(a_record(), 1, now_ms=10)
    first, second = accumulator.batches()
    assert [len(batch.records) for batch in (first, second)] == [9, 3]
    assert [batch.state for batch in (first, second)] == [BatchState.CLOSED] * 2
    accumulator.leave(second)
    accumulator.add(a_record(), 1, now_ms=20)
    assert [len(batch.records) for batch in accumulator.batches()] == [9, 3, 1]


def test_topic_with_smaller_limits_gets_batches_of_batch_size() -> None:
    """A broker has refused a large one."""
    accumulator = accumulator_of(batch_bytes=100, limit_bytes=10_000)
    accumulator.narrow("orders")
    for _ in range(4):
        accumulator.add(a_record(), 1, now_ms=10)
    assert [len(batch.records) for batch in accumulator.batches()] == [1, 1, 1, 1]


def test_record_whose_partitioner_fails_leaves_the_others_alone() -> None:
    """Nothing is begun for it."""
    accumulator = accumulator_of(batch_bytes=100, rule=lambda *about: about[2])
    with pytest.raises(ConfigError, match="the partitioner has chosen 3 for a record of orders"):
        accumulator.add(a_record(partition=None), 3, now_ms=10)
    assert not accumulator.queues
