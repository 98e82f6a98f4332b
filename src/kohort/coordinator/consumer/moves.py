"""Moves: partitions that a group's target gives to one member while another one has them.

A move has the name of its partition and of the epoch at which its old owner was granted it: one owner's time with a
partition ends once, and a restart finds the same name again.

Laws: what is open follows from targets and assignments alone, and a restart finds it again; times do not outlive it.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.coordinator.commands import DescribeMoves, DescribeMovesReply, MoveStatus
from kohort.coordinator.consumer.describe import find_group
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, GroupsState
from kohort.ids import TopicId

#: On its way a move is here, in this order: it waits for the pace; its old owner is to hear of it; that one may not use
#: the partition any more; it has committed and given it up; the new owner has it.
PHASES: Final = ("waiting", "revoking", "fenced", "committed", "granted")


def move_id(topic: str, partition: int, granted_epoch: int) -> str:
    """The name of the move that ends what was granted at that epoch."""
    return f"{topic}-{partition}@{granted_epoch}"


def decide_describe_moves(groups: GroupsState, command: DescribeMoves) -> Decision:
    """Say which moves are open; refuses what is no KIP-848 group as `find_group` does."""
    group = find_group(groups, command.group_id)
    found = sorted(_open_moves(groups, group), key=lambda move: (move.topic, move.partition))
    return Decision(effects=(Reply(command.request, DescribeMovesReply(moves=tuple(found))),))


def _open_moves(groups: GroupsState, group: ConsumerGroup) -> Iterator[MoveStatus]:
    for member_id in group.behind:
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items():
            facts = groups.image.by_id.get(topic_id)
            if facts is None:
                continue
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                holder = holders.get(partition, member_id)
                if holder != member_id:
                    yield _status(group, (topic_id, facts.name, partition), holder, member_id)


def _status(group: ConsumerGroup, place: tuple[TopicId, str, int], holder_id: str, member_id: str) -> MoveStatus:
    topic_id, topic, partition = place
    holder = group.members[holder_id]
    pending = holder.pending_revocation.get(topic_id, {}).get(partition)
    granted = holder.assigned[topic_id][partition] if pending is None else pending
    return MoveStatus(
        move_id=move_id(topic, partition, granted),
        topic=topic,
        partition=partition,
        from_member_id=holder_id,
        to_member_id=member_id,
        phase="revoking" if pending is None else "fenced",
        cause="",
        submitted_ms=group.target_timestamp_ms or -1,
        begun_ms=-1,
        fenced_ms=-1,
        committed_ms=-1,
        granted_ms=-1,
    )
