"""What a stream has to know and to say about its partitions; and the simple case: all of them, without a group.

Laws: the caller is one thread; it says `finish` with what Spark has committed before it plans again.
Source: architecture, journey of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from kohort.client.consumer.consumer import Consumer
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import SourceOptions
from kohort.spark.planning import find_partitions

Spans = dict[TopicPartition, Span]
#: Picks the next batch among partitions that may be read.
Choose = Callable[[set[TopicPartition]], Spans]


class Ownership(Protocol):
    """Who owns which partitions, and how far they are read."""

    #: Answers questions about offsets; holds the connection.
    consumer: Consumer
    #: Whether the run ends where the topics end now (AvailableNow): then it waits until it owns something.
    is_bounded: bool

    def plan(self, choose: Choose) -> Spans:
        """Let `choose` pick spans among the partitions that may be read now; they are in flight from here on."""
        ...

    def resume(self, spans: Mapping[TopicPartition, Span]) -> Spans:
        """A batch that an earlier run has planned is read again: what of it is still to be read."""
        ...

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Spark has committed the batch of `spans`."""
        ...

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these partitions go on, without those that nobody has begun."""
        ...

    def start_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Where partitions start that nobody has begun."""
        ...

    def check(self) -> None:
        """Raise what has ended the ownership, if anything has."""
        ...

    def close(self) -> None:
        """Leave; the partitions are free at once."""
        ...


class EveryPartition:
    """Without a group: all partitions, always; nothing is committed anywhere but in Spark's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.is_bounded = False
        self.consumer = Consumer.from_config({**options.client, "enable.auto.commit": False})
        #: partition -> offset at which it goes on.
        self._ends: dict[TopicPartition, int] = {}

    def plan(self, choose: Choose) -> Spans:
        """Everything may be read, partitions that were added since included."""
        return choose(set(find_partitions(self.consumer, self._options)))

    def resume(self, spans: Mapping[TopicPartition, Span]) -> Spans:
        """Nobody else could have read any of it."""
        return dict(spans)

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """The checkpoint knows it already."""
        self._ends.update({partition: span.end for partition, span in spans.items()})

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the checkpoint says."""
        return {partition: self._ends[partition] for partition in partitions if partition in self._ends}

    def start_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """The checkpoint will know it with the next batch."""
        self._ends.update(starts)

    def check(self) -> None:
        """Nothing can end it."""

    def close(self) -> None:
        """Close the connection."""
        self.consumer.close(timeout=5.0)
