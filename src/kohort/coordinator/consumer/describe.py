"""Descriptions of KIP-848 groups for tools.

Source: Apache Kafka's `ConsumerGroup.asDescribedGroup`; states as KIP-848 names them.
"""

from __future__ import annotations

from kohort.coordinator.commands.admin import DescribeConsumerGroup, DescribeConsumerGroupReply, DescribedConsumerMember
from kohort.coordinator.consumer.client_assignors.choice import choice_of
from kohort.coordinator.consumer.member_metadata import metadata_of
from kohort.coordinator.consumer.reconciliation.reconciled import known_epoch
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock, offline_since_ms
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId

#: `DescribedConsumerMember.member_type` of a classic member, and of a member of the consumer protocol.
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def state_of(group: ConsumerGroup, *, is_paused: bool = False) -> str:
    """Return the state in Kafka's spelling: Empty, Assigning, Reconciling or Stable.

    A rebalance is not over while moves wait for the pace. Where moves are paused the group counts as stable: a tool
    that waits for a stable group would otherwise wait for an administrator.
    """
    if not group.members:
        return "Empty"
    if group.epoch > group.target_epoch:
        return "Assigning"
    return "Reconciling" if group.behind or (group.waiting and not is_paused) else "Stable"


def decide_describe(groups: GroupsState, command: DescribeConsumerGroup, settings: GroupSettings) -> Decision:
    """Describe one group; `find_group` refuses any other."""
    group = find_group(groups, command.group_id)
    clock = groups.clocks.get(group.group_id)
    members = tuple(_describe_member(group, group.members[member_id], clock) for member_id in sorted(group.members))
    reply = DescribeConsumerGroupReply(
        group_id=group.group_id,
        state=state_of(group, is_paused=settings.group_moves_paused),
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=choice_of(group, settings).name,
        members=members,
        topic_names=_names(groups, members),
        is_static=settings.is_static,
        assignor_failure=_failure_of(group),
    )
    return Decision(effects=(Reply(command.request, reply),))


def find_group(groups: GroupsState, group_id: str) -> ConsumerGroup:
    """Return the KIP-848 group that an administrator names.

    Raises:
        Refused: GROUP_ID_NOT_FOUND for an unknown or classic one.
    """
    group = groups.consumer.get(group_id)
    if group is None:
        why = "is not a consumer group" if group_id in groups.classic else "does not exist"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group_id} {why}")
    return group


def find_moving(groups: GroupsState, group_id: str) -> ConsumerGroup:
    """Return the KIP-848 group of an administrator's request about moves.

    Raises:
        Refused: GROUP_ID_NOT_FOUND; INCONSISTENT_GROUP_PROTOCOL for a classic one, whose leader assigns.
    """
    if group_id in groups.classic:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group {group_id} is a classic one: its leader shares the partitions out, and only a group of the "
            "consumer protocol has moves",
        )
    return find_group(groups, group_id)


def _failure_of(group: ConsumerGroup) -> str:
    if group.failure is not None:
        return f"{group.failure.assignor}: {group.failure.error}"
    return "" if group.client_side is None else group.client_side.failure


def _describe_member(
    group: ConsumerGroup, member: ConsumerMember, clock: StaticClock | None
) -> DescribedConsumerMember:
    # KAFKA-20431: a member still owns its pending revocations, and an operator has to see where they are.
    held: dict[TopicId, set[int]] = {topic_id: set(grants) for topic_id, grants in member.assigned.items()}
    for topic_id, grants in member.pending_revocation.items():
        held.setdefault(topic_id, set()).update(grants)
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=known_epoch(group, member),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment={topic_id: tuple(sorted(partitions)) for topic_id, partitions in held.items()},
        target_assignment=dict(group.targets.get(member.member_id, NO_TARGET)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        offline_since_ms=offline_since_ms(clock, member.member_id),
        metadata=metadata_of(group, member.member_id),
    )


def _names(groups: GroupsState, members: tuple[DescribedConsumerMember, ...]) -> dict[TopicId, str]:
    """Return the name of every topic in `members`; a deleted topic has none."""
    mentioned = {topic_id for member in members for topic_id in (*member.assignment, *member.target_assignment)}
    by_id = groups.image.by_id
    return {topic_id: by_id[topic_id].name for topic_id in sorted(mentioned) if topic_id in by_id}
