"""Records handed to each reader and the progress of each group: the base of the clients' laws.

Laws held here, by name:
- `HandedOutOnce`: while a reader owns a partition, it gets the records in the order of the log, each once, with no gap.
- `OwnedOnly`: a reader gets no record of a partition that it does not own, or whose revocation its callback was given.
- `FreedIsLetGo`: a reader gets no record of partitions that the coordinator has freed because the reader's session
  ended: a silent or disconnected reader stops reading before.
- `NothingSkipped`: an owner begins at an offset up to which members of the group have got all records.
- `OffsetsOfTheirTopic`: committed offsets of a re-created topic belong to records of this topic, not of the former one
  with its name.
- `UnreadAsTold`: the journal has, for each moved partition, the time of its last read, which is before its reader died,
  and of its next read, which is before the new owner gets any record of it.
- `NoCommitBeyondDone`: committed records were handed out, and the application has polled again or committed explicitly.
Source: users@kafka 2014-07-16; Kafka's consumer API, delivery semantics.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.coordinator.records.types import OffsetCommitted
from kohort.ids import TopicId, TopicPartition
from kohort.journal.rows import Row
from kohort.journal.words import Partition, read_partitions
from kohort.simulation.clients.plan import FLEETING
from kohort.simulation.trace import LawBroken


@dataclass(slots=True)
class GroupProgress:
    """The records that one group has received and processed, over all its readers."""

    group_id: str
    #: Partition -> offset up to which every record was handed out to a member.
    handed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partition -> highest offset below which some owner was done.
    done: dict[TopicPartition, int] = field(default_factory=dict)
    #: (topic id, partition) -> end of what was handed out, of the topic that is deleted and made again.
    handed_by_id: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    #: How many records were handed out.
    count: int = 0

    def check_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Compare the coordinator's committed offsets with the processed records."""
        for each, offset in committed.items():
            if each.topic != FLEETING and offset > self.done.get(each, 0):
                why = f"group {self.group_id} has committed {offset} of {each}, done is {self.done.get(each, 0)}"
                raise LawBroken("NoCommitBeyondDone", why)

    def note_handed(self, topic_id: TopicId, partition: int, offset: int) -> None:
        """Note a record that a reader got of the topic with this id."""
        place = topic_id, partition
        if offset > self.handed_by_id.get(place, 0):
            why = f"{self.group_id} was handed offset {offset} of {FLEETING}-{partition}, but none before it"
            raise LawBroken("NothingSkipped", f"{why}: the topic was made again")
        self.handed_by_id[place] = max(self.handed_by_id.get(place, 0), offset + 1)

    def check_fleeting(self, committed: Iterable[OffsetCommitted]) -> None:
        """Compare committed offsets of the recreated topic with the records handed out of it."""
        for each in committed:
            handed = self.handed_by_id.get((each.topic_id, each.partition), 0)
            if each.offset > handed:
                why = f"group {self.group_id} has committed {each.offset} of {each.topic}-{each.partition} under its "
                raise LawBroken("OffsetsOfTheirTopic", f"{why}present id; {handed} were handed out of that")


class Ownership:
    """The partitions that one consumer owns, and its position in each."""

    def __init__(self, name: str, group: GroupProgress) -> None:
        self.name = name
        self.group = group
        #: Partition -> next offset; `None` before the first record of this ownership.
        self.next: dict[TopicPartition, int | None] = {}
        #: Those of them that the coordinator has freed, and why.
        self.freed: dict[TopicPartition, str] = {}
        #: How often it has changed.
        self.changes = 0

    def gain(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the partitions of a call of `on_assigned`."""
        self.changes += 1
        for each in partitions:
            if each in self.next:
                raise LawBroken("OwnedOnly", f"{self.name} is given {each}, which it owns")
            self.next[each] = None

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the partitions of a call of `on_revoked` or `on_lost`."""
        self.changes += 1
        for each in partitions:
            if each not in self.next:
                raise LawBroken("OwnedOnly", f"{self.name} is to give up {each}, which it does not own")
            del self.next[each]
            self.freed.pop(each, None)

    def free(self, why: str) -> None:
        """Note that the coordinator may assign everything to other members from now on."""
        self.freed = dict.fromkeys(self.next, why)

    def take(self, partition: TopicPartition, offset: int) -> None:
        """Note a record that was handed out, and check the laws about it."""
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
                why = f"{self.name} begins {partition} at {offset}, but no member of its group was handed {handed}"
                raise LawBroken("NothingSkipped", why)
        elif offset != expected:
            why = f"{self.name} was handed offset {offset} of {partition} where {expected} is next"
            raise LawBroken("HandedOutOnce", why)
        self.next[partition] = offset + 1
        self.group.handed[partition] = max(handed, offset + 1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Note a seek of the application."""
        self.next[partition] = offset

    def finish(self) -> None:
        """Note that the application has processed every record that it got."""
        done = self.group.done
        for each, offset in self.next.items():
            if offset is not None:
                done[each] = max(done.get(each, 0), offset)


class ReadingTimes:
    """The times at which members really got records and died, in milliseconds of the brokers' clock."""

    def __init__(self) -> None:
        #: Member id and partition -> when it was handed records, ascending.
        self._handed: dict[tuple[str, Partition], list[int]] = {}
        #: Member id -> when its process was gone.
        self._died: dict[str, int] = {}
        #: How many rows were held against it.
        self.checked = 0

    def hand_out(self, member_id: str, partition: TopicPartition, now_ms: int) -> None:
        """Note a record that a member was handed."""
        self._handed.setdefault((member_id, (partition.topic, partition.partition)), []).append(now_ms)

    def die(self, member_id: str, now_ms: int) -> None:
        """Note that a member's process has died without leaving the group."""
        self._died[member_id] = now_ms

    def check(self, rows: Iterable[Row], *, slack_ms: int, parked_ms: int) -> None:
        """Compare the history of a group with the records that its members were handed.

        `slack_ms`: longest delay until a broker notices that a member died. `parked_ms`: longest wait of a fetch, which
        may return records of a partition that was reassigned to its member after the fetch was sent.
        """
        #: Partition -> its owner that is not told to read it, and since when it has it.
        granted: dict[Partition, tuple[str, int]] = {}
        for row in rows:
            details, member_id = dict(row.entry.details), row.entry.member_id
            for released in read_partitions(details.get("released", ""))[0]:
                self._check_unread(released, granted.pop(released, None), row.time_ms - parked_ms)
            if row.entry.event == "partitions_moved" and "read_ms" in details:
                granted.update(dict.fromkeys(read_partitions(details["partitions"])[0], (member_id, row.time_ms)))
            elif row.entry.event == "partitions_read":
                self._check_read(row, details, slack_ms)
                for partition in read_partitions(details["partitions"])[0]:
                    self._check_unread(partition, granted.pop(partition, None), row.time_ms - parked_ms)

    def _check_read(self, row: Row, details: Mapping[str, str], slack_ms: int) -> None:
        died_ms = self._died.get(details["from"])
        self.checked += 1
        if died_ms is not None and int(details["read_ms"]) > died_ms + slack_ms:
            why = f"{details['from']} died at {died_ms} and is told to have read until {details['read_ms']}"
            raise LawBroken("UnreadAsTold", why)

    def _check_unread(self, partition: Partition, owner: tuple[str, int] | None, until_ms: int) -> None:
        """Check that an owner not told to read a partition got no record of it before `until_ms`."""
        if owner is None:
            return
        member_id, since_ms = owner
        handed = self._handed.get((member_id, partition), [])
        first = bisect_right(handed, since_ms)
        if first < len(handed) and handed[first] < until_ms:
            why = f"{member_id} was handed {partition} at {handed[first]}, and is told not to read it before {until_ms}"
            raise LawBroken("UnreadAsTold", why)
