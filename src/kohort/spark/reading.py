"""The code of the executors, which reads a span of a partition as Arrow record batches.

Laws: no state but one idle consumer per worker process and settings. No Python object per record. A span ends exactly
at its planned end, also inside a fetched batch. A task waits for a broker that is unreachable for a while. Records that
were deleted before they were read fail the query, or are skipped with a log line that names the offsets.
Source: `failOnDataLoss` of Spark's Kafka source.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from kohort.client.consumer.consumer import Consumer
from kohort.client.options import CONSUMER_OPTIONS
from kohort.errors import BrokerError, ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.spark.offsets import RecordsLostError, Span
from kohort.spark.options import EARLIEST, LATEST, SourceOptions
from kohort.spark.workers import spare_collections

if TYPE_CHECKING:
    import pyarrow


#: Short, because a span may end in offsets without records (transaction markers): no data arrives to end the wait.
_POLL_S: Final = 0.2

#: Idle consumers of this worker process by their settings: workers are reused, connections with them.
_idle: dict[tuple[tuple[str, str], ...], Consumer] = {}


@dataclass
class SpanToRead(InputPartition):
    """One task: a plain value, because Spark pickles it to whichever executor is free.

    A `start` of `EARLIEST` and an `end` of `LATEST` are looked up when the task runs. `topic_id`: the topic's id when
    the task was planned; empty if it is not known.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""


def read_span(options: SourceOptions, task: SpanToRead) -> Iterator[pyarrow.RecordBatch]:
    """Read the records of one span, in order, as batches of the wanted columns.

    Raises:
        RecordsLostError: the log does not have the span's start, and `failOnDataLoss` is true; or the topic was
            deleted and recreated before the task ended.
        KohortTimeoutError: no records arrived for `kafkaConsumer.pollTimeoutMs`.
    """
    spare_collections()
    settings = tuple(sorted(options.client.items()))
    consumer = _idle.pop(settings, None) or Consumer.from_config(reading_config(options))
    try:
        yield from _read(consumer, options, task)
        consumer.assign([])
    except BaseException:
        # A consumer that stopped half-way holds data of this span; the next task gets a fresh one.
        consumer.close(timeout=0)
        raise
    if _idle.setdefault(settings, consumer) is not consumer:
        # A consumer of another thread is kept already.
        consumer.close(timeout=0)


def reading_config(options: SourceOptions) -> dict[str, object]:
    """Return the settings of an executor's consumer, which fetches ahead by one response."""
    settings = {**options.client, "auto.offset.reset": "none", "enable.auto.commit": False}
    answer_bytes: int = CONSUMER_OPTIONS.parse(settings)["max.partition.fetch.bytes"]
    # While one response is passed to the JVM the next is being fetched. More would be wasted beyond the span's end.
    return {**settings, "fetch.buffer.bytes": 2 * answer_bytes}


def _read(consumer: Consumer, options: SourceOptions, task: SpanToRead) -> Iterator[pyarrow.RecordBatch]:
    partition = TopicPartition(task.topic, task.partition)
    columns = list(options.columns)
    # Offsets show where the span ends inside a batch.
    fetched = columns if "offset" in columns else [*columns, "offset"]
    patience_s = options.poll_timeout_ms / 1000
    if not options.own["failOnDataLoss"] and _is_renewed(consumer, task):
        # The next plan reads the new topic from its beginning.
        go_on_at(partition, task.start, task.end, MADE_ANEW, fails=False)
        return
    span = _bind(consumer, partition, task)
    consumer.assign([partition])
    consumer.seek(partition, span.start)
    position, since_s, trouble = span.start, time.monotonic(), None
    while position < span.end:
        try:
            batches = consumer.poll_arrow(_POLL_S, columns=fetched)
        except KohortError as why:
            if isinstance(why, BrokerError) and why.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                consumer.seek(partition, _find_next(consumer, partition, position, span.end, options))
            elif not why.retriable:
                raise
            batches, trouble = [], why
        for batch in batches:
            kept = cut(batch, span.end)
            if kept.num_rows:
                yield kept.select(columns)
        reached = consumer.position(partition)
        now_s = time.monotonic()
        if reached > position:
            position, since_s = reached, now_s
        elif now_s >= since_s + patience_s:
            raise KohortTimeoutError(
                f"{partition} gave nothing at offset {position} for {patience_s:g} s (kafkaConsumer.pollTimeoutMs, by "
                "default kafka.default.api.timeout.ms)"
            ) from trouble
    if _is_renewed(consumer, task):
        # Records of both topics cannot be told apart; the task has not ended, so that none of them counts.
        raise RecordsLostError(partition, task.start, MADE_ANEW)


def _is_renewed(consumer: Consumer, task: SpanToRead) -> bool:
    """Return whether the topic was deleted and recreated since the task was planned."""
    if not task.topic_id:
        return False
    found = consumer.describe_topics([task.topic]).get(task.topic)
    return found is not None and found.topic_id not in ("", task.topic_id)


def _bind(consumer: Consumer, partition: TopicPartition, task: SpanToRead) -> Span:
    """Return the bounds of a task, looking up those that were left open."""
    start = consumer.beginning_offsets([partition])[partition] if task.start == EARLIEST else task.start
    end = consumer.end_offsets([partition])[partition] if task.end == LATEST else task.end
    return Span(start, end)


def _find_next(consumer: Consumer, partition: TopicPartition, position: int, end: int, options: SourceOptions) -> int:
    """Find where a task with a position outside the log goes on: at the log's start or the task's end."""
    begin = consumer.beginning_offsets([partition])[partition]
    if position < begin:
        why = f"its log begins at {begin}"
        return go_on_at(partition, position, min(begin, end), why, fails=options.own["failOnDataLoss"])
    log_end = consumer.end_offsets([partition])[partition]
    if position > log_end:
        # Records after the task's end belong to the next plan.
        return go_on_at(partition, position, end, f"its log ends at {log_end}", fails=options.own["failOnDataLoss"])
    return position


def cut(batch: pyarrow.RecordBatch, end: int) -> pyarrow.RecordBatch:
    """Return the rows with offsets below `end`; offsets ascend."""
    offsets = batch.column("offset")
    rows = batch.num_rows
    if rows == 0 or offsets[rows - 1].as_py() < end:
        return batch
    return batch.slice(0, bisect_left(range(rows), end, key=lambda row: offsets[row].as_py()))


MADE_ANEW: Final = "its topic was deleted and made anew"

_log = logging.getLogger(__name__)


def settle_positions(
    positions: Mapping[TopicPartition, int],
    *,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    renewed: Collection[TopicPartition] = (),
    fails: bool,
) -> dict[TopicPartition, int]:
    """Return the positions, replacing those that are outside of their log by its start or its end.

    Args:
        ends: the log end offset of each partition.
        renewed: partitions whose topic was recreated since the positions were read; they go on at the log's start.
        fails: whether to raise `RecordsLostError` instead of replacing a position (`failOnDataLoss`).
    """
    settled = dict(positions)
    for partition, position in positions.items():
        begin, end = begins[partition], ends[partition]
        if partition in renewed:
            settled[partition] = go_on_at(partition, position, begin, MADE_ANEW, fails=fails)
        elif position < begin:
            settled[partition] = go_on_at(partition, position, begin, f"it begins at {begin}", fails=fails)
        elif position > end:
            settled[partition] = go_on_at(partition, position, end, f"it ends at {end}", fails=fails)
    return settled


def drop_renewed(
    spans: Mapping[TopicPartition, Span], renewed: Collection[str], *, fails: bool
) -> dict[TopicPartition, Span]:
    """Drop recreated topics' records from a batch to repeat; raise `RecordsLostError` if `fails`."""
    left = dict(spans)
    for partition, span in spans.items():
        if partition.topic in renewed and span.size > 0:
            go_on_at(partition, span.start, span.end, MADE_ANEW, fails=fails)
            left[partition] = Span(span.end, span.end)
    return left


def go_on_at(partition: TopicPartition, position: int, found: int, why: str, *, fails: bool) -> int:
    """Return `found` and log the skipped offsets, or raise `RecordsLostError`."""
    if fails:
        raise RecordsLostError(partition, position, why)
    _log.warning("%s goes on at offset %d and not at %d: %s (failOnDataLoss=false)", partition, found, position, why)
    return found
