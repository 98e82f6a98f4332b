"""What batches and streams plan alike: which partitions there are, where they start and end, which tasks read them.

Laws: offsets that are given as numbers are held against the log before a task starts, because a task that is sent
behind the end of a partition waits for records that may never come.
Source: `subscribe`, `assign` and the JSON of offsets as Spark's Kafka source reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kohort.client.consumer.consumer import Consumer
from kohort.errors import ConfigError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.spark.offsets import RecordsLostError, Span, share_limit, split_spans
from kohort.spark.options import EARLIEST, LATEST, Offsets, SourceOptions
from kohort.spark.reading import SpanToRead

#: Longer spans are cut, so that a few large partitions keep every core busy.
RECORDS_PER_TASK: Final = 2_500_000


def find_partitions(consumer: Consumer, options: SourceOptions) -> list[TopicPartition]:
    """Every partition of `subscribe`, or those of `assign` if they exist; in order.

    Raises:
        UnknownTopicError: a topic does not exist.
        ConfigError: `assign` names a partition that its topic does not have.
    """
    topics = options.topics or sorted({partition.topic for partition in options.partitions})
    found: list[TopicPartition] = []
    for topic in topics:
        numbers = consumer.partitions_for(topic)
        if not numbers:
            raise UnknownTopicError(topic)
        found += [TopicPartition(topic, number) for number in numbers]
    if options.partitions:
        missing = set(options.partitions) - set(found)
        if missing:
            raise ConfigError(f"assign names partitions that do not exist: {join(missing)}")
        found = list(options.partitions)
    return sorted(found)


def resolve_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], asked: Offsets, *, option: str
) -> dict[TopicPartition, int]:
    """Numbers for `EARLIEST` and `LATEST`; a JSON of offsets must name every partition, as Spark demands."""
    if isinstance(asked, dict):
        check_names(partitions, asked, option=option)
    by_partition = asked if isinstance(asked, dict) else dict.fromkeys(partitions, asked)
    first = [partition for partition in partitions if by_partition[partition] == EARLIEST]
    # The end of a partition whose offset is a number is asked for as well, to hold the number against it.
    others = [partition for partition in partitions if by_partition[partition] != EARLIEST]
    firsts, ends = consumer.beginning_offsets(first), consumer.end_offsets(others)
    found: dict[TopicPartition, int] = {}
    for partition in partitions:
        offset = by_partition[partition]
        if offset == EARLIEST:
            found[partition] = firsts[partition]
        elif offset == LATEST:
            found[partition] = ends[partition]
        elif offset > ends[partition]:
            raise ConfigError(f"{option}: {partition} has no offset {offset}, it ends at {ends[partition]}")
        else:
            found[partition] = offset
    return found


def check_names(
    partitions: Sequence[TopicPartition],
    named: Mapping[TopicPartition, int],
    *,
    option: str,
    surplus_only: bool = False,
) -> None:
    """`ConfigError` where a JSON of offsets does not name exactly these partitions."""
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
    """Where partitions of a stream start that nobody has begun.

    `startingOffsets` for what there was when a new query began, `existing_first`; what appeared later from its
    beginning: a partition that was added while the query ran or was stopped would lose its first records otherwise.
    """
    asked = LATEST if options.starting is None else options.starting
    first = [partition for partition in fresh if partition in existing_first]
    later = [partition for partition in fresh if partition not in existing_first]
    if isinstance(asked, dict):
        asked = {partition: offset for partition, offset in asked.items() if partition in first}
    return {
        **resolve_offsets(consumer, first, asked, option="startingOffsets"),
        **resolve_offsets(consumer, later, EARLIEST, option="startingOffsets"),
    }


def choose_spans(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    horizon: Mapping[TopicPartition, int] | None,
    limit: int | None,
) -> dict[TopicPartition, Span]:
    """The next micro-batch: from where each partition stands to its end, under the limit.

    Args:
        positions: where each partition goes on.
        ends: of the same partitions, now.
        horizon: ends that an AvailableNow run must not pass; `None` for other triggers.
        limit: records of the batch; `None` for no limit.

    Raises:
        RecordsLostError: a partition ends before its position.
    """
    spans: dict[TopicPartition, Span] = {}
    for partition, start in positions.items():
        end = ends[partition]
        if start > end:
            raise RecordsLostError(partition, start, f"it ends at {end}")
        if horizon is not None:
            # Another member may have read on behind it; a partition that is younger than the run has none.
            end = max(start, min(end, horizon.get(partition, 0)))
        spans[partition] = Span(start, end)
    return share_limit(spans, limit)


def plan_tasks(spans: Mapping[TopicPartition, Span]) -> list[SpanToRead]:
    """Spans as tasks; a partition without records gives none."""
    return [
        SpanToRead(topic=partition.topic, partition=partition.partition, start=span.start, end=span.end)
        for partition, span in split_spans(spans, records_per_task=RECORDS_PER_TASK)
    ]


def join(partitions: set[TopicPartition]) -> str:
    """Partitions for a sentence."""
    return ", ".join(map(str, sorted(partitions)))
