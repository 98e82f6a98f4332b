"""The plan of a batch: its partitions, their starts and ends, its tasks, and its limits.

Laws: every plan looks the topics up, and never creates one. Offsets that are given as numbers are checked against the
log before a task starts, because a task that starts beyond the end of a partition waits for records that may never
arrive. Limits are told the time.
Source: `subscribe`, `subscribePattern`, `assign`, the JSON of offsets and of timestamps, `KafkaOffsetRangeCalculator`
and `KafkaMicroBatchStream` (`delayBatch`, `rateLimit`) of Spark's Kafka source.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from kohort.client.consumer.consumer import Consumer
from kohort.client.records import ListedTopic
from kohort.errors import ConfigError, KohortError, KohortTimeoutError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span, share_limit
from kohort.spark.options import COMMITTED, EARLIEST, LATEST, Offsets, SourceOptions, Times
from kohort.spark.reading import SpansToRead, SpanToRead


def find_topics(consumer: Consumer, options: SourceOptions) -> dict[str, ListedTopic]:
    """Find the topics that the options select now, with their ids.

    Raises:
        UnknownTopicError: a topic of `subscribe` or `assign` does not exist. A pattern may match no topic.
    """
    if options.pattern is not None:
        matches = re.compile(options.pattern).fullmatch
        return {name: topic for name, topic in consumer.describe_topics().items() if matches(name)}
    names = options.topics or sorted({partition.topic for partition in options.partitions})
    found = consumer.describe_topics(names)
    for name in names:
        if name not in found:
            raise UnknownTopicError(name)
    return found


def find_partitions(consumer: Consumer, options: SourceOptions) -> list[TopicPartition]:
    """Find the partitions of `assign`, or every partition of the selected topics; sorted.

    Raises:
        UnknownTopicError: a topic does not exist.
        ConfigError: `assign` names a partition that its topic does not have.
    """
    return partitions_of(find_topics(consumer, options), options)


def partitions_of(topics: Mapping[str, ListedTopic], options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions as `find_partitions` does, for topics that are already looked up."""
    found = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if options.partitions:
        missing = set(options.partitions) - set(found)
        if missing:
            raise ConfigError(f"assign names partitions that do not exist: {join(missing)}")
        found = list(options.partitions)
    return sorted(found)


def find_renewed(topics: Mapping[str, ListedTopic], known_ids: Mapping[str, str]) -> set[str]:
    """Find deleted and recreated topics: their ids differ from the known ones."""
    return {
        name for name, topic in topics.items() if topic.topic_id and known_ids.get(name, "") not in ("", topic.topic_id)
    }


def resolve_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], asked: Offsets, *, option: str
) -> dict[TopicPartition, int]:
    """Resolve earliest, latest, committed and timestamps to offsets; a JSON must name every partition.

    Raises:
        ConfigError: a JSON names other partitions, a number is beyond the end, no record is as young as a timestamp.
    """
    if not partitions:
        return {}
    if isinstance(asked, Times):
        return _resolve_times(consumer, partitions, asked)
    if isinstance(asked, dict):
        check_names(partitions, asked, option=option)
    by_partition = asked if isinstance(asked, dict) else dict.fromkeys(partitions, asked)
    if asked == COMMITTED:
        known = consumer.committed(partitions)
        by_partition = {each: EARLIEST if offset is None else offset for each, offset in known.items()}
    first = [partition for partition in partitions if by_partition[partition] == EARLIEST]
    # A number is checked against the end of its partition, so that end is looked up, too.
    others = [partition for partition in partitions if by_partition[partition] != EARLIEST]
    firsts, ends = consumer.beginning_offsets(first), consumer.end_offsets(others)
    found: dict[TopicPartition, int] = {}
    for partition in partitions:
        offset = by_partition[partition]
        if offset == EARLIEST:
            found[partition] = firsts[partition]
        elif offset == LATEST:
            found[partition] = ends[partition]
        elif offset > ends[partition] and asked != COMMITTED:
            raise ConfigError(
                f"{option}: {partition} has no offset {offset}, it ends at {ends[partition]}; give one up to that"
            )
        else:
            found[partition] = offset
    return found


def _resolve_times(consumer: Consumer, partitions: Sequence[TopicPartition], asked: Times) -> dict[TopicPartition, int]:
    if isinstance(asked.at, dict):
        check_names(partitions, asked.at, option=asked.option)
    times = asked.at if isinstance(asked.at, dict) else dict.fromkeys(partitions, asked.at)
    found = consumer.offsets_for_times(times)
    late = [partition for partition in partitions if found[partition] is None]
    if late and not asked.is_latest_else:
        raise ConfigError(
            f"{asked.option}: {late[0]} has no record that is as young as {times[late[0]]}; give an earlier time, or "
            "startingOffsetsByTimestampStrategy=latest to begin at its end"
        )
    ends = consumer.end_offsets(late)
    return {each: ends[each] if offset is None else offset[0] for each, offset in found.items()}


def check_starts(partitions: Sequence[TopicPartition], asked: Offsets | None) -> None:
    """Raise `ConfigError` if a new stream's JSON of starts names partitions that do not exist."""
    if isinstance(asked, dict):
        check_names(partitions, asked, option="startingOffsets", surplus_only=True)
    elif isinstance(asked, Times) and isinstance(asked.at, dict):
        check_names(partitions, asked.at, option=asked.option, surplus_only=True)


def check_names(
    partitions: Sequence[TopicPartition],
    named: Collection[TopicPartition],
    *,
    option: str,
    surplus_only: bool = False,
) -> None:
    """Raise `ConfigError` if a JSON of offsets does not name exactly these partitions."""
    surplus, missing = set(named) - set(partitions), set(partitions) - set(named)
    if surplus:
        raise ConfigError(f"{option} names partitions that are not read: {join(surplus)}")
    if missing and not surplus_only:
        raise ConfigError(f"{option} gives offsets for some partitions only; missing: {join(missing)}")


def find_first_starts(
    consumer: Consumer,
    options: SourceOptions,
    fresh: Sequence[TopicPartition],
    *,
    existing_first: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Find where a stream starts in partitions for which no position is known yet.

    Partitions that existed when a new query began (`existing_first`) start at `startingOffsets`, later ones at their
    beginning.
    """
    asked = LATEST if options.starting is None else options.starting
    if asked == COMMITTED:
        # A committed offset would be a known position: the group has none for these partitions.
        asked = EARLIEST
    first = [partition for partition in fresh if partition in existing_first]
    # A partition added while the query ran or was stopped must not lose its first records.
    later = [partition for partition in fresh if partition not in existing_first]
    if isinstance(asked, dict):
        asked = {partition: offset for partition, offset in asked.items() if partition in first}
    elif isinstance(asked, Times) and isinstance(asked.at, dict):
        asked = replace(asked, at={partition: at for partition, at in asked.at.items() if partition in first})
    return {
        **resolve_offsets(consumer, first, asked, option="startingOffsets"),
        **resolve_offsets(consumer, later, EARLIEST, option="startingOffsets"),
    }


def choose_spans(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    horizon: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, Span]:
    """Return the spans that the next micro-batch may read: from each position to the end.

    `horizon`: ends that an AvailableNow run must not pass; `None` for other triggers.
    """
    spans: dict[TopicPartition, Span] = {}
    for partition, start in positions.items():
        end = ends[partition]
        assert start <= end, f"{partition} is at {start} and ends at {end}: its position is not settled"
        if horizon is not None:
            # Another member may have read beyond the horizon; a partition newer than the run has no horizon.
            end = max(start, min(end, horizon.get(partition, 0)))
        spans[partition] = Span(start, end)
    return spans


def join(partitions: set[TopicPartition]) -> str:
    """Join partitions by commas for a message."""
    return ", ".join(map(str, sorted(partitions)))


#: By default longer spans are split, so that a few large partitions keep every core busy.
RECORDS_PER_TASK: Final = 2_500_000
#: By default short spans are joined to tasks of so many records, which take 50 ms at least: a task costs 10 ms itself.
_LEAST_PER_TASK: Final = 50_000
#: And to no longer ones, so that a cluster has work for more cores than the planner's machine has.
_MOST_PER_JOINED_TASK: Final = 500_000
#: A partition costs a task as much as so many records.
_RECORDS_PER_SPAN: Final = 100


# The pieces of a partition follow each other without a gap. Only the last of a partition may end at whatever the log's
# end is when its task runs, and only the first may start at whatever the log's start is then.
def plan_tasks(
    spans: Mapping[TopicPartition, Span],
    options: SourceOptions,
    *,
    open_starts: frozenset[TopicPartition] = frozenset(),
    open_ends: frozenset[TopicPartition] = frozenset(),
    topic_ids: Mapping[str, str] | None = None,
) -> list[SpansToRead]:
    """Plan the tasks of a batch, by partition and offset; a partition without records gives none.

    Args:
        open_starts: partitions that are read from wherever their log begins when the task runs.
        open_ends: partitions that are read up to wherever their log ends when the task runs, even if empty now.
        topic_ids: topic -> id, by which a task notices that its topic was recreated.
    """
    pieces: list[tuple[SpanToRead, int]] = []
    for partition, parts in split_spans(spans, options).items():
        edges = [*(part.start for part in parts), parts[-1].end]
        if partition in open_starts:
            edges[0] = EARLIEST
        if partition in open_ends:
            edges[-1] = LATEST
        if parts[-1].size or partition in open_ends:
            sizes = [part.size for part in parts]
            pieces += zip((SpanToRead(*partition, low, high) for low, high in pairwise(edges)), sizes, strict=True)
    ids = {topic: topic_id for topic, topic_id in (topic_ids or {}).items() if topic_id}
    return [
        SpansToRead(joined, {each.topic: ids[each.topic] for each in joined if each.topic in ids})
        for joined in join_pieces(pieces, options, cores=os.cpu_count() or 1)
    ]


def join_pieces(
    pieces: Sequence[tuple[SpanToRead, int]], options: SourceOptions, *, cores: int
) -> list[list[SpanToRead]]:
    """Join short pieces, in order, to tasks of about `kohort.targetTaskRecords`; a long piece is a task of its own.

    Args:
        pieces: spans with their numbers of records.
        cores: by default a batch has no fewer tasks, unless one would take less than 50 ms.
    """
    asked, least = options.own["kohort_targetTaskRecords"], options.own["minPartitions"] or 1
    weights = [max(1, size) if asked else size + _RECORDS_PER_SPAN for _, size in pieces]
    target = asked or max(_LEAST_PER_TASK, min(_MOST_PER_JOINED_TASK, -(-sum(weights) // cores)))
    short = [index for index, weight in enumerate(weights) if weight < target]
    work = sum(weights[index] for index in short)
    # The nearest number: a little more than one task's work is one task.
    count = max(1, (2 * work + target) // (2 * target))
    if not asked and count > cores:
        # As many in each round of the cores.
        count = -(-count // cores) * cores
    count = min(len(short), max(count, least - (len(pieces) - len(short))))
    bounds = _bounds([weights[index] for index in short], count)
    most: int | None = options.own["maxRecordsPerPartition"]
    tasks: dict[int, list[SpanToRead]] = {
        index: [piece] for index, (piece, _) in enumerate(pieces) if weights[index] >= target
    }
    for low, high in pairwise(bounds):
        joined: list[SpanToRead] = []
        records = 0
        for index in short[low:high]:
            piece, size = pieces[index]
            # A partition comes up in a task once: a long piece between two short ones of it parts them.
            is_same = bool(joined) and joined[-1][:2] == piece[:2]
            is_parted = is_same and joined[-1].end != piece.start
            if not joined or is_parted or (most is not None and records + size > most):
                joined = []
                tasks[index] = joined
                records = 0
            records += size
            if joined and is_same:
                joined[-1] = joined[-1]._replace(end=piece.end)
            else:
                joined.append(piece)
    return [tasks[index] for index in sorted(tasks)]


def _bounds(weights: Sequence[int], count: int) -> list[int]:
    """Return the bounds of `count` runs of neighbours, none empty, of about equal weight."""
    if not count:
        return [0]
    total, bounds, done = sum(weights), [0], 0
    for index, weight in enumerate(weights):
        runs_left = count - len(bounds)
        # A run ends where it is nearest to its share.
        is_full = (2 * done + weight) * count >= 2 * total * len(bounds)
        if runs_left and index > bounds[-1] and (is_full or len(weights) - index == runs_left):
            bounds.append(index)
        done += weight
    return [*bounds, len(weights)]


def split_spans(spans: Mapping[TopicPartition, Span], options: SourceOptions) -> dict[TopicPartition, list[Span]]:
    """Split each span into pieces of nearly equal length, in order; an empty span stays one piece."""
    most = options.own["maxRecordsPerPartition"]
    if most is None and options.own["minPartitions"] is None:
        most = RECORDS_PER_TASK
    parts = {partition: 1 if most is None else max(1, -(-span.size // most)) for partition, span in spans.items()}
    if options.own["minPartitions"] is not None:
        parts = _raise_to(options.own["minPartitions"], spans, parts)
    return {partition: _cut(span, parts[partition]) for partition, span in sorted(spans.items())}


def _raise_to(
    least: int, spans: Mapping[TopicPartition, Span], parts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Raise the numbers of parts, of the largest spans first, to about `least` in total."""
    sizes = {partition: span.size / parts[partition] for partition, span in spans.items() if span.size > 0}
    count = sum(parts[partition] for partition in sizes)
    if count >= least:
        return dict(parts)
    total = sum(spans[partition].size for partition in sizes)
    # Spans that stay whole are left out when the other spans share the remaining parts.
    whole = {partition for partition, size in sizes.items() if _round(size / total * least) <= 1}
    rest = sum(spans[partition].size for partition in sizes.keys() - whole)
    left = max(least - sum(parts[partition] for partition in whole), 1)
    more = {
        partition: parts[partition] * max(1, _round(sizes[partition] / rest * left))
        for partition in sizes.keys() - whole
    }
    return {**parts, **more}


def _round(number: float) -> int:
    """Round as Java does: halves go up."""
    return int(number + 0.5)


def _cut(span: Span, parts: int) -> list[Span]:
    parts = min(parts, max(1, span.size))
    edges = [span.start + span.size * part // parts for part in range(parts + 1)]
    return [Span(low, high) for low, high in pairwise(edges)]


class BatchLimits:
    """The limits of a batch; Spark passes one of them to the source, but all that are set apply."""

    def __init__(self, options: SourceOptions) -> None:
        self._max_offsets = options.own["maxOffsetsPerTrigger"]
        least, most = options.own["minOffsetsPerTrigger"], options.own["maxBytesPerTrigger"]
        delay_ms = options.max_trigger_delay_ms
        #: `None` if a batch may be as small as the available records.
        self._delay = None if least is None else BatchDelay(min_offsets=least, max_delay_ms=delay_ms)
        #: `None` if a batch may have any number of bytes.
        self._bytes = None if most is None else BytesCap(options, max_bytes=most)

    def apply(
        self, spans: Mapping[TopicPartition, Span], *, may_wait: bool, now_s: float
    ) -> dict[TopicPartition, Span]:
        """Return the part of all available spans that the next batch reads; empty spans mean to wait."""
        if may_wait and self._delay is not None and self._delay.hold_back(spans, now_s=now_s):
            return {partition: Span(span.start, span.start) for partition, span in spans.items()}
        limited = share_limit(spans, self._max_offsets)
        return limited if self._bytes is None else self._bytes.cap(limited)

    def close(self) -> None:
        """Close the consumer that measured record sizes, if one was opened."""
        if self._bytes is not None:
            self._bytes.close()


class BatchDelay:
    """The wait for enough records before a batch, for a limited time; a run's first batch never waits."""

    def __init__(self, *, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_ms / 1000
        #: When the last batch was planned; `None` before the first.
        self._last_s: float | None = None

    def hold_back(self, spans: Mapping[TopicPartition, Span], *, now_s: float) -> bool:
        """Return whether the next batch should wait, given all available spans."""
        available = sum(span.size for span in spans.values())
        is_late = self._last_s is None or now_s - self._last_s >= self._max_delay_s
        if available < self._min_offsets and not is_late:
            return True
        self._last_s = now_s
        return False


#: The most bytes of a partition in one fetch response, when record sizes are measured.
_LOOK_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.2
_COLUMNS: Final = ("key", "value", "headers")
#: If the backlog is estimated below this fraction of the cap, record sizes are not measured again.
_FAR_BELOW: Final = 0.5


# `maxBytesPerTrigger` is an option of Spark's file and Delta sources, not of its Kafka source. The size of records is
# measured on the first fetch of a partition's span, and reused while the backlog is far below the cap. Each partition
# gets at least one record, or a query with a small cap would never advance.
class BytesCap:
    """`maxBytesPerTrigger` of one query: about so many bytes of keys, values and headers."""

    def __init__(self, options: SourceOptions, *, max_bytes: int) -> None:
        self._options = options
        self._max_bytes = max_bytes
        #: Made on first use, and kept.
        self._consumer: Consumer | None = None
        #: partition -> average bytes of a record.
        self._sizes: dict[TopicPartition, float] = {}

    def cap(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Span]:
        """Cap each span so that all of them together have about `max_bytes`.

        Raises:
            KohortTimeoutError: records could not be fetched for measuring in `kafka.default.api.timeout.ms`.
        """
        waiting = {partition: span for partition, span in spans.items() if span.size > 0}
        are_known = waiting.keys() <= self._sizes.keys()
        if not (are_known and weigh(waiting, self._sizes) < _FAR_BELOW * self._max_bytes):
            self._sizes.update(self._look(waiting))
        return share_limit(spans, self._max_bytes, self._sizes)

    def close(self) -> None:
        """Close the consumer, if there is one."""
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
            # The bytes of a binary column in Arrow include 4 bytes a value, for the position at which it begins.
            size_bytes: int = sum(batch.nbytes for batch in batches)
            return size_bytes / rows - 4 * len(_COLUMNS)
        if consumer.position(partition) >= span.end:
            # The span has no records: only transaction markers, or offsets that compaction has removed.
            return 0.0
    raise KohortTimeoutError(
        f"{partition} showed no record at offset {span.start} for {patience_s:g} s (kafka.default.api.timeout.ms), "
        "which maxBytesPerTrigger needs to see"
    ) from trouble


def weigh(spans: Mapping[TopicPartition, Span], sizes: Mapping[TopicPartition, float]) -> float:
    """Return the bytes of all records in the spans, by the average size of each partition's records."""
    return sum(span.size * sizes[partition] for partition, span in spans.items() if span.size > 0)
