"""The code of the executors, which reads the spans of a task as Arrow record batches.

Laws: no state but one idle consumer per worker process and settings. No Python object per record. A span ends exactly
at its planned end, also inside a fetched batch. All spans of a task are fetched at once, and nothing behind their ends.
A task waits for a broker that is unreachable for a while. Records that were deleted before they were read fail the
query, or are skipped with a log line that names the offsets; the other spans of the task go on. No record of a topic
that was made anew is taken for one of the topic that was planned: fetches name the topic's id.
Source: `failOnDataLoss` of Spark's Kafka source; KIP-516 (topic ids in fetches).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from kohort.client.consumer.consumer import Consumer
from kohort.client.options import CONSUMER_OPTIONS
from kohort.errors import BrokerError, ErrorCode, KohortError, KohortTimeoutError, UnknownTopicError
from kohort.ids import TopicPartition, parse_topic_id
from kohort.spark.offsets import RecordsLostError, Span
from kohort.spark.options import EARLIEST, LATEST, SourceOptions
from kohort.spark.workers import spare_collections

if TYPE_CHECKING:
    import pyarrow


#: Short, because a span may end in offsets without records (transaction markers): no data arrives to end the wait.
_POLL_S: Final = 0.2
#: After so long without records the topics of a task are looked up: they may have been deleted and made anew.
_DOUBT_S: Final = 1.0
#: Smaller batches are joined until one of these is reached: each batch costs the JVM as much as some thousand rows.
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 512 * 1024

#: Idle consumers of this worker process by their settings: workers are reused, connections with them.
_idle: dict[tuple[tuple[str, str], ...], Consumer] = {}


class SpanToRead(NamedTuple):
    """A piece of a partition; a `start` of `EARLIEST` and an `end` of `LATEST` are looked up when the task runs."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass
class SpansToRead(InputPartition):
    """One task: a plain value, because Spark pickles it to whichever executor is free.

    `topic_ids`: topic -> its id when the task was planned; without those that are not known.
    """

    spans: list[SpanToRead]
    topic_ids: dict[str, str] = field(default_factory=dict)


def read_spans(options: SourceOptions, task: SpansToRead) -> Iterator[pyarrow.RecordBatch]:
    """Read the records of a task, those of each span in order, as batches of the wanted columns.

    Raises:
        RecordsLostError: the log does not have a span's start, or its topic was deleted and recreated before the task
            ended; and `failOnDataLoss` is true.
        UnknownTopicError: a topic was deleted, and `failOnDataLoss` is true.
        KohortTimeoutError: no records arrived for `kafkaConsumer.pollTimeoutMs`.
    """
    spare_collections()
    settings = tuple(sorted(options.client.items()))
    consumer = _idle.pop(settings, None) or Consumer.from_config(reading_config(options))
    try:
        yield from join_batches(_Reading(consumer, options, task).batches())
        consumer.assign([])
    except BaseException:
        # A consumer that stopped half-way holds data of these spans; the next task gets a fresh one.
        consumer.close(timeout=0)
        raise
    if _idle.setdefault(settings, consumer) is not consumer:
        # A consumer of another thread is kept already.
        consumer.close(timeout=0)


def reading_config(options: SourceOptions) -> dict[str, object]:
    """Return the settings of an executor's consumer, which fetches ahead by one response."""
    settings = {**options.client, "auto.offset.reset": "none", "enable.auto.commit": False}
    answer_bytes: int = CONSUMER_OPTIONS.parse(settings)["max.partition.fetch.bytes"]
    # While one response is passed to the JVM the next is being fetched.
    return {**settings, "fetch.buffer.bytes": 2 * answer_bytes}


def join_batches(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Join small batches of one schema, in order, until they have 10,000 rows or 512 KiB, but for the last one."""
    held: list[pyarrow.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _BATCH_ROWS or size_bytes >= _BATCH_BYTES:
            yield _joined(held)
            held, rows, size_bytes = [], 0, 0
    if rows:
        yield _joined(held)


def _joined(batches: list[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    import pyarrow

    return pyarrow.Table.from_batches(batches).combine_chunks().to_batches()[0]


class _Reading:
    """The spans of one task while they are read."""

    def __init__(self, consumer: Consumer, options: SourceOptions, task: SpansToRead) -> None:
        self._consumer = consumer
        self._handler = consumer._context.handler
        self._fails: bool = options.own["failOnDataLoss"]
        self._columns = list(options.columns)
        self._patience_s = options.poll_timeout_ms / 1000
        self._topic_ids = task.topic_ids
        #: partition -> what is left of its span: it begins at the next record to be handed on.
        self._left = {TopicPartition(each.topic, each.partition): Span(each.start, each.end) for each in task.spans}
        #: Partitions whose records came without the id of their topic.
        self._nameless: set[TopicPartition] = set()

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Read until no span has anything left."""
        self._bind()
        if self._left:
            ids = {topic: parse_topic_id(text) for topic, text in self._topic_ids.items() if text}
            self._consumer._subscriptions.assign_spans(self._left, ids)
        since_s, trouble = time.monotonic(), None
        looked_s = since_s
        while self._left:
            try:
                found = self._consumer.poll_arrow(_POLL_S, columns=self._columns)
            except KohortError as why:
                self._settle(why)
                found, trouble = [], why
            if self._handler.nameless and self._meet_nameless():
                continue
            has_moved = self._note_progress()
            yield from found
            now_s = time.monotonic()
            if has_moved:
                since_s = looked_s = now_s
            elif now_s >= since_s + self._patience_s:
                raise self._timeout() from trouble
            elif now_s >= looked_s + _DOUBT_S:
                try:
                    self._drop_renewed(self._left, timeout_s=min(_DOUBT_S, since_s + self._patience_s - now_s))
                except KohortError as why:
                    if not why.retriable:
                        raise
                    # The reason why no records come says more.
                    trouble = trouble or why
                looked_s = time.monotonic()
        if renewed := self._drop_renewed(self._nameless):
            # Records of both topics cannot be told apart; the task has not ended, so that none of them counts.
            raise RecordsLostError(renewed[0], 0, MADE_ANEW)

    def _bind(self) -> None:
        """Look up the bounds that were left open, and drop empty spans."""
        firsts = [each for each, span in self._left.items() if span.start == EARLIEST]
        lasts = [each for each, span in self._left.items() if span.end == LATEST]
        try:
            begins = self._consumer.beginning_offsets(firsts)
            ends = self._consumer.end_offsets(lasts)
        except UnknownTopicError as why:
            if not self._drop_deleted(why):
                raise
            self._bind()
            return
        bound = {each: Span(begins.get(each, low), ends.get(each, high)) for each, (low, high) in self._left.items()}
        self._left = {each: span for each, span in bound.items() if span.size > 0}

    def _meet_nameless(self) -> bool:
        """Look up topics at their first records without an id; return whether the records are to be fetched again."""
        # Brokers older than Kafka 3.1 fetch by name, and do not say by which id.
        fresh = self._handler.nameless - self._nameless
        self._nameless |= fresh
        if not self._drop_renewed(fresh):
            return False
        for partition, span in self._left.items():
            self._consumer.seek(partition, span.start)
        return True

    def _note_progress(self) -> bool:
        """Take the positions over that have moved; return whether one has passed a record."""
        for partition in list(self._handler.foreign):
            if partition in self._left:
                self._skip(partition, MADE_ANEW)
        has_moved = False
        for partition, position in self._handler.consumed().items():
            span = self._left.get(partition)
            if span is None:
                continue
            # A seek to the record that is next anyway is no progress.
            has_moved |= position > span.start
            if position < span.end:
                self._left[partition] = Span(position, span.end)
            else:
                del self._left[partition]
        return has_moved

    def _skip(self, partition: TopicPartition, why: str) -> None:
        """Give up the rest of a partition's span, or raise `RecordsLostError`."""
        span = self._left.pop(partition)
        go_on_at(partition, span.start, span.end, why, fails=self._fails)
        if partition in self._consumer.assignment():
            self._consumer.pause([partition])

    def _settle(self, why: KohortError) -> None:
        """Go on after an error if that is possible, else raise it."""
        if isinstance(why, BrokerError) and why.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                self._find_next()
            except UnknownTopicError as deleted:
                if not self._drop_deleted(deleted):
                    raise
                self._settle(why)
        elif isinstance(why, UnknownTopicError):
            self._drop_deleted(why)
        elif not why.retriable:
            raise why

    def _drop_deleted(self, why: UnknownTopicError) -> bool:
        """Give up the partitions that do not exist any more, or raise the error; return whether there were any."""
        if self._fails:
            raise why
        gone = [each for each in self._left if each.topic == why.topic and why.partition in (None, each.partition)]
        for partition in gone:
            self._skip(partition, "it was deleted")
        return bool(gone)

    def _find_next(self) -> None:
        """Find where partitions with a position outside the log go on: at the log's start or the span's end."""
        self._drop_renewed(self._left)
        partitions = list(self._left)
        begins, log_ends = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        for partition, span in list(self._left.items()):
            if span.start < begins[partition]:
                position = min(begins[partition], span.end)
                go_on_at(partition, span.start, position, f"its log begins at {begins[partition]}", fails=self._fails)
                self._left[partition] = Span(position, span.end)
            elif span.start > log_ends[partition]:
                # Records after the task's end belong to the next plan.
                self._skip(partition, f"its log ends at {log_ends[partition]}")
        for partition, span in self._left.items():
            self._consumer.seek(partition, span.start)

    def _drop_renewed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Give up partitions whose topic was deleted and recreated since the plan; return those of `partitions`."""
        names = sorted({each.topic for each in partitions if self._topic_ids.get(each.topic)})
        if not names:
            return []
        topics = self._consumer.describe_topics(names, timeout_s)
        renewed = {name for name, topic in topics.items() if topic.topic_id not in ("", self._topic_ids.get(name))}
        for partition in [each for each in self._left if each.topic in renewed]:
            self._skip(partition, MADE_ANEW)
        return sorted(each for each in partitions if each.topic in renewed)

    def _timeout(self) -> KohortTimeoutError:
        partition = min(self._left)
        others = "" if len(self._left) == 1 else f", as did {len(self._left) - 1} more of its task,"
        return KohortTimeoutError(
            f"{partition} gave nothing at offset {self._left[partition].start}{others} for {self._patience_s:g} s "
            "(kafkaConsumer.pollTimeoutMs, by default kafka.default.api.timeout.ms)"
        )


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
