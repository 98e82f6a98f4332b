"""The ownership of a stream's partitions, and its simple case: all partitions, without a group.

Laws: the caller is one thread. With every plan it tells the end of the batches that Spark has finished.
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
#: partition -> id of its topic, empty where the broker has none; of all that is there, in order.
Existing = Mapping[TopicPartition, str]
#: Picks the next batch: a span for each of these places, which may be read now.
Choose = Callable[[Places], Spans]


class Ownership(Protocol):
    """The ownership of partitions, and how far they are read."""

    #: Answers questions about offsets; holds the connection.
    consumer: Consumer
    #: Everything was given up as the driver wanted: nothing is to be planned any more.
    has_drained: bool

    def plan(self, start: QueryOffset, existing: Existing, choose: Choose, *, renewed: Collection[str] = ()) -> Plan:
        """Plan a batch behind `start`, which is finished; `choose` picks among the owned partitions.

        `renewed`: topics that were made anew since `start`.
        """
        ...

    def note_planned(self, end: OffsetJson) -> None:
        """Note the offset of the end of the last planned batch."""
        ...

    def note_logged(self) -> None:
        """Note that Spark has written the last planned end into its log."""
        ...

    def resume(self, start: QueryOffset, end: QueryOffset, existing: Existing, renewed: Collection[str]) -> Spans:
        """Return the spans still to be read of a batch that an earlier run has planned."""
        ...

    def check(self) -> None:
        """Raise the error that has ended the ownership, if there is one."""
        ...

    def close(self) -> None:
        """Leave, within a few seconds."""
        ...


class EveryPartition:
    """The ownership without a group: all partitions, with commits only in Spark's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self.has_drained = False
        self.consumer = Consumer.from_config({**options.client, "enable.auto.commit": False})
        #: partition -> offset at which it goes on.
        self._ends: dict[TopicPartition, int] = {}

    def plan(self, start: QueryOffset, existing: Existing, choose: Choose, *, renewed: Collection[str] = ()) -> Plan:
        """Plan a batch over all partitions, those added since included."""
        self._ends.update({partition: span.end for partition, span in start.spans.items()})
        places: Places = dict.fromkeys(existing)
        for partition in places.keys() & self._ends.keys():
            end = self._ends[partition]
            places[partition] = Place(end, None, (), end)
        spans = choose(places)
        # A partition that has just been begun is begun, though the checkpoint hears of it with the next batch.
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
        """Close the connection."""
        self.consumer.close(timeout=5.0)
