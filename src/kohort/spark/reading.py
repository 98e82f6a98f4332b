"""What runs in the executors: one span of one partition becomes Arrow record batches.

Laws: stateless but for a connection kept per worker process; no Python object per record; a span ends exactly where
it was planned to end, also inside a fetched batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from kohort.client.consumer import Consumer
from kohort.errors import KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

#: A span without a new record for so long is given up, seconds.
STALLED_AFTER_S: Final = 120.0
_POLL_S: Final = 5.0

#: Consumers of this worker process by their settings: workers are reused, connections with them.
_consumers: dict[tuple[tuple[str, str], ...], Consumer] = {}


@dataclass
class SpanToRead(InputPartition):
    """One task: a plain value, because Spark pickles it to whichever executor is free."""

    topic: str
    partition: int
    start: int
    end: int


def read_span(options: SourceOptions, task: SpanToRead) -> Iterator[pyarrow.RecordBatch]:
    """The records of one span, in order, as batches of the wanted columns."""
    settings = tuple(sorted(options.client.items()))
    consumer = _consumers.pop(settings, None) or _open(options)
    try:
        yield from _read(
            consumer, options.columns, TopicPartition(task.topic, task.partition), Span(task.start, task.end)
        )
    except BaseException:
        # A consumer that stopped half-way holds data of this span; the next task gets a fresh one.
        consumer.close(timeout=0)
        raise
    _consumers[settings] = consumer


def _open(options: SourceOptions) -> Consumer:
    return Consumer.from_config({**options.client, "auto.offset.reset": "none", "enable.auto.commit": False})


def _read(
    consumer: Consumer, columns: Sequence[str], partition: TopicPartition, span: Span
) -> Iterator[pyarrow.RecordBatch]:
    fetched = tuple(columns) if "offset" in columns else (*columns, "offset")
    consumer.assign([partition])
    consumer.seek(partition, span.start)
    position, silent_s = span.start, 0.0
    while position < span.end:
        batches = consumer.poll_arrow(_POLL_S, columns=fetched)
        for batch in batches:
            kept = _cut(batch, span.end)
            if kept.num_rows:
                yield kept.select(list(columns))
        reached = consumer.position(partition)
        silent_s = 0.0 if reached > position else silent_s + _POLL_S
        position = reached
        if silent_s >= STALLED_AFTER_S:
            raise KohortTimeoutError(f"{partition} gave no record after offset {position} for {silent_s:.0f} s")
    consumer.assign([])


def _cut(batch: pyarrow.RecordBatch, end: int) -> pyarrow.RecordBatch:
    """The rows whose offset is below `end`; offsets ascend."""
    offsets = batch.column("offset")
    rows = batch.num_rows
    if rows == 0 or offsets[rows - 1].as_py() < end:
        return batch
    return batch.slice(0, bisect_left(range(rows), end, key=lambda row: offsets[row].as_py()))
