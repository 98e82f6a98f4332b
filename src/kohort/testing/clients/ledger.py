"""Who was handed what, and how far everybody has got: what the clients' laws are held against.

Laws held here, by name:
- `HandedOutOnce`: while a reader owns a partition its records come in the order of the log, each once, none left out.
- `OwnedOnly`: nothing is handed out of a partition that is not owned, none of one whose callback has said that it goes.
- `FreedIsLetGo`: nothing is handed out of what the coordinator has freed, since it has not heard of the reader for a
  session: whoever is silent or cut off lets go first.
- `NothingSkipped`: where an owner begins, somebody of the group had been handed all that is before.
- `OffsetsOfTheirTopic`: what is committed of a topic that was made again was handed out of this one, not of the
  one that had its name before.
- `NoCommitBeyondDone`: what is committed was handed out, and the application was back for more or has said so itself.
Source: users@kafka 2014-07-16; Kafka's consumer API, delivery semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.coordinator.records import OffsetCommitted
from kohort.errors import InvariantViolation
from kohort.ids import TopicId, TopicPartition
from kohort.testing.clients.plan import FLEETING


class LawBroken(InvariantViolation):
    """A law of the clients did not hold; the world adds the story."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")


@dataclass(slots=True)
class GroupLedger:
    """One group, over all readers that ever were in it."""

    group_id: str
    #: Partition -> offset up to which everything was handed out to somebody.
    handed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partition -> highest offset below which some owner was done.
    done: dict[TopicPartition, int] = field(default_factory=dict)
    #: (topic id, partition) -> end of what was handed out, of the topic that is deleted and made again.
    handed_by_id: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    #: How many records were handed out.
    count: int = 0

    def check_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Compare with what the coordinator has."""
        for each, offset in committed.items():
            if each.topic != FLEETING and offset > self.done.get(each, 0):
                why = f"group {self.group_id} has committed {offset} of {each}, done is {self.done.get(each, 0)}"
                raise LawBroken("NoCommitBeyondDone", why)

    def note_handed(self, topic_id: TopicId, partition: int, offset: int) -> None:
        """A record of that topic was handed out."""
        place = topic_id, partition
        if offset > self.handed_by_id.get(place, 0):
            why = f"{self.group_id} was handed offset {offset} of {FLEETING}-{partition}, but none before it"
            raise LawBroken("NothingSkipped", f"{why}: the topic was made again")
        self.handed_by_id[place] = max(self.handed_by_id.get(place, 0), offset + 1)

    def check_fleeting(self, committed: Iterable[OffsetCommitted]) -> None:
        """Compare with what the coordinator has of the topic that is deleted and made again."""
        for each in committed:
            handed = self.handed_by_id.get((each.topic_id, each.partition), 0)
            if each.offset > handed:
                why = f"group {self.group_id} has committed {each.offset} of {each.topic}-{each.partition} under its "
                raise LawBroken("OffsetsOfTheirTopic", f"{why}present id; {handed} were handed out of that")


class Ownership:
    """What one consumer owns, and where it is in it."""

    def __init__(self, name: str, group: GroupLedger) -> None:
        self.name = name
        self.group = group
        #: Partition -> next offset; `None` before the first record of this ownership.
        self.next: dict[TopicPartition, int | None] = {}
        #: Those of them that the coordinator has freed, and why.
        self.freed: dict[TopicPartition, str] = {}
        #: How often it has changed.
        self.changes = 0

    def gain(self, partitions: Iterable[TopicPartition]) -> None:
        """`on_assigned` was called."""
        self.changes += 1
        for each in partitions:
            if each in self.next:
                raise LawBroken("OwnedOnly", f"{self.name} is given {each}, which it owns")
            self.next[each] = None

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """`on_revoked` or `on_lost` was called."""
        self.changes += 1
        for each in partitions:
            if each not in self.next:
                raise LawBroken("OwnedOnly", f"{self.name} is to give up {each}, which it does not own")
            del self.next[each]
            self.freed.pop(each, None)

    def free(self, why: str) -> None:
        """The coordinator gives everything to others from now on."""
        self.freed = dict.fromkeys(self.next, why)

    def take(self, partition: TopicPartition, offset: int) -> None:
        """A record was handed out."""
        if partition not in self.next:
            raise LawBroken(
                "OwnedOnly", f"{self.name} was handed offset {offset} of {partition}, which it does not own"
            )
        if partition in self.freed:
            why = f"{self.name} was handed offset {offset} of {partition}, though {self.freed[partition]}"
            raise LawBroken("FreedIsLetGo", why)
        self.group.count += 1
        if partition.topic == FLEETING:
            # A topic of that name has come and gone: its offsets say nothing.
            return
        expected, handed = self.next[partition], self.group.handed.get(partition, 0)
        if expected is None:
            if offset > handed:
                why = f"{self.name} begins {partition} at {offset}, but nobody of its group was handed {handed}"
                raise LawBroken("NothingSkipped", why)
        elif offset != expected:
            why = f"{self.name} was handed offset {offset} of {partition} where {expected} is next"
            raise LawBroken("HandedOutOnce", why)
        self.next[partition] = offset + 1
        self.group.handed[partition] = max(handed, offset + 1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The application goes on there."""
        self.next[partition] = offset

    def finish(self) -> None:
        """The application is done with everything that it was handed."""
        done = self.group.done
        for each, offset in self.next.items():
            if offset is not None:
                done[each] = max(done.get(each, 0), offset)
