"""The records of one decision for one group, in words: one entry each, targets and forgotten offsets together.

Laws: nothing is decided or changed here; what a record means is told beside the state before it.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.classic import volatile as classic
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.consumer.rest import rest_epoch
from kohort.coordinator.consumer.volatile import ComputationNoted
from kohort.coordinator.courses import Course
from kohort.coordinator.embeddedcodec import read_assignment
from kohort.coordinator.model import ConsumerMember, Grants, GroupsState
from kohort.ids import TopicId, format_topic_id
from kohort.journal.rows import Entry, RowKind
from kohort.journal.words import PARTITIONS_SHOWN, Partition, write_partitions

#: Members that are named with what they shall give up; the rest is a number.
GIVERS_SHOWN: Final = 100


class Teller:
    """Tells the records that one decision has for one group; `trigger` is what set it off."""

    def __init__(
        self,
        groups: GroupsState,
        trigger: str,
        group_id: str,
        records: list[facts.Record],
        *,
        step: str,
        former_topics: Mapping[TopicId, str],
        course: Course,
        now_ms: int,
    ) -> None:
        """`step`: why there is a new epoch where nothing of the group has changed; empty where something has.

        `former_topics`: names of topics that are gone. `course`: of the group; it is told what happens, at `now_ms`.
        """
        self._course = course
        self._now_ms = now_ms
        self._former_topics = former_topics
        self._groups = groups
        self._trigger = trigger
        self._step = step
        self._group_id = group_id
        self._records = records
        self._consumer = groups.consumer.get(group_id)
        self._classic = groups.classic.get(group_id)
        members = self._consumer.members if self._consumer is not None else {}
        self._members: Mapping[str, ConsumerMember] = members
        #: Member -> the process of the same instance id whose place it takes.
        self._former: dict[str, str] = {}
        #: Members whose group changes its protocol under them: they neither come nor go.
        self._kept = self._find_kept()

    def entries(self) -> Iterator[Entry]:
        """One per record that says something; targets together."""
        targets = 0
        forgotten = 0
        for record in self._records:
            if isinstance(record, facts.MemberTargetSet):
                targets += 1
            elif isinstance(record, facts.OffsetForgotten):
                forgotten += 1
            elif isinstance(record, facts.TargetAssignmentEpochSet):
                epoch = str(record.assignment_epoch)
                self._course.is_answered = True
                yield self._decision("target_computed", epoch=epoch, members_changed=str(targets))
                yield from self._plans()
            elif isinstance(record, facts.CurrentAssignmentSet):
                yield from self._assignment_set(record)
            elif isinstance(record, facts.ClassicGroupStored):
                yield from self._classic_stored(record)
            elif isinstance(record, classic.MemberRemoved):
                yield from self._classic_member_removed(record)
            elif not self._is_kept(record):
                teller = _TELL.get(type(record))
                found = None if teller is None else teller(self, record)
                if found is not None:
                    yield found
        if forgotten:
            yield self._transition("offsets_forgotten", partitions=str(forgotten))
        at_rest = rest_epoch(self._consumer, self._records)
        if at_rest is not None:
            yield self._transition("group_at_rest", epoch=str(at_rest), **self._cost())

    def _cost(self) -> dict[str, str]:
        """What the rebalance that ends now took, as far as its beginning is known."""
        values = self._course.rest(now_ms=self._now_ms)
        return {name: str(value) for name, value in values.items()}

    def _find_kept(self) -> set[str]:
        if self._classic is not None and self._continues_as(facts.ClassicGroupForgotten):
            moved = {record.member_id for record in self._records if isinstance(record, facts.ConsumerMemberSubscribed)}
            return self._classic.members.keys() & moved
        if self._continues_as(facts.ConsumerGroupForgotten):
            put = [record.member.member_id for record in self._records if isinstance(record, classic.MemberPut)]
            return self._members.keys() & put
        return set()

    def _is_kept(self, record: facts.Record) -> bool:
        if isinstance(record, facts.ConsumerMemberForgotten | facts.CurrentAssignmentForgotten):
            return record.member_id in self._kept
        return False

    def _transition(self, event: str, member_id: str = "", **details: str) -> Entry:
        return self._entry(RowKind.TRANSITION, event, member_id, details)

    def _decision(self, event: str, member_id: str = "", **details: str) -> Entry:
        return self._entry(RowKind.DECISION, event, member_id, details)

    def _entry(self, kind: RowKind, event: str, member_id: str, details: dict[str, str]) -> Entry:
        shown = tuple((name, value) for name, value in details.items() if value)
        return Entry(kind=kind, event=event, group_id=self._group_id, member_id=member_id, details=shown)

    # Groups of the consumer protocol.

    def epoch_set(self, record: facts.ConsumerGroupEpochSet) -> Entry:
        trigger = self._step or self._trigger
        self._course.begin(trigger, now_ms=self._now_ms)
        return self._decision("epoch_bumped", epoch=str(record.epoch), trigger=trigger)

    def _plans(self) -> Iterator[Entry]:
        """Who shall give up what by the new target, and is not told so in this very decision."""
        told = {record.member_id for record in self._records if isinstance(record, _OF_STANDING)}
        shown = 0
        for record in self._records:
            if not isinstance(record, facts.MemberTargetSet) or record.member_id in told or shown == GIVERS_SHOWN:
                continue
            member = self._members.get(record.member_id)
            if member is None or member.member_epoch < 0:
                continue
            target = {(topic_id, number) for topic_id, numbers in record.partitions.items() for number in numbers}
            surplus = _flat(member.assigned) - target
            if surplus:
                shown += 1
                self._course.awaited.setdefault(record.member_id, self._now_ms)
                yield self._decision("revocation_planned", record.member_id, partitions=self._show(surplus))

    def subscribed(self, record: facts.ConsumerMemberSubscribed) -> Entry:
        before = self._members.get(record.member_id)
        wants = {
            "topics": ",".join(record.subscribed_topic_names[:PARTITIONS_SHOWN]),
            "pattern": record.subscribed_topic_regex or "",
            "assignor": record.server_assignor or "",
        }
        if before is None:
            borne = {} if self._consumer is None else self._consumer.instance_ids
            self._former[record.member_id] = borne.get(record.instance_id or "", "")
            is_kept = record.classic is not None and record.member_id in self._kept
            return self._transition(
                "member_kept" if is_kept else "member_joined",
                record.member_id,
                instance=record.instance_id or "",
                client=record.client_id,
                host=record.client_host,
                **wants,
            )
        if all(getattr(before, name) == getattr(record, name) for name in _WISHES):
            return self._transition("member_changed", record.member_id, client=record.client_id)
        return self._transition("subscription_changed", record.member_id, **wants)

    def member_forgotten(self, record: facts.ConsumerMemberForgotten) -> Entry:
        before = self._members.get(record.member_id)
        instance = "" if before is None else before.instance_id or ""
        self._course.awaited.pop(record.member_id, None)
        return self._transition("member_removed", record.member_id, instance=instance, reason=self._trigger)

    def _assignment_set(self, record: facts.CurrentAssignmentSet) -> Iterator[Entry]:
        member_id, before = record.member_id, self._members.get(record.member_id)
        old = _flat(before.assigned) if before is not None else set()
        old_pending = _flat(before.pending_revocation) if before is not None else set()
        new, pending = _flat(record.assigned), _flat(record.pending_revocation)
        released = (old | old_pending) - new - pending
        asked_back, gained = pending - old_pending, new - old
        course, now_ms = self._course, self._now_ms
        if released:
            course.release(member_id, self._named(released), now_ms=now_ms)
        if record.state == facts.MemberState.UNREVOKED_PARTITIONS:
            course.ask(member_id, self._named(asked_back), now_ms=now_ms)
        else:
            course.awaited.pop(member_id, None)
        if before is not None and record.member_epoch < 0 <= before.member_epoch:
            yield self._transition(
                "member_away",
                member_id,
                instance=before.instance_id or "",
                held=self._show(new),
                released=self._show(released),
            )
            return
        is_new = before is not None or member_id not in self._kept
        yield self._transition(
            "assignment_changed",
            member_id,
            epoch=str(record.member_epoch),
            state=record.state.name,
            **{"gained" if is_new else "held": self._show(gained)},
            asked_back=self._show(asked_back),
            released=self._show(released),
        )
        yield from self._arrivals(member_id, self._named(gained))

    def _arrivals(self, member_id: str, gained: Iterable[Partition]) -> Iterator[Entry]:
        """What has come to a member from another: one entry for all that went the same way."""
        former = self._former.get(member_id)
        for passage, partitions in self._course.grant(member_id, gained, now_ms=self._now_ms, former=former):
            details = {"from": passage.giver, "partitions": write_partitions(partitions), **passage.times}
            yield self._transition("partitions_moved", member_id, **details, trigger=", ".join(self._course.triggers))

    def assignment_forgotten(self, record: facts.CurrentAssignmentForgotten) -> Entry | None:
        before = self._members.get(record.member_id)
        held = set() if before is None else _flat(before.assigned) | _flat(before.pending_revocation)
        self._course.release(record.member_id, self._named(held), now_ms=self._now_ms)
        return self._transition("assignment_released", record.member_id, released=self._show(held)) if held else None

    def group_forgotten(self, record: facts.Record) -> Entry | None:
        if isinstance(record, facts.ClassicGroupForgotten) and self._continues_as(facts.ConsumerGroupEpochSet):
            return self._transition("group_converted", to="consumer")
        if isinstance(record, facts.ConsumerGroupForgotten) and self._continues_as(
            classic.ClassicGroupOpened, facts.ClassicGroupStored, classic.MemberPut
        ):
            return self._transition("group_converted", to="classic")
        return self._transition("group_forgotten")

    def _continues_as(self, *kinds: type[facts.Record]) -> bool:
        return any(isinstance(record, kinds) for record in self._records)

    def computation_noted(self, record: ComputationNoted) -> Entry | None:
        group = self._consumer
        if record.computing is not None:
            asked_of = record.computing
            return self._decision(
                "assignor_asked",
                assignor=asked_of.assignor,
                epoch=str(asked_of.epoch),
                members=str(len(asked_of.assignable.members)),
                partitions=str(len(asked_of.assignable.space)),
            )
        failure = record.failure
        if failure is None or (group is not None and failure == group.failure):
            return None
        return self._decision(
            "assignor_failed", assignor=failure.assignor, why=failure.error, failures=str(failure.count)
        )

    # Classic groups.

    def member_put(self, record: classic.MemberPut) -> Entry:
        member = record.member
        is_known = self._classic is not None and member.member_id in self._classic.members
        event = "member_rejoined" if is_known else "member_joined"
        self._course.awaited.pop(member.member_id, None)
        return self._transition(
            "member_kept" if member.member_id in self._kept else event,
            member.member_id,
            instance=member.instance_id or "",
            client=member.client_id,
            host=member.client_host,
            protocols=",".join(member.protocol_names),
        )

    def _classic_member_removed(self, record: classic.MemberRemoved) -> Iterator[Entry]:
        member, group = self._classic_member(record.member_id), self._classic
        is_read = group is not None and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        held = _read(member.assignment) if member is not None and is_read else set()
        self._course.awaited.pop(record.member_id, None)
        if held:
            self._course.release(record.member_id, held, now_ms=self._now_ms)
            yield self._transition("assignment_released", record.member_id, released=write_partitions(held))
        yield self._transition("member_removed", record.member_id, reason=self._trigger)

    def member_replaced(self, record: classic.StaticMemberReplaced) -> Entry:
        member, former = record.member, record.replaced_id
        return self._transition("member_replaced", member.member_id, instance=member.instance_id or "", former=former)

    def rebalance_begun(self, record: classic.RebalanceBegun) -> Entry:
        self._course.begin(self._trigger, now_ms=self._now_ms, is_new=True)
        members = () if self._classic is None else self._classic.members
        self._course.awaited = dict.fromkeys(members, self._now_ms)
        return self._decision("rebalance_began", trigger=self._trigger, why=record.reason)

    def generation_begun(self, record: classic.GenerationBegun) -> Entry:
        self._course.awaited = {record.leader: self._now_ms}
        return self._decision(
            "generation_began", record.leader, generation=str(record.generation), protocol=record.protocol_name
        )

    def _classic_stored(self, record: facts.ClassicGroupStored) -> Iterator[Entry]:
        if record.state_timestamp_ms == NOT_REBALANCED:
            return
        generation = str(record.generation)
        moves = [(member.member_id, *self._classic_moves(record, member)) for member in record.members]
        # Who gives is told before who gets it.
        for member_id, gained, released in sorted(moves, key=lambda move: not move[2]):
            if gained or released:
                self._course.release(member_id, released, now_ms=self._now_ms)
                yield self._transition(
                    "assignment_changed",
                    member_id,
                    epoch=generation,
                    state="STABLE",
                    gained=write_partitions(gained),
                    released=write_partitions(released),
                )
                yield from self._arrivals(member_id, gained)
        state, members = "Stable" if record.members else "Empty", str(len(record.members))
        yield self._transition("group_at_rest", state=state, generation=generation, members=members, **self._cost())

    def _classic_moves(
        self, record: facts.ClassicGroupStored, member: facts.StoredClassicMember
    ) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """What the leader has given to a member and taken from it, as far as that can be read."""
        former = self._classic_member(member.member_id, member.instance_id)
        before = b"" if former is None else former.assignment
        if record.protocol_type != CONSUMER_PROTOCOL_TYPE or before == member.assignment:
            return set(), set()
        old, new = _read(before), _read(member.assignment)
        return new - old, old - new

    def _classic_member(self, member_id: str, instance_id: str | None = None) -> ClassicMember | None:
        """The member, or the one of its name before it, as the group has it until now."""
        group = self._classic
        if group is None:
            return None
        return group.members.get(member_id) or group.members.get(group.instance_ids.get(instance_id or "", ""))

    def classic_connection_lost(self, record: classic.ClassicConnectionLost) -> Entry:
        return self._transition("connection_lost", record.member_id)

    def connection_seen(self, record: facts.MemberConnectionSeen) -> Entry:
        return self._transition("connection_lost" if record.is_gone else "connection_back", record.member_id)

    def id_handed_out(self, record: classic.MemberIdHandedOut) -> Entry:
        return self._decision("member_id_required", record.member_id)

    def configs_set(self, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten) -> Entry:
        before = self._groups.configs.get(self._group_id, {})
        after = record.configs if isinstance(record, facts.GroupConfigsSet) else {}
        changed = {name: after.get(name, "(default)") for name in sorted(before.keys() | after.keys())}
        different = {name: value for name, value in changed.items() if before.get(name, "(default)") != value}
        return self._transition("configs_changed", **different)

    def _show(self, partitions: set[tuple[TopicId, int]]) -> str:
        return write_partitions(self._named(partitions))

    def _named(self, partitions: set[tuple[TopicId, int]]) -> list[Partition]:
        by_id = self._groups.image.by_id
        return [
            (by_id[topic_id].name if topic_id in by_id else self._former_name(topic_id), number)
            for topic_id, number in partitions
        ]

    def _former_name(self, topic_id: TopicId) -> str:
        return self._former_topics.get(topic_id) or format_topic_id(topic_id)


def _read(assignment: bytes) -> set[tuple[str, int]]:
    found = read_assignment(assignment)
    return set() if found is None else {(topic, each) for topic, own in found.partitions.items() for each in own}


def _flat(grants: Grants) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, partitions in grants.items() for number in partitions}


#: What a member subscribes to.
_WISHES: Final = ("subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
#: What tells a member what it has.
_OF_STANDING: Final = (facts.CurrentAssignmentSet, facts.ConsumerMemberForgotten)
#: Record type -> the one entry that it is; targets and offsets are summed up, what a classic group stores and whom it
#: removes are several entries, and what is not here says nothing by itself.
_TELL: Final[dict[type[facts.Record], Callable[..., Entry | None]]] = {
    facts.ConsumerGroupEpochSet: Teller.epoch_set,
    facts.ConsumerMemberSubscribed: Teller.subscribed,
    facts.ConsumerMemberForgotten: Teller.member_forgotten,
    facts.CurrentAssignmentForgotten: Teller.assignment_forgotten,
    facts.ConsumerGroupForgotten: Teller.group_forgotten,
    ComputationNoted: Teller.computation_noted,
    facts.ClassicGroupForgotten: Teller.group_forgotten,
    classic.ClassicGroupDropped: Teller.group_forgotten,
    classic.MemberPut: Teller.member_put,
    classic.StaticMemberReplaced: Teller.member_replaced,
    classic.MemberIdHandedOut: Teller.id_handed_out,
    classic.ClassicConnectionLost: Teller.classic_connection_lost,
    facts.MemberConnectionSeen: Teller.connection_seen,
    facts.GroupConfigsSet: Teller.configs_set,
    facts.GroupConfigsForgotten: Teller.configs_set,
    classic.RebalanceBegun: Teller.rebalance_begun,
    classic.GenerationBegun: Teller.generation_begun,
}
