"""Moves of partitions between members of a KIP-848 group, and their progress.

A move is named after its partition and the epoch at which the old owner was granted it: a grant ends once, and a
restart finds the same name again.

Laws: the open moves follow from targets and assignments alone; `track_moves` has their observed progress, and the
submitted moves that have ended. No decision is made here.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.coordinator.commands.admin import DescribeMoves, DescribeMovesReply, MoveStatus
from kohort.coordinator.consumer.describe import find_moving
from kohort.coordinator.consumer.reconciliation.track_moves import granted_epoch_of
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, GroupsState, Place
from kohort.coordinator.records import MoveFacts

#: Phases of a move, in order: it waits for the pace; the old owner has yet to learn of it; the old owner may not use
#: the partition any more; the old owner has committed and revoked it; the new owner has it.
PHASES: Final = ("waiting", "revoking", "fenced", "committed", "granted")
#: Causes of a move.
BY_ASSIGNOR: Final = "assignment"
BY_ADMINISTRATOR: Final = "administrator moved partitions"


def move_id(topic: str, partition: int, granted_epoch: int) -> str:
    """Return the name of the move that ends a grant."""
    return f"{topic}-{partition}@{granted_epoch}"


def decide_describe_moves(groups: GroupsState, command: DescribeMoves) -> Decision:
    """Describe the open moves and the submitted ones that have ended; `find_moving` refuses other groups."""
    found = tuple(describe_moves(groups, find_moving(groups, command.group_id)))
    return Decision(effects=(Reply(command.request, DescribeMovesReply(moves=found)),))


def describe_moves(groups: GroupsState, group: ConsumerGroup) -> Iterator[MoveStatus]:
    """Yield the open moves by topic and partition, then the ended submitted ones, the latest first."""
    names = {topic_id: facts.name for topic_id, facts in groups.image.by_id.items()}
    found = [(names[place[0]], place, move) for place, move in _find_open(group) if place[0] in names]
    for topic, place, move in sorted(found, key=lambda each: (each[0], each[1][1])):
        is_submitted = group.submitted.get(place) is move
        yield _status(topic, place[1], move, _phase(group, place), is_submitted=is_submitted)
    ended = [(place, move) for place, move in group.submitted.items() if move.granted_ms >= 0 and place[0] in names]
    for place, move in sorted(ended, key=lambda each: (-each[1].granted_ms, names[each[0][0]], each[0][1])):
        yield _status(names[place[0]], place[1], move, "granted", is_submitted=True)


def _find_open(group: ConsumerGroup) -> Iterator[tuple[Place, MoveFacts]]:
    """Yield the open and waiting moves, also those without the progress that a restart has forgotten."""
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
