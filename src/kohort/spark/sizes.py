"""The size of a micro-batch in bytes, by a look at where it begins in each partition.

Laws: a partition's look is bounded, one record at least; what is known from earlier looks is used as long as the
backlog is far below the cap; each partition gets one record at least, or nothing would ever move.
Source: `maxBytesPerTrigger` of Spark's file and Delta sources; its Kafka source has none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from kohort.client.consumer.consumer import Consumer
from kohort.errors import KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import SourceOptions

#: Of a partition, in one answer.
_LOOK_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.2
_COLUMNS: Final = ("key", "value", "headers")
#: A backlog that seems to be smaller than this part of the cap is not looked at again.
_FAR_BELOW: Final = 0.5


class BytesCap:
    """`maxBytesPerTrigger` of one query.

    Args:
        max_bytes: of keys, values and headers, about.
    """

    def __init__(self, options: SourceOptions, *, max_bytes: int) -> None:
        self._options = options
        self._max_bytes = max_bytes
        #: Made on first use, and kept.
        self._consumer: Consumer | None = None
        #: partition -> bytes a record.
        self._sizes: dict[TopicPartition, float] = {}

    def cap(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Span]:
        """Cap each span so that all of them together have about `max_bytes`.

        Raises:
            KohortTimeoutError: records could not be looked at within `kafka.default.api.timeout.ms`.
        """
        waiting = {partition: span for partition, span in spans.items() if span.size > 0}
        are_known = waiting.keys() <= self._sizes.keys()
        if not (are_known and weigh(waiting, self._sizes) < _FAR_BELOW * self._max_bytes):
            self._sizes.update(self._look(waiting))
        return share_bytes(spans, self._sizes, self._max_bytes)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._consumer is not None:
            self._consumer.close(timeout=5.0)

    def _look(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, float]:
        if self._consumer is None:
            settings = {"auto.offset.reset": "none", "enable.auto.commit": False}
            limits = {"max.partition.fetch.bytes": _LOOK_BYTES, "fetch.buffer.bytes": _LOOK_BYTES}
            self._consumer = Consumer.from_config({**self._options.client, **settings, **limits})
        consumer, found = self._consumer, dict[TopicPartition, float]()
        try:
            for partition, span in spans.items():
                found[partition] = _bytes_per_record(consumer, partition, span, self._options)
        finally:
            consumer.assign([])
        return found


def _bytes_per_record(consumer: Consumer, partition: TopicPartition, span: Span, options: SourceOptions) -> float:
    consumer.assign([partition])
    consumer.seek(partition, span.start)
    patience_s = options.api_timeout_ms / 1000
    deadline_s, trouble = time.monotonic() + patience_s, None
    while time.monotonic() < deadline_s:
        try:
            batches = consumer.poll_arrow(_POLL_S, columns=_COLUMNS)
        except KohortError as why:
            if not why.retriable:
                raise
            batches, trouble = [], why
        rows: int = sum(batch.num_rows for batch in batches)
        if rows:
            # Arrow adds to the bytes of a binary column the position at which each of them begins.
            size_bytes: int = sum(batch.nbytes for batch in batches)
            return size_bytes / rows - 4 * len(_COLUMNS)
        if consumer.position(partition) >= span.end:
            # Marks of transactions, or what compaction has left.
            return 0.0
    raise KohortTimeoutError(
        f"{partition} showed no record at offset {span.start} for {patience_s:g} s (kafka.default.api.timeout.ms), "
        "which maxBytesPerTrigger needs to see"
    ) from trouble


def weigh(spans: Mapping[TopicPartition, Span], sizes: Mapping[TopicPartition, float]) -> float:
    """Return the bytes of all records."""
    return sum(span.size * sizes[partition] for partition, span in spans.items() if span.size > 0)


def share_bytes(
    spans: Mapping[TopicPartition, Span], sizes: Mapping[TopicPartition, float], max_bytes: int
) -> dict[TopicPartition, Span]:
    """Cap spans at `max_bytes`, shared by their backlog in bytes, at least one record each.

    Args:
        sizes: bytes a record, of each partition whose span is not empty.
    """
    total = weigh(spans, sizes)
    if total <= max_bytes:
        return dict(spans)
    return {
        partition: Span(span.start, min(span.end, span.start + max(1, int(span.size * max_bytes / total))))
        for partition, span in spans.items()
    }
