"""The ownership of a stream's partitions, and its simple case: all partitions, without a group.

Laws: the caller is one thread. With every plan it passes the end of the batches that Spark has finished.
Source: architecture, journey of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from kohort.client.consumer.consumer import Consumer
from kohort.ids import TopicPartition
from kohort.spark.member.lineage import Place
from kohort.spark.member.requests import Places, Plan
from kohort.spark.offsets import OffsetJson, QueryOffset, Span
from kohort.spark.options import SourceOptions

Spans = dict[TopicPartition, Span]
#: partition -> id of its topic, empty if the broker has none; all existing partitions, sorted.
Existing = Mapping[TopicPartition, str]
#: Chooses the next batch: a span for each of these positions.
Choose = Callable[[Places], Spans]


class Ownership(Protocol):
    """The ownership of partitions, and how far they are read."""

    #: Looks up topics and offsets, and has the connections.
    consumer: Consumer
    #: Whether all partitions were given up at the driver's request; no more batches are planned then.
    has_drained: bool

    def plan(self, start: QueryOffset, existing: Existing, choose: Choose, *, renewed: Collection[str] = ()) -> Plan:
        """Plan the batch after `start`, which is finished; `choose` gets the owned partitions' positions.

        `renewed`: topics that were recreated since `start`.
        """
        ...

    def note_planned(self, end: OffsetJson) -> None:
        """Note the offset of the end of the last planned batch."""
        ...

    def note_logged(self) -> None:
        """Note that Spark has written the last planned end to its offset log."""
        ...

    def resume(self, start: QueryOffset, end: QueryOffset, existing: Existing, renewed: Collection[str]) -> Spans:
        """Return the spans still to be read in a batch that an earlier run has planned."""
        ...

    def check(self) -> None:
        """Raise the error that has ended the ownership, if there is one."""
        ...

    def close(self) -> None:
        """Leave the group, if there is one, and close the connections, within a few seconds."""
        ...


class EveryPartition:
    """The ownership without a group: all partitions, with commits only in Spark's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self.has_drained = False
        self.consumer = Consumer.from_config({**options.client, "enable.auto.commit": False})
        #: partition -> the next offset to read.
        self._ends: dict[TopicPartition, int] = {}

    def plan(self, start: QueryOffset, existing: Existing, choose: Choose, *, renewed: Collection[str] = ()) -> Plan:
        """Plan a batch over all partitions, those added since included."""
        self._ends.update({partition: span.end for partition, span in start.spans.items()})
        places: Places = dict.fromkeys(existing)
        for partition in places.keys() & self._ends.keys():
            end = self._ends[partition]
            places[partition] = Place(end, None, (), end)
        spans = choose(places)
        # A new partition keeps its start, even if the checkpoint does not have it before the next batch.
        self._ends.update({partition: span.start for partition, span in spans.items()})
        return Plan(spans=spans)

    def note_planned(self, end: OffsetJson) -> None:
        """Do nothing: without a group no other query depends on it."""

    def note_logged(self) -> None:
        """Do nothing: without a group no other query depends on it."""

    def resume(self, start: QueryOffset, end: QueryOffset, existing: Existing, renewed: Collection[str]) -> Spans:
        """Return the whole batch: without a group no other query reads these partitions."""
        return end.following(start)

    def check(self) -> None:
        """Do nothing: without a group nothing ends the ownership."""

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close(timeout=5.0)
