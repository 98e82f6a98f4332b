"""Moves: partitions that a group's target gives to one member while another one has them, and how far they are.

A move has the name of its partition and of the epoch at which its old owner was granted it: one owner's time with a
partition ends once, and a restart finds the same name again.

Laws: what is open follows from targets and assignments alone; times and what has ended do not outlive the process. What
is kept of moves that were asked for and have ended is bounded, and the group that has most of them loses its oldest
first. Nothing is decided here.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kohort.coordinator.commands import DescribeMoves, DescribeMovesReply, MoveStatus, SubmitMovesReply
from kohort.coordinator.consumer.describe import find_group
from kohort.coordinator.consumer.way import MovesBegun, MovesHeldBack, places_of
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, GroupsState, Place
from kohort.coordinator.records import (
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    CurrentAssignmentSet,
    MemberTargetSet,
    Record,
    TopicImageReplaced,
)

#: On its way a move is here, in this order: it waits for the pace; its old owner is to hear of it; that one may not use
#: the partition any more; it has committed and given it up; the new owner has it.
PHASES: Final = ("waiting", "revoking", "fenced", "committed", "granted")
#: Why a move is made.
BY_ASSIGNOR: Final = "assignment"
BY_ADMINISTRATOR: Final = "administrator moved partitions"
#: Moves that were asked for and have ended, as they are remembered of all groups of a shard.
MOST_ENDED: Final = 20_000


def move_id(topic: str, partition: int, granted_epoch: int) -> str:
    """The name of the move that ends what was granted at that epoch."""
    return f"{topic}-{partition}@{granted_epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was seen of an open move; times as `MoveStatus` has them."""

    granted_epoch: int
    from_member_id: str
    to_member_id: str
    cause: str
    submitted_ms: int = -1
    begun_ms: int = -1
    fenced_ms: int = -1
    committed_ms: int = -1

    def status(self, topic: str, partition: int, phase: str, *, granted_ms: int = -1) -> MoveStatus:
        """As it is told."""
        return MoveStatus(
            move_id=move_id(topic, partition, self.granted_epoch),
            topic=topic,
            partition=partition,
            from_member_id=self.from_member_id,
            to_member_id=self.to_member_id,
            phase=phase,
            cause=self.cause,
            submitted_ms=self.submitted_ms,
            begun_ms=self.begun_ms,
            fenced_ms=self.fenced_ms,
            committed_ms=self.committed_ms,
            granted_ms=granted_ms,
        )


class MoveTimes:
    """Looks at every decision of a shard, and remembers how far moves are and which have ended."""

    def __init__(self, *, most_ended: int = MOST_ENDED) -> None:
        #: group id -> place -> what was seen of the move that is open there.
        self._open: Final[dict[str, dict[Place, _Known]]] = {}
        #: group id -> what was asked for and has ended, the latest last.
        self._ended: Final[dict[str, deque[MoveStatus]]] = {}
        self._ended_count = 0
        self._most_ended: Final = most_ended

    def note(self, groups: GroupsState, decision: Decision, *, now_ms: int) -> None:
        """Follow a decision that is about to be carried out."""
        is_asked = any(isinstance(each, Reply) and isinstance(each.body, SubmitMovesReply) for each in decision.effects)
        cause = BY_ADMINISTRATOR if is_asked else BY_ASSIGNOR
        for record in decision.records:
            match record:
                case MemberTargetSet():
                    self._follow_target(groups, record, cause, now_ms)
                case MovesHeldBack() | MovesBegun():
                    self._follow_begin(groups, record, now_ms)
                case CurrentAssignmentSet() if record.group_id in self._open:
                    self._follow_assignment(groups, record, now_ms)
                case ConsumerMemberForgotten() if record.group_id in self._open:
                    self._follow_end_of_member(record, now_ms)
                case ConsumerGroupForgotten():
                    self._open.pop(record.group_id, None)
                    self._ended_count -= len(self._ended.pop(record.group_id, ()))
                case TopicImageReplaced():
                    self._follow_topics(record)
                case _:
                    pass

    def describe(self, groups: GroupsState, group: ConsumerGroup) -> Iterator[MoveStatus]:
        """The open moves of a group by topic and partition, then those asked for that have ended, the latest first."""
        known = self._open.get(group.group_id, {})
        names = {topic_id: facts.name for topic_id, facts in groups.image.by_id.items()}
        places = [(names[place[0]], place, move) for place, move in _find_open(group, known) if place[0] in names]
        for topic, place, move in sorted(places, key=lambda found: (found[0], found[1][1])):
            yield move.status(topic, place[1], _phase(group, place))
        yield from reversed(self._ended.get(group.group_id, ()))

    def _follow_target(self, groups: GroupsState, record: MemberTargetSet, cause: str, now_ms: int) -> None:
        group = groups.consumer.get(record.group_id)
        if group is None:
            return
        known = self._open.setdefault(record.group_id, {})
        for topic_id, partitions in record.partitions.items():
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                holder = holders.get(partition)
                place = topic_id, partition
                if holder is None or holder == record.member_id:
                    if place in known:
                        self._follow_other_taker(known, place, record.member_id)
                elif place in known:
                    known[place] = replace(known[place], to_member_id=record.member_id)
                elif holder in group.members:
                    known[place] = _build_known(group, place, holder, record.member_id, cause=cause, now_ms=now_ms)
        if not known:
            del self._open[record.group_id]

    def _follow_other_taker(self, known: dict[Place, _Known], place: Place, member_id: str) -> None:
        if known[place].from_member_id == member_id:
            del known[place]
        else:
            known[place] = replace(known[place], to_member_id=member_id)

    def _follow_begin(self, groups: GroupsState, record: MovesHeldBack | MovesBegun, now_ms: int) -> None:
        group, known = groups.consumer.get(record.group_id), self._open.get(record.group_id)
        if group is None or known is None:
            return
        begins = record.places if isinstance(record, MovesBegun) else group.waiting.keys() - record.waiting.keys()
        for place in begins:
            if place in known:
                known[place] = replace(known[place], begun_ms=now_ms)
        for place in record.waiting if isinstance(record, MovesHeldBack) else ():
            if place in known:
                known[place] = replace(known[place], begun_ms=-1)

    def _follow_assignment(self, groups: GroupsState, record: CurrentAssignmentSet, now_ms: int) -> None:
        group, known = groups.consumer.get(record.group_id), self._open[record.group_id]
        member = None if group is None else group.members.get(record.member_id)
        before = set() if member is None else places_of(member.assigned) | places_of(member.pending_revocation)
        assigned, pending = places_of(record.assigned), places_of(record.pending_revocation)
        for place in known.keys() & (before - assigned):
            move = known[place]
            if move.from_member_id == record.member_id and move.fenced_ms < 0:
                move = replace(move, begun_ms=now_ms if move.begun_ms < 0 else move.begun_ms, fenced_ms=now_ms)
            if move.from_member_id == record.member_id and place not in pending:
                move = replace(move, committed_ms=now_ms)
            known[place] = move
        for place in known.keys() & (assigned - before):
            move = known[place]
            if move.to_member_id == record.member_id:
                del known[place]
                facts = groups.image.by_id.get(place[0])
                # Whoever asked for a move looks for its end; of all others the journal tells.
                if facts is not None and move.cause == BY_ADMINISTRATOR:
                    self._end(record.group_id, move.status(facts.name, place[1], "granted", granted_ms=now_ms))
        if not known:
            del self._open[record.group_id]

    def _follow_topics(self, record: TopicImageReplaced) -> None:
        for known in self._open.values():
            for place in [place for place in known if place[0] not in record.image.by_id]:
                del known[place]

    def _follow_end_of_member(self, record: Record, now_ms: int) -> None:
        assert isinstance(record, ConsumerMemberForgotten)
        known = self._open[record.group_id]
        for place, move in known.items():
            if move.from_member_id == record.member_id and move.committed_ms < 0:
                known[place] = replace(move, fenced_ms=now_ms if move.fenced_ms < 0 else move.fenced_ms)

    def _end(self, group_id: str, status: MoveStatus) -> None:
        self._ended.setdefault(group_id, deque()).append(status)
        self._ended_count += 1
        if self._ended_count > self._most_ended:
            largest = max(self._ended.values(), key=len)
            for _ in range((len(largest) + 1) // 2):
                largest.popleft()
                self._ended_count -= 1


def decide_describe_moves(groups: GroupsState, command: DescribeMoves, times: MoveTimes) -> Decision:
    """Say which moves are open, and which were; refuses what is no KIP-848 group as `find_group` does."""
    found = tuple(times.describe(groups, find_group(groups, command.group_id)))
    return Decision(effects=(Reply(command.request, DescribeMovesReply(moves=found)),))


def _find_open(group: ConsumerGroup, known: dict[Place, _Known]) -> Iterator[tuple[Place, _Known]]:
    """What moves, be it only that it waits; what a restart has forgotten is found again."""
    takers = {move.taker for move in group.waiting.values()} & group.members.keys()
    for member_id in group.behind | takers:
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items():
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                place, holder = (topic_id, partition), holders.get(partition)
                if place in known and holder != member_id:
                    yield place, known[place]
                elif holder is not None and holder != member_id:
                    since_ms = group.target_timestamp_ms or -1
                    found = _build_known(group, place, holder, member_id, cause=BY_ASSIGNOR, now_ms=since_ms)
                    yield place, replace(found, begun_ms=-1)


def _build_known(
    group: ConsumerGroup, place: Place, holder_id: str, member_id: str, *, cause: str, now_ms: int
) -> _Known:
    topic_id, partition = place
    holder = group.members[holder_id]
    granted = holder.pending_revocation.get(topic_id, {}).get(partition)
    return _Known(
        granted_epoch=holder.assigned[topic_id][partition] if granted is None else granted,
        from_member_id=holder_id,
        to_member_id=member_id,
        cause=cause,
        submitted_ms=now_ms,
        begun_ms=now_ms,
    )


def _phase(group: ConsumerGroup, place: Place) -> str:
    topic_id, partition = place
    holder = group.members.get(group.holders.get(topic_id, {}).get(partition, ""))
    if place in group.waiting:
        return "waiting"
    if holder is None:
        return "committed"
    return "fenced" if partition in holder.pending_revocation.get(topic_id, {}) else "revoking"
