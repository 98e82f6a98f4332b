"""Who was handed what, and how far everybody has got: what the clients' laws are held against.

Laws held here, by name:
- `HandedOutOnce`: while a reader owns a partition its records come in the order of the log, each once, none left out.
- `OwnedOnly`: nothing is handed out of a partition that is not owned, none of one whose callback has said that it goes.
- `NothingSkipped`: where an owner begins, somebody of the group had been handed all that is before.
- `NoCommitBeyondDone`: what is committed was handed out, and the application was back for more or has said so itself.
Source: users@kafka 2014-07-16; Kafka's consumer API, delivery semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.errors import InvariantViolation
from kohort.ids import TopicPartition
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
    #: How many records were handed out.
    count: int = 0

    def check_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Compare with what the coordinator has."""
        for each, offset in committed.items():
            if each.topic != FLEETING and offset > self.done.get(each, 0):
                why = f"group {self.group_id} has committed {offset} of {each}, done is {self.done.get(each, 0)}"
                raise LawBroken("NoCommitBeyondDone", why)


class Ownership:
    """What one consumer owns, and where it is in it."""

    def __init__(self, name: str, group: GroupLedger) -> None:
        self.name = name
        self.group = group
        #: Partition -> next offset; `None` before the first record of this ownership.
        self.next: dict[TopicPartition, int | None] = {}
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

    def take(self, partition: TopicPartition, offset: int) -> None:
        """A record was handed out."""
        if partition not in self.next:
            raise LawBroken(
                "OwnedOnly", f"{self.name} was handed offset {offset} of {partition}, which it does not own"
            )
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
