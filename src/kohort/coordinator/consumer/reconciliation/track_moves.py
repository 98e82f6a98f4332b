"""Progress of moves: derives from a decision which moves begin, advance or end.

Laws: nothing is decided here: the owner of a partition follows from targets and assignments alone. Each step of
a submitted move is written, so that a restart knows its progress. An ended one is kept until its topic or group is
deleted or another move of the partition is submitted. Of other moves a restart finds the open ones, without times.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kohort.base.values import value
from kohort.coordinator import model, topics
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack, places_of
from kohort.coordinator.decision import Decision
from kohort.coordinator.records import types as facts
from kohort.ids import TopicId

#: Records that concern moves.
_FOLLOWED: Final = (
    facts.ConsumerGroupForgotten,
    facts.ConsumerMemberForgotten,
    facts.CurrentAssignmentSet,
    facts.MemberTargetForgotten,
    facts.MemberTargetSet,
    MovesBegun,
    MovesHeldBack,
)


@value
class MovesFollowed(facts.VolatileRecord):
    """Progress of moves that were not submitted; `None`: the move is over."""

    moves: dict[model.Place, facts.MoveFacts | None]


def follow_moves(groups: model.GroupsState, decision: Decision, *, is_asked: bool, now_ms: int) -> Decision:
    """Add records about the progress of moves to a decision; `is_asked`: its moves were submitted."""
    more: list[facts.Record] = []
    concerned: dict[str, list[facts.Record]] = {}
    for record in decision.records:
        if isinstance(record, _FOLLOWED):
            concerned.setdefault(record.group_id, []).append(record)
        elif isinstance(record, facts.TopicImageReplaced):
            for group in groups.consumer.values():
                more += _forget_topics(group, record.image)
    for group_id, records in concerned.items():
        followed = groups.consumer.get(group_id)
        if followed is not None:
            more += _Following(followed, records, decision.records, is_asked=is_asked, now_ms=now_ms).result()
    return replace(decision, records=(*decision.records, *more)) if more else decision


class _Following:
    """The moves of one group during one decision; the group itself is not changed."""

    def __init__(
        self,
        group: model.ConsumerGroup,
        records: Iterable[facts.Record],
        everything: Iterable[facts.Record],
        *,
        is_asked: bool,
        now_ms: int,
    ) -> None:
        self._group: Final = group
        self._records: Final = records
        self._everything: Final = everything
        self._is_asked: Final = is_asked
        self._now_ms: Final = now_ms
        #: New progress of moves that were not submitted, and of submitted ones; `None`: forgotten.
        self._plain: Final[dict[model.Place, facts.MoveFacts | None]] = {}
        self._submitted: Final[dict[model.Place, facts.MoveFacts | None]] = {}
        #: Replaced static member -> the member that has its instance id now.
        self._successors: dict[str, str] = {}

    def result(self) -> list[facts.Record]:
        """Return the records about moves: those to write, and the volatile ones."""
        group_id = self._group.group_id
        if any(isinstance(record, facts.ConsumerGroupForgotten) for record in self._records):
            return [_build_forgotten(group_id, place) for place in self._group.submitted]
        self._follow_successors()
        self._follow_targets()
        for record in self._records:
            match record:
                case MovesHeldBack() | MovesBegun():
                    self._follow_begin(record)
                case facts.CurrentAssignmentSet():
                    self._follow_assignment(record)
                case facts.ConsumerMemberForgotten() if record.member_id not in self._successors:
                    self._follow_end_of_member(record.member_id)
                case _:
                    pass
        records: list[facts.Record] = []
        for (topic_id, partition), move in self._submitted.items():
            before = self._group.submitted.get((topic_id, partition))
            if move is None:
                if before is not None:
                    records.append(_build_forgotten(group_id, (topic_id, partition)))
            elif move != before:
                records.append(
                    facts.SubmittedMoveSet(group_id=group_id, topic_id=topic_id, partition=partition, move=move)
                )
        moves = self._group.moves
        changed = {place: move for place, move in self._plain.items() if move is not moves.get(place)}
        if changed:
            records.append(MovesFollowed(group_id=group_id, moves=changed))
        return records

    def _find(self, place: model.Place) -> facts.MoveFacts | None:
        """Return the open move of a partition."""
        if self._group.submitted or self._submitted:
            submitted = self._find_submitted(place)
            if submitted is not None:
                return submitted
        return self._plain[place] if place in self._plain else self._group.moves.get(place)

    def _find_submitted(self, place: model.Place) -> facts.MoveFacts | None:
        submitted = self._submitted[place] if place in self._submitted else self._group.submitted.get(place)
        return None if submitted is None or submitted.granted_ms >= 0 else submitted

    def _put(self, place: model.Place, move: facts.MoveFacts | None) -> None:
        """Set the progress of a partition's open move; `None` cancels the move."""
        (self._plain if self._find_submitted(place) is None else self._submitted)[place] = move

    def _follow_successors(self) -> None:
        group = self._group
        gone = [record.member_id for record in self._records if isinstance(record, facts.ConsumerMemberForgotten)]
        static = [member for each in gone if (member := group.members.get(each)) and member.instance_id is not None]
        bearers = {
            record.instance_id: record.member_id
            for record in (self._everything if static else ())
            if isinstance(record, facts.ConsumerMemberSubscribed) and record.group_id == group.group_id
        }
        for member in static:
            if member.instance_id not in bearers:
                continue
            old, new = member.member_id, bearers[member.instance_id]
            self._successors[old] = new
            for place in sorted(_places_held(member) | places_of(group.targets.get(old, model.NO_TARGET))):
                move = self._find(place)
                if move is not None:
                    giver, taker = (new if each == old else each for each in (move.from_member_id, move.to_member_id))
                    self._put(place, move._replace(from_member_id=giver, to_member_id=taker))

    def _follow_targets(self) -> None:
        """Begin or change moves of partitions that are in another target now, and cancel those in none."""
        group = self._group
        after: dict[str, Mapping[TopicId, tuple[int, ...]]] = {}
        for record in self._records:
            if isinstance(record, facts.MemberTargetSet):
                after[record.member_id] = record.partitions
            elif isinstance(record, facts.MemberTargetForgotten) and record.member_id not in self._successors:
                after[record.member_id] = model.NO_TARGET
        predecessors = {new: old for old, new in self._successors.items()}
        lost: dict[model.Place, None] = {}
        gained: list[tuple[str, list[model.Place]]] = []
        for member_id, target in after.items():
            before = group.targets.get(predecessors.get(member_id, member_id), model.NO_TARGET)
            if group.moves or group.submitted:
                for place in _without(before, target):
                    move = self._find(place)
                    if move is not None and move.to_member_id == member_id:
                        lost[place] = None
            gained.append((member_id, _without(target, before)))
        for member_id, places in gained:
            for place in places:
                self._follow_taker(place, member_id)
                lost.pop(place, None)
        for place in lost:
            self._put(place, None)

    def _follow_taker(self, place: model.Place, member_id: str) -> None:
        group, (topic_id, partition) = self._group, place
        holder_id = group.holders.get(topic_id, {}).get(partition)
        holder = None if holder_id is None else group.members.get(holder_id)
        move = self._find(place)
        if holder is not None and self._successors.get(holder.member_id, holder.member_id) == member_id:
            if move is not None:
                self._put(place, None)
            return
        if move is None:
            if holder is None:
                return
            now_ms = self._now_ms
            move = facts.MoveFacts(granted_epoch_of(holder, place), holder.member_id, member_id, now_ms, now_ms)
        elif move.from_member_id == member_id:
            self._put(place, None)
            return
        elif self._is_asked or self._find_submitted(place) is not None:
            # The submitted move is called off, or submitted again.
            self._put(place, None)
        if self._is_asked:
            self._submitted[place] = move._replace(to_member_id=member_id, submitted_ms=self._now_ms)
        else:
            self._plain[place] = move._replace(to_member_id=member_id)

    def _follow_begin(self, record: MovesHeldBack | MovesBegun) -> None:
        waiting = self._group.waiting
        if isinstance(record, MovesBegun):
            begun: Iterable[model.Place] = record.places
        else:
            begun = [place for place in waiting if place not in record.waiting]
            for place in record.waiting:
                move = self._find(place)
                if move is not None and move.begun_ms >= 0:
                    self._put(place, move._replace(begun_ms=-1))
        for place in begun:
            move = self._find(place)
            if move is not None:
                self._put(place, move._replace(begun_ms=self._now_ms))

    def _follow_assignment(self, record: facts.CurrentAssignmentSet) -> None:
        if not (self._group.moves or self._group.submitted or self._plain or self._submitted):
            return
        now_ms, member_id = self._now_ms, record.member_id
        predecessor = next((old for old, new in self._successors.items() if new == member_id), member_id)
        member = self._group.members.get(predecessor)
        held = () if member is None else (member.assigned, member.pending_revocation)
        pending = record.pending_revocation
        for place in [place for grants in held for place in _without(grants, record.assigned)]:
            move = self._find(place)
            if move is None or move.from_member_id != member_id:
                continue
            if move.fenced_ms < 0:
                move = move._replace(begun_ms=now_ms if move.begun_ms < 0 else move.begun_ms, fenced_ms=now_ms)
            if place[1] not in pending.get(place[0], ()):
                move = move._replace(committed_ms=now_ms)
            self._put(place, move)
        for place in _without(record.assigned, model.NO_GRANTS if member is None else member.assigned):
            if member is not None and place[1] in member.pending_revocation.get(place[0], ()):
                continue
            move = self._find(place)
            if move is not None and move.to_member_id == member_id:
                if self._find_submitted(place) is None:
                    self._plain[place] = None
                else:
                    self._submitted[place] = move._replace(granted_ms=now_ms)

    def _follow_end_of_member(self, member_id: str) -> None:
        """Mark the open moves from a removed member as fenced: the member lost its partitions."""
        member = self._group.members.get(member_id)
        for place in () if member is None else sorted(_places_held(member)):
            move = self._find(place)
            if move is not None and move.from_member_id == member_id and move.fenced_ms < 0:
                self._put(place, move._replace(fenced_ms=self._now_ms))


def granted_epoch_of(holder: model.ConsumerMember, place: model.Place) -> int:
    """Return the epoch at which a partition was granted to its member."""
    topic_id, partition = place
    granted = holder.pending_revocation.get(topic_id, {}).get(partition)
    return holder.assigned[topic_id][partition] if granted is None else granted


def apply_moves_followed(groups: model.GroupsState, record: MovesFollowed) -> None:
    """Apply the progress of moves that were not submitted."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    for place, move in record.moves.items():
        if move is None:
            group.moves.pop(place, None)
        else:
            group.moves[place] = move


def _places_held(member: model.ConsumerMember) -> set[model.Place]:
    return places_of(member.assigned) | places_of(member.pending_revocation)


def _without(those: Mapping[TopicId, Collection[int]], others: Mapping[TopicId, Collection[int]]) -> list[model.Place]:
    """Return the partitions of `those` that are not among `others`, in their order."""
    return [
        (topic_id, partition)
        for topic_id, partitions in those.items()
        for partition in _left(partitions, others.get(topic_id, ()))
    ]


def _left(partitions: Collection[int], others: Collection[int]) -> Collection[int]:
    if not others:
        return partitions
    known = others if isinstance(others, dict) else frozenset(others)
    return [each for each in partitions if each not in known]


def _build_forgotten(group_id: str, place: model.Place) -> facts.SubmittedMoveForgotten:
    return facts.SubmittedMoveForgotten(group_id=group_id, topic_id=place[0], partition=place[1])


def _forget_topics(group: model.ConsumerGroup, image: topics.TopicImage) -> list[facts.Record]:
    """Forget the moves of deleted topics."""
    if not (group.moves or group.submitted):
        return []
    records: list[facts.Record] = [
        _build_forgotten(group.group_id, place) for place in group.submitted if place[0] not in image.by_id
    ]
    gone: Mapping[model.Place, None] = dict.fromkeys(place for place in group.moves if place[0] not in image.by_id)
    return [*records, MovesFollowed(group_id=group.group_id, moves=dict(gone))] if gone else records
