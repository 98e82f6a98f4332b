"""When a micro-batch is worth planning.

Laws: nothing here reads a clock.
Source: `minOffsetsPerTrigger` and `maxTriggerDelay` of Spark's Kafka source (`KafkaMicroBatchStream.delayBatch`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.ids import TopicPartition
from kohort.spark.offsets import Span


class BatchDelay:
    """Holds batches back until there are enough records or the wait is over; the first one of a run is not held back.

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
