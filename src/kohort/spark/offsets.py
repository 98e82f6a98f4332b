"""Offsets of a query: the JSON that Spark keeps in its checkpoint, and the ranges that it means.

Laws: an offset says for each partition from where to where its batch reads, so that a replay needs nothing else;
the same state always gives the same text, because Spark compares offsets as text.
Source: a partition may come from another query between two batches, so its start is not the end of our last batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: What Spark stores: topic -> partition as text -> {"from": offset, "to": offset}.
OffsetJson = dict[str, dict[str, dict[str, int]]]


class Span(NamedTuple):
    """Offsets `start` to `end`, the latter not included."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; records may be fewer where a log was compacted."""
        return self.end - self.start


class RecordsLostError(KohortError):
    """A partition does not have the offset at which the query goes on."""

    def __init__(self, partition: TopicPartition, offset: int, why: str) -> None:
        super().__init__(partition, offset, why)
        self.partition = partition
        self.offset = offset
        self.why = why

    def __str__(self) -> str:
        return (
            f"{self.partition} cannot be read at offset {self.offset}: {self.why}; records were deleted before they "
            "were read, or the topic was created anew. To go on without them start the query with another checkpoint "
            "(and another group, or the group's offsets deleted) and startingOffsets"
        )


class CheckpointError(KohortError):
    """The checkpoint holds offsets of another source."""

    def __str__(self) -> str:
        return (
            'this checkpoint was not written by format("kohort"): start the query with another checkpointLocation, '
            "and with startingOffsets where the old one ended"
        )


def to_json(spans: Mapping[TopicPartition, Span]) -> OffsetJson:
    """The offset that stands for these spans, in order of topic and partition."""
    offset: OffsetJson = {}
    for (topic, partition), span in sorted(spans.items()):
        offset.setdefault(topic, {})[str(partition)] = {"from": span.start, "to": span.end}
    return offset


def from_json(offset: OffsetJson | None) -> dict[TopicPartition, Span]:
    """The inverse of `to_json`; nothing for the offset of a query that has not read yet.

    Raises:
        CheckpointError: it is no offset of ours.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): Span(span["from"], span["to"])
            for topic, partitions in (offset or {}).items()
            for partition, span in partitions.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError from None


def share_limit(available: Mapping[TopicPartition, Span], limit: int | None) -> dict[TopicPartition, Span]:
    """Cap a micro-batch at `limit` records, shared over partitions by their backlog, at least one each.

    Source: Spark's `maxOffsetsPerTrigger`.
    """
    total = sum(span.size for span in available.values())
    if limit is None or total <= limit:
        return dict(available)
    return {
        partition: Span(span.start, min(span.end, span.start + max(1, span.size * limit // total)))
        for partition, span in available.items()
    }


def split_spans(spans: Mapping[TopicPartition, Span], *, records_per_task: int) -> list[tuple[TopicPartition, Span]]:
    """Non-empty spans in order, those longer than `records_per_task` cut into pieces of nearly equal length."""
    pieces: list[tuple[TopicPartition, Span]] = []
    for partition, span in sorted(spans.items()):
        if span.size <= 0:
            continue
        parts = -(-span.size // records_per_task)
        edges = [span.start + span.size * part // parts for part in range(parts + 1)]
        pieces += [(partition, Span(low, high)) for low, high in pairwise(edges)]
    return pieces
