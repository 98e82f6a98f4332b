"""Members that run an assignor themselves, in dialogues with a coordinator."""

from __future__ import annotations

from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.commands import ClientAssignment, ClientAssignor, ConsumerGroupHeartbeatReply
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue


def assignor(
    name: str = "mine",
    low: int = 0,
    high: int = 1,
    *,
    reason: int = 0,
    version: int | None = None,
    metadata: bytes = b"",
) -> ClientAssignor:
    """One that a member has."""
    return ClientAssignor(name, low, high, reason, low if version is None else version, metadata)


def join(group: GroupDialogue, member_id: str, *assignors: ClientAssignor, **fields: Any) -> Answer:
    """A member joins with these assignors, with "mine" alone if none is named."""
    return group.heartbeat(member_id, epoch=0, client_assignors=assignors or (assignor(),), **fields)


def is_asked(answer: Answer) -> bool:
    """Whether a heartbeat's answer says that its member shall compute."""
    return bool(answer.body_as(ConsumerGroupHeartbeatReply).should_compute)


def said(answer: Answer) -> ClientAssignment | None:
    """What a heartbeat's answer says of the computation."""
    found: ClientAssignment | None = answer.body_as(ConsumerGroupHeartbeatReply).client_assignment
    return found


def beat(group: GroupDialogue, member_id: str, **fields: Any) -> Answer:
    """A heartbeat of a member that owns what it was given."""
    member = group.member(member_id)
    owned = {topic_id: tuple(sorted(grants)) for topic_id, grants in member.assigned.items()}
    names = {group.topic_id(name): name for name in group.topic_counts}
    return group.heartbeat(
        member_id,
        epoch=member.member_epoch,
        owned={names[topic_id]: partitions for topic_id, partitions in owned.items()},
        **fields,
    )


def given(group: GroupDialogue, member_id: str) -> commands.PrepareAssignmentReply:
    """What a member that was asked is told to assign."""
    answer = group.prepare(member_id, epoch=group.member(member_id).member_epoch)
    reply: commands.PrepareAssignmentReply = answer.body_as(commands.PrepareAssignmentReply)
    return reply


def compute(group: GroupDialogue, member_id: str, *owners: int, **fields: Any) -> Answer:
    """A member that was asked does its work: it fetches what there is to assign and gives partitions to `owners`."""
    epoch = given(group, member_id).group_epoch
    return group.install(member_id, owners, epoch=group.member(member_id).member_epoch, group_epoch=epoch, **fields)
