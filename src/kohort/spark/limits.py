"""The limits of a micro-batch: the time to plan one, and the share of the records that it reads.

Laws: nothing here reads a clock.
Source: `minOffsetsPerTrigger`, `maxTriggerDelay` and `maxOffsetsPerTrigger` of Spark's Kafka source
(`KafkaMicroBatchStream.delayBatch`, `rateLimit`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.ids import TopicPartition
from kohort.spark.offsets import Span, share_limit
from kohort.spark.options import SourceOptions
from kohort.spark.sizes import BytesCap


class BatchLimits:
    """All limits that the options set; where Spark asks for one of them, all hold."""

    def __init__(self, options: SourceOptions) -> None:
        self._max_offsets = options.own["maxOffsetsPerTrigger"]
        least, most = options.own["minOffsetsPerTrigger"], options.own["maxBytesPerTrigger"]
        #: `None` where a batch may be as small as it likes.
        self._delay = (
            None if least is None else BatchDelay(min_offsets=least, max_delay_ms=options.max_trigger_delay_ms)
        )
        #: `None` where it may have any number of bytes.
        self._bytes = None if most is None else BytesCap(options, max_bytes=most)

    def apply(
        self, spans: Mapping[TopicPartition, Span], *, may_wait: bool, now_s: float
    ) -> dict[TopicPartition, Span]:
        """Return the part of these spans, all that there is now, for the next batch; empty ones to wait."""
        if may_wait and self._delay is not None and self._delay.hold_back(spans, now_s=now_s):
            return {partition: Span(span.start, span.start) for partition, span in spans.items()}
        limited = share_limit(spans, self._max_offsets)
        return limited if self._bytes is None else self._bytes.cap(limited)

    def close(self) -> None:
        """Close the consumer that looked at records, if one was opened."""
        if self._bytes is not None:
            self._bytes.close()


class BatchDelay:
    """The delay of batches until there are enough records or the wait is over; not of a run's first one.

    Args:
        min_offsets: so many are enough.
        max_delay_ms: longest time between two batches that were not held back.
    """

    def __init__(self, *, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_ms / 1000
        #: When the last batch was let through; `None` before the first.
        self._last_s: float | None = None

    def hold_back(self, spans: Mapping[TopicPartition, Span], *, now_s: float) -> bool:
        """Whether these spans, all that there is now, should wait."""
        available = sum(span.size for span in spans.values())
        is_late = self._last_s is None or now_s - self._last_s >= self._max_delay_s
        if available < self._min_offsets and not is_late:
            return True
        self._last_s = now_s
        return False
