"""Planning common to batches and streams: the partitions, their starts and their ends.

Laws: topics are looked up anew with every plan, and never created. Offsets that are given as numbers are checked
against the log before a task starts, because a task sent behind the end of a partition waits for records that may
never come.
Source: `subscribe`, `subscribePattern`, `assign`, the JSON of offsets and of timestamps as Spark's Kafka source reads
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kohort.client.consumer.consumer import Consumer
from kohort.client.records import ListedTopic
from kohort.errors import ConfigError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.option_values import COMMITTED, EARLIEST, LATEST, Offsets, Times
from kohort.spark.options import SourceOptions


def find_topics(consumer: Consumer, options: SourceOptions) -> dict[str, ListedTopic]:
    """Find the topics that are read now, with their ids.

    Raises:
        UnknownTopicError: one that `subscribe` or `assign` names does not exist. A pattern may match none.
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
    """Find every partition of the topics, or those of `assign` if they exist; in order.

    Raises:
        UnknownTopicError: a topic does not exist.
        ConfigError: `assign` names a partition that its topic does not have.
    """
    return partitions_of(find_topics(consumer, options), options)


def partitions_of(topics: Mapping[str, ListedTopic], options: SourceOptions) -> list[TopicPartition]:
    """Find the partitions as `find_partitions` does, of topics that were found."""
    found = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if options.partitions:
        missing = set(options.partitions) - set(found)
        if missing:
            raise ConfigError(f"assign names partitions that do not exist: {join(missing)}")
        found = list(options.partitions)
    return sorted(found)


def find_renewed(topics: Mapping[str, ListedTopic], known_ids: Mapping[str, str]) -> set[str]:
    """Find deleted and recreated topics: their ids differ from those that were read."""
    return {
        name for name, topic in topics.items() if topic.topic_id and known_ids.get(name, "") not in ("", topic.topic_id)
    }


def resolve_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], asked: Offsets, *, option: str
) -> dict[TopicPartition, int]:
    """Resolve words and timestamps to offsets; a JSON must name every partition, as Spark demands.

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
    """Find the start of a stream's partitions that no query has begun.

    Partitions that existed when a new query began (`existing_first`) start at `startingOffsets`, later ones at their
    beginning.
    """
    asked = LATEST if options.starting is None else options.starting
    if asked == COMMITTED:
        # Where the group stands is known by now; here it has never stood.
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

    Args:
        positions: where each partition goes on.
        ends: of the same partitions, now.
        horizon: ends that an AvailableNow run must not pass; `None` for other triggers.
    """
    spans: dict[TopicPartition, Span] = {}
    for partition, start in positions.items():
        end = ends[partition]
        assert start <= end, f"{partition} is at {start} and ends at {end}: its position is not settled"
        if horizon is not None:
            # Another member may have read on behind it; a partition that is younger than the run has none.
            end = max(start, min(end, horizon.get(partition, 0)))
        spans[partition] = Span(start, end)
    return spans


def join(partitions: set[TopicPartition]) -> str:
    """Join partitions for a sentence."""
    return ", ".join(map(str, sorted(partitions)))
