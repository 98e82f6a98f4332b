"""One decision as one group sees it: what its records mean is told beside the state before them.

Laws: nothing is decided or changed here but what the journal remembers of the group (`courses.py`).
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.classic import volatile as classic
from kohort.coordinator.consumer.reconciliation.following import granted_epoch_of
from kohort.coordinator.decision import TimerKey
from kohort.coordinator.events.courses import Course
from kohort.coordinator.model import ConsumerMember, Grants, GroupsState, Place
from kohort.coordinator.parking import hold_key
from kohort.ids import TopicId, format_topic_id
from kohort.journal.rows import Entry, RowKind
from kohort.journal.words import Partition, write_partitions
from kohort.timers import TimerTable

#: With these a group changes its protocol, if it goes on at all.
_ENDS: Final = (facts.ClassicGroupForgotten, facts.ConsumerGroupForgotten)
_BEGINS_CLASSIC: Final = (classic.ClassicGroupOpened, facts.ClassicGroupStored, classic.MemberPut)


class Scene:
    """The records that one decision has for one group, and all that they are told beside."""

    __slots__ = (
        "_former_topics",
        "_groups",
        "_timers",
        "classic",
        "clock",
        "computed_by",
        "configs",
        "consumer",
        "course",
        "forgotten_offsets",
        "former",
        "group_id",
        "kept",
        "kinds",
        "members",
        "now_ms",
        "pace",
        "records",
        "step",
        "targets",
        "trigger",
    )

    def __init__(
        self,
        groups: GroupsState,
        group_id: str,
        records: Sequence[facts.Record],
        *,
        former_topics: Mapping[TopicId, str],
        course: Course,
        timers: TimerTable[TimerKey],
        now_ms: int,
    ) -> None:
        """`former_topics`: names of topics that are gone. `course`: of the group; it is told what happens, and when."""
        self._groups = groups
        self._former_topics = former_topics
        self._timers = timers
        self.group_id = group_id
        self.records = records
        self.kinds = {type(record) for record in records}
        #: What set the decision off; why there is a new epoch, where nothing of the group has changed.
        self.trigger = self.step = ""
        #: The member that has computed a target that the records have, "" if the broker has.
        self.computed_by = ""
        #: How fast moves begin, where some wait.
        self.pace = ""
        self.course = course
        self.now_ms = now_ms
        #: The group before the records, in whichever protocol it was; its members of this one; its configs.
        self.consumer = groups.consumer.get(group_id)
        self.classic = groups.classic.get(group_id)
        self.members: Mapping[str, ConsumerMember] = {} if self.consumer is None else self.consumer.members
        self.configs: Mapping[str, str] = groups.configs.get(group_id, {})
        #: What a static group has measured before the records; `None`: nothing.
        self.clock = groups.clocks.get(group_id)
        #: Member -> the process of the same instance id whose place it takes.
        self.former: dict[str, str] = {}
        #: Members whose group changes its protocol under them: they neither come nor go.
        self.kept: Collection[str] = () if self.kinds.isdisjoint(_ENDS) else self._find_kept()
        #: Records so far of which only the number is told.
        self.targets = self.forgotten_offsets = 0

    @property
    def goes_on_as(self) -> str:
        """The protocol to which the group changes, empty if it does not change or ends."""
        if facts.ClassicGroupForgotten in self.kinds and facts.ConsumerGroupEpochSet in self.kinds:
            return "consumer"
        is_classic = facts.ConsumerGroupForgotten in self.kinds and not self.kinds.isdisjoint(_BEGINS_CLASSIC)
        return "classic" if is_classic else ""

    def _find_kept(self) -> Collection[str]:
        if self.classic is not None and facts.ClassicGroupForgotten in self.kinds:
            moved = {record.member_id for record in self.records if isinstance(record, facts.ConsumerMemberSubscribed)}
            return self.classic.members.keys() & moved
        if facts.ConsumerGroupForgotten in self.kinds:
            put = [record.member.member_id for record in self.records if isinstance(record, classic.MemberPut)]
            return self.members.keys() & put
        return ()

    def transition(self, event: str, member_id: str = "", /, **details: str) -> Entry:
        """An entry for what has changed; details that are empty are left out."""
        return Entry(RowKind.TRANSITION, event, self.group_id, member_id, _shown(details))

    def decision(self, event: str, member_id: str = "", /, **details: str) -> Entry:
        """An entry for what was decided."""
        return Entry(RowKind.DECISION, event, self.group_id, member_id, _shown(details))

    def arrivals(self, member_id: str, gained: Iterable[Partition]) -> Iterator[Entry]:
        """What has come to a member from another: one entry for all that went the same way."""
        former = self.former.get(member_id)
        for passage, partitions in self.course.grant(member_id, gained, now_ms=self.now_ms, former=former):
            details = {"from": passage.giver, "partitions": write_partitions(partitions), **passage.details}
            yield self.transition("partitions_moved", member_id, **details, trigger=", ".join(self.course.triggers))

    def cost(self) -> dict[str, str]:
        """What the rebalance that ends now took, as far as its beginning is known."""
        values = self.course.rest(now_ms=self.now_ms)
        return {name: str(value) for name, value in values.items()}

    def reach(self, member_id: str) -> dict[str, str]:
        """Whether the member can be told at once: its heartbeat is held, and for how long, or its next is awaited."""
        held_ms = held_for_ms(self._groups, self._timers, self.group_id, member_id, now_ms=self.now_ms)
        return {"heartbeat": "awaited"} if held_ms is None else {"heartbeat": "held", "held_ms": str(held_ms)}

    def granted(self, member: ConsumerMember | None, places: Collection[Place]) -> dict[Partition, int | None]:
        """The names of partitions that a member had, and when it was granted each."""
        epochs = [None if member is None else granted_epoch_of(member, place) for place in places]
        return dict(zip(self.named(places), epochs, strict=True))

    def named(self, places: Collection[Place]) -> list[Partition]:
        """Partitions by the names of their topics."""
        if not places:
            return []
        by_id = self._groups.image.by_id
        return [
            (by_id[topic_id].name if topic_id in by_id else self._former_name(topic_id), number)
            for topic_id, number in places
        ]

    def show(self, places: Collection[Place]) -> str:
        """Partitions as a row has them; empty: there are none."""
        return write_partitions(self.named(places)) if places else ""

    def _former_name(self, topic_id: TopicId) -> str:
        return self._former_topics.get(topic_id) or format_topic_id(topic_id)


def held_for_ms(
    groups: GroupsState, timers: TimerTable[TimerKey], group_id: str, member_id: str, *, now_ms: int
) -> int | None:
    """How long a member's heartbeat has been held by now, milliseconds; `None`: none is."""
    held = groups.holds.get(group_id, {}).get(member_id)
    deadline_ms = None if held is None else timers.deadline(hold_key(group_id, member_id))
    return None if held is None or deadline_ms is None else now_ms - (deadline_ms - held.hold_ms)


def _shown(details: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple([each for each in details.items() if each[1]])


def flatten(grants: Grants | Mapping[TopicId, Iterable[int]]) -> set[Place]:
    """Topic id and partition of each."""
    return {(topic_id, number) for topic_id, partitions in grants.items() for number in partitions}
