"""Moves: partitions that a group's target gives to one member while another one has them, and how far they are.

A move has the name of its partition and of the epoch at which its old owner was granted it: one owner's time with a
partition ends once, and a restart finds the same name again.

Laws: what is open follows from targets and assignments alone; `following` has what was seen of it, and what was asked
for and is over. Nothing is decided here.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.coordinator.commands import DescribeMoves, DescribeMovesReply, MoveStatus
from kohort.coordinator.consumer.describe import find_moving
from kohort.coordinator.consumer.reconciliation.following import granted_epoch_of
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, GroupsState, Place
from kohort.coordinator.records import MoveFacts

#: On its way a move is here, in this order: it waits for the pace; its old owner is to hear of it; that one may not use
#: the partition any more; it has committed and given it up; the new owner has it.
PHASES: Final = ("waiting", "revoking", "fenced", "committed", "granted")
#: Why a move is made.
BY_ASSIGNOR: Final = "assignment"
BY_ADMINISTRATOR: Final = "administrator moved partitions"


def move_id(topic: str, partition: int, granted_epoch: int) -> str:
    """The name of the move that ends what was granted at that epoch."""
    return f"{topic}-{partition}@{granted_epoch}"


def decide_describe_moves(groups: GroupsState, command: DescribeMoves) -> Decision:
    """Say which moves are open, and which that were asked for are over; `find_moving` refuses what is none."""
    found = tuple(describe_moves(groups, find_moving(groups, command.group_id)))
    return Decision(effects=(Reply(command.request, DescribeMovesReply(moves=found)),))


def describe_moves(groups: GroupsState, group: ConsumerGroup) -> Iterator[MoveStatus]:
    """The open moves of a group by topic and partition, then those asked for that are over, the latest first."""
    names = {topic_id: facts.name for topic_id, facts in groups.image.by_id.items()}
    found = [(names[place[0]], place, move) for place, move in _find_open(group) if place[0] in names]
    for topic, place, move in sorted(found, key=lambda each: (each[0], each[1][1])):
        is_submitted = group.submitted.get(place) is move
        yield _status(topic, place[1], move, _phase(group, place), is_submitted=is_submitted)
    ended = [(place, move) for place, move in group.submitted.items() if move.granted_ms >= 0 and place[0] in names]
    for place, move in sorted(ended, key=lambda each: (-each[1].granted_ms, names[each[0][0]], each[0][1])):
        yield _status(names[place[0]], place[1], move, "granted", is_submitted=True)


def _find_open(group: ConsumerGroup) -> Iterator[tuple[Place, MoveFacts]]:
    """What moves, be it only that it waits; what a restart has forgotten is found again."""
    takers = {move.taker for move in group.waiting.values()} & group.members.keys()
    for member_id in group.behind | takers:
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items():
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                place, holder = (topic_id, partition), holders.get(partition)
                if holder == member_id:
                    continue
                known = group.submitted.get(place)
                if known is None or known.granted_ms >= 0:
                    known = group.moves.get(place)
                if known is not None:
                    yield place, known
                elif holder is not None:
                    granted = granted_epoch_of(group.members[holder], place)
                    yield place, MoveFacts(granted, holder, member_id, group.target_timestamp_ms or -1)


def _status(topic: str, partition: int, move: MoveFacts, phase: str, *, is_submitted: bool) -> MoveStatus:
    return MoveStatus(
        move_id=move_id(topic, partition, move.granted_epoch),
        topic=topic,
        partition=partition,
        from_member_id=move.from_member_id,
        to_member_id=move.to_member_id,
        phase=phase,
        cause=BY_ADMINISTRATOR if is_submitted else BY_ASSIGNOR,
        submitted_ms=move.submitted_ms,
        # After a restart it may wait once more.
        begun_ms=-1 if phase == "waiting" else move.begun_ms,
        fenced_ms=move.fenced_ms,
        committed_ms=move.committed_ms,
        granted_ms=move.granted_ms,
    )


def _phase(group: ConsumerGroup, place: Place) -> str:
    topic_id, partition = place
    holder = group.members.get(group.holders.get(topic_id, {}).get(partition, ""))
    if place in group.waiting:
        return "waiting"
    if holder is None:
        return "committed"
    return "fenced" if partition in holder.pending_revocation.get(topic_id, {}) else "revoking"
