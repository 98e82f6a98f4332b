"""Which batch of a partition may leave."""

from __future__ import annotations

from concurrent.futures import Future

from kohort.client.producer.core.accumulator import Accumulator, BatchState
from kohort.client.producer.core.submissions import PendingRecord
from kohort.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)


def filled(*, batches: int) -> Accumulator:
    """Batches of one record each, all of them closed."""
    accumulator = Accumulator(batch_bytes=1, linger_ms=0)
    for number in range(batches):
        accumulator.add(PendingRecord("orders", 0, (None, b"%d" % number, 5, ()), Future(), 25), 1, now_ms=10)
    return accumulator


def test_batch_that_pauses_before_a_retry_holds_up_the_later_ones() -> None:
    """Order is kept: nothing overtakes it, and it goes first when its pause is over."""
    accumulator = filled(batches=2)
    first, second = accumulator.batches()
    first.not_before_ms = 100

    assert accumulator.ready(ORDERS, 99) is None
    assert accumulator.ready(ORDERS, 100) is first
    first.state = BatchState.IN_FLIGHT
    assert accumulator.ready(ORDERS, 100) is second


def test_open_batch_may_not_leave() -> None:
    accumulator = Accumulator(batch_bytes=1_000, linger_ms=60_000)
    accumulator.add(PendingRecord("orders", 0, (None, b"x", 5, ()), Future(), 25), 1, now_ms=10)
    assert accumulator.ready(ORDERS, 20) is None
    accumulator.close_all()
    assert accumulator.ready(ORDERS, 20) is not None
