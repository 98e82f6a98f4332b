"""When a micro-batch is worth planning."""

from __future__ import annotations

from kohort import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.planning import BatchDelay


def spans(*sizes: int) -> dict[TopicPartition, Span]:
    return {TopicPartition("t", number): Span(7, 7 + size) for number, size in enumerate(sizes)}


def test_few_records_wait_for_more() -> None:
    """But those of the first batch of a run; enough is counted over all partitions."""
    delay = BatchDelay(min_offsets=10, max_delay_ms=60_000)
    assert not delay.hold_back(spans(1), now_s=100)
    assert delay.hold_back(spans(4, 5), now_s=101)
    assert not delay.hold_back(spans(4, 6), now_s=102)
    assert delay.hold_back(spans(9), now_s=103)


def test_the_wait_ends() -> None:
    """Counted from the last batch that was let through."""
    delay = BatchDelay(min_offsets=10, max_delay_ms=1_000)
    assert not delay.hold_back(spans(1), now_s=100)
    assert delay.hold_back(spans(2), now_s=100.9)
    assert not delay.hold_back(spans(2), now_s=101)
    assert delay.hold_back(spans(2), now_s=101.5)
