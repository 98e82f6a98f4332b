"""Offsets of a query: their JSON in Spark's checkpoint, the ranges that it names, and progress.

Laws: an offset says for each partition from where to where its batch reads, so that a replay needs nothing else;
the same state always gives the same text, because Spark compares offsets as text. Offsets of an older kohort and of
Spark's own Kafka source are read, newer ones and those of another source are refused.
Source: between two batches a partition may come from another query, so its start need not be this query's last end;
Spark's Kafka source writes `{"orders": {"0": next}}`, and calls itself KafkaV2[Subscribe[orders]].
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kohort.errors import KohortError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


#: The offset that Spark stores, as `to_json` makes it.
OffsetJson = dict[str, Any]

#: The version that `to_json` writes. The first had no number: topic -> partition -> {"from": offset, "to": offset}.
VERSION: Final = 2
#: The key of the version; a topic of that name has a dictionary there, never a number.
_VERSION_KEY: Final = "kohort"


class Span(NamedTuple):
    """Offsets `start` to `end`, the latter not included."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; a compacted log may have fewer records."""
        return self.end - self.start


class RecordsLostError(KohortError):
    """A partition does not have the offset at which the query would continue."""

    def __init__(self, partition: TopicPartition, offset: int, why: str) -> None:
        super().__init__(partition, offset, why)
        self.partition = partition
        self.offset = offset
        self.why = why

    def __str__(self) -> str:
        return (
            f"{self.partition} cannot be read at offset {self.offset}: {self.why}; records were deleted before they "
            "were read, or the topic was made anew. To go on without them start the query with failOnDataLoss=false"
        )


class CheckpointError(KohortError):
    """The checkpoint holds offsets of another source, or of a newer kohort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffset:
    """An offset of a query, parsed."""

    #: The spans that the batch reads; for a partition that it does not read, an empty span at the query's position.
    spans: dict[TopicPartition, Span]
    #: The query's name in its group, for the life of its checkpoint; `None` without a group, or before version 2.
    name: str | None = None
    #: partition -> offset at which the query last took it over from the group; empty without a group.
    since: dict[TopicPartition, int] = field(default_factory=dict)
    #: partition -> number of offsets set from outside that the query has followed (externalOffsets); absent if 0.
    orders: dict[TopicPartition, int] = field(default_factory=dict)
    #: topic -> id of the topic that was read under that name; absent if the broker has no topic ids.
    topic_ids: dict[str, str] = field(default_factory=dict)
    #: Whether the JSON has starts: Spark's own source writes ends only, which are parsed as empty spans.
    has_starts: bool = True

    def outdated_by(self, end: QueryOffset) -> set[str]:
        """Return the topics that were recreated between this offset and `end`."""
        return {topic for topic, known in self.topic_ids.items() if end.topic_ids.get(topic, known) != known}

    def following(self, start: QueryOffset) -> dict[TopicPartition, Span]:
        """Return the spans that the batch from `start` to this offset reads."""
        if self.has_starts:
            return self.spans
        return {
            partition: Span(start.spans.get(partition, span).end, span.end) for partition, span in self.spans.items()
        }


def to_json(
    spans: Mapping[TopicPartition, Span],
    *,
    name: str | None = None,
    since: Mapping[TopicPartition, int] | None = None,
    orders: Mapping[TopicPartition, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    external: Mapping[TopicPartition, Span] | None = None,
) -> OffsetJson:
    """Build the offset for these spans, in order of topic and partition; see `QueryOffset` for its fields.

    `external`: the moves of the query by group offsets that were set from outside, for readers of its progress.

    >>> to_json({TopicPartition("orders", 0): Span(3, 7)}, name="q-1", since={TopicPartition("orders", 0): 3})
    {'kohort': 2, 'name': 'q-1', 'topics': {'orders': {'0': {'from': 3, 'to': 7, 'since': 3}}}}
    """
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, partition), span in sorted(spans.items()):
        said = {"from": span.start, "to": span.end}
        for word, numbers in (("since", since), ("orders", orders)):
            if numbers is not None and (topic, partition) in numbers:
                said[word] = numbers[TopicPartition(topic, partition)]
        topics.setdefault(topic, {})[str(partition)] = said
    offset: OffsetJson = {_VERSION_KEY: VERSION}
    if name is not None:
        offset["name"] = name
    offset["topics"] = topics
    if topic_ids:
        offset["ids"] = dict(sorted(topic_ids.items()))
    if external:
        offset["external"] = to_json(external)["topics"]
    return offset


def from_json(offset: OffsetJson | None) -> QueryOffset:
    """Parse an offset of `to_json`, of its former version, or of Spark's Kafka source.

    Raises:
        CheckpointError: the offset is neither kohort's nor Spark's, or a newer kohort wrote it.
    """
    try:
        given = offset or {}
        version = given.get(_VERSION_KEY)
        if not isinstance(version, int):
            return _parse_first_form(given)
        if version > VERSION:
            raise CheckpointError(
                f"this checkpoint was written by a newer kohort (offsets of version {version}, this one reads up to "
                f"{VERSION}): run the query with that version, or start it with another checkpointLocation"
            )
        name, ids = given.get("name"), given.get("ids", {})
        if not (name is None or isinstance(name, str)) or not all(isinstance(each, str) for each in ids.values()):
            raise TypeError
        found = _by_partition(given["topics"])
        return QueryOffset(
            spans=_parse_spans(found),
            name=name,
            since=_parse_numbers(found, "since"),
            orders=_parse_numbers(found, "orders"),
            topic_ids=dict(ids),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(
            'this checkpoint was not written by format("kohort"), nor by format("kafka"): start the query with another '
            "checkpointLocation, and with startingOffsets where the old one ended"
        ) from None


def _parse_first_form(given: Mapping[str, Any]) -> QueryOffset:
    """Parse an offset without version: kohort's first form, or the ends of Spark's own source."""
    ends = _by_partition(given)
    if not ends or not all(map(_is_offset, ends.values())):
        return QueryOffset(spans=_parse_spans(ends))
    return QueryOffset(spans={each: Span(end, end) for each, end in ends.items()}, has_starts=False)


def _by_partition(topics: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, int(partition)): said
        for topic, partitions in topics.items()
        for partition, said in partitions.items()
    }


def _parse_spans(found: Mapping[TopicPartition, Mapping[str, object]]) -> dict[TopicPartition, Span]:
    return {each: Span(_to_offset(said["from"]), _to_offset(said["to"])) for each, said in found.items()}


def _parse_numbers(found: Mapping[TopicPartition, Mapping[str, object]], word: str) -> dict[TopicPartition, int]:
    return {each: _to_offset(said[word]) for each, said in found.items() if word in said}


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _to_offset(value: Any) -> int:
    if not _is_offset(value):
        raise TypeError
    return int(value)


def share_limit(
    available: Mapping[TopicPartition, Span], limit: int | None, sizes: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, Span]:
    """Cap a micro-batch at `limit` records, divided among partitions by backlog, at least one each.

    `sizes`: average bytes of a record, for each partition whose span is not empty; then the limit is in bytes.
    Source: Spark's `maxOffsetsPerTrigger`, and `maxBytesPerTrigger` of its file sources.
    """
    total = sum(span.size * (sizes[each] if sizes else 1) for each, span in available.items() if span.size > 0)
    if limit is None or total <= limit:
        return dict(available)
    # Records are whole numbers, and divide without the error of a float.
    divide = operator.floordiv if sizes is None else operator.truediv
    return {
        partition: Span(span.start, min(span.end, span.start + max(1, int(divide(span.size * limit, total)))))
        for partition, span in available.items()
    }


_SPARKS_OWN = "Kafka"


# A listener must not end a query because of another source's offset: a source that is neither kohort's nor Spark's
# Kafka source is ignored, and so is an offset that cannot be read.
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The position of one source of a query after a batch."""

    #: Partition -> the next offset that the query reads.
    ends: Mapping[TopicPartition, int]
    #: Partition -> its log end offset when the batch was planned, for the partitions that the query owned then.
    latest: Mapping[TopicPartition, int]
    #: Rows of the batch.
    records: int
    #: The query's name in its group; `None` without a group.
    name: str | None
    #: The end offset of the batch, in Spark's JSON.
    end: str

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The number of offsets, by partition, that existed at the plan and are not read yet."""
        return {
            partition: max(0, latest - self.ends.get(partition, latest)) for partition, latest in self.latest.items()
        }


def read_sources(progress: StreamingQueryProgress) -> list[SourceState]:
    """Return the states of a query's Kafka sources, both kohort's and Spark's own."""
    return [state for source in progress.sources for state in _read_source(source)]


def _read_source(source: Mapping[str, Any]) -> Iterator[SourceState]:
    end = _parse(source["endOffset"])
    if end is None:
        return
    if not (isinstance(end.get(_VERSION_KEY), int) or str(source["description"]).startswith(_SPARKS_OWN)):
        return
    try:
        offset: QueryOffset = from_json(end)
        latest = from_json(_parse(source["latestOffset"])).spans
    except CheckpointError:
        return
    yield SourceState(
        ends={partition: span.end for partition, span in offset.spans.items()},
        latest={partition: span.end for partition, span in latest.items()},
        records=source["numInputRows"],
        name=offset.name,
        end=source["endOffset"],
    )


def _parse(text: object) -> dict[str, Any] | None:
    """Parse an offset; return `None` for a missing one (null from Spark, None from py4j)."""
    try:
        found = json.loads(str(text))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
