"""Static members of a KIP-848 group: an instance id (`group.instance.id`) outlives its processes.

A member that leaves with epoch -2 is away: its partitions stay reserved until its session ends. A process that joins
with its instance id gets them back in one heartbeat, without a new group epoch if it subscribes to the same topics.
Another member id may take over the instance id only while the member is away, or once its connection is known to be
closed (`is_disconnected`); in a static group (`static_membership`) at any time.

Laws: an instance id has one member. A member that is away reads no partition, so partitions that are no longer in its
target are free at once. A member that lost its instance id is fenced with its next request.
Source: KIP-345 as KIP-848 has it; Apache Kafka's `getOrMaybeSubscribeStaticConsumerMember`, `consumerGroupLeave`.
Unlike Apache Kafka's: a member that joins again under its own id is not refused (the response to its first join was
lost), a new process does not wait for the session timeout of a crashed one, and no member waits for partitions that a
member which is away has to give up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kohort.coordinator.commands import LEAVE_STATIC_EPOCH, ConsumerGroupHeartbeat
from kohort.coordinator.consumer import tombstones
from kohort.coordinator.consumer.reconciliation import effective_target, reconcile
from kohort.coordinator.decision import Additions, Disarm, TimerKey, TimerKind
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember
from kohort.coordinator.records import types as facts
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId


def is_away(member: ConsumerMember) -> bool:
    """Return whether a static member has left for a while (epoch -2)."""
    return member.member_epoch == LEAVE_STATIC_EPOCH


def decide_connection_gone(group: ConsumerGroup, member_id: str) -> list[facts.Record]:
    """Note that the connection of a static member was closed."""
    # A new process with its instance id may then take over at once; a heartbeat of its own removes the mark. There is
    # no other effect, and a restart forgets it: then the session timeout decides.
    member = group.members.get(member_id)
    if member is None or member.instance_id is None or member.is_disconnected:
        return []
    return [facts.MemberConnectionSeen(group_id=group.group_id, member_id=member_id, is_gone=True)]


def check_holder(group: ConsumerGroup, command: ConsumerGroupHeartbeat, member_id: str) -> None:
    """Check that a member holds the instance id in its request: FENCED_INSTANCE_ID if another does."""
    holder = bearer_of(group, command.instance_id, member_id)
    if holder is None:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"no member of the group {group.group_id} is called {command.instance_id}"
        )


def bearer_of(group: ConsumerGroup, instance_id: str | None, member_id: str) -> ConsumerMember | None:
    """Return the member with `instance_id`, `None` if there is none.

    Raises:
        Refused: FENCED_INSTANCE_ID if that member is not `member_id`.
    """
    holder_id = None if instance_id is None else group.instance_ids.get(instance_id)
    if holder_id is None:
        return None
    if holder_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id} belongs to another member now: two processes are configured with it, or "
            "this one was replaced",
        )
    return group.members[holder_id]


def find_predecessor(
    group: ConsumerGroup, command: ConsumerGroupHeartbeat, *, is_newest: bool
) -> ConsumerMember | None:
    """Return the member that a joining one replaces, `None` if its instance id is free or its own.

    `is_newest`: the newest process always gets the instance id, as in a static group.

    Raises:
        Refused: UNRELEASED_INSTANCE_ID if the holder of the instance id is present.
    """
    holder_id = None if command.instance_id is None else group.instance_ids.get(command.instance_id)
    if holder_id is None or holder_id == command.member_id:
        return None
    holder = group.members[holder_id]
    # Of classic members the newest one is alive for sure; the same holds where one of the two is a classic member.
    is_classic = holder.classic is not None or command.classic is not None
    if not (is_newest or is_away(holder) or holder.is_disconnected or is_classic):
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the instance id {command.instance_id} is in use by the member {holder_id}: give each process its own, "
            "or wait until that member has left or its session has ended",
        )
    # The member id is that of another member of the group.
    if command.member_id in group.members:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the member {command.member_id} is in the group already; a process takes a new member id to take the "
            f"place of {command.instance_id}",
        )
    return holder


def successor_of(predecessor: ConsumerMember, group_id: str, member_id: str) -> ConsumerMember:
    """Build a copy of the replaced member, with its partitions, under the new member id."""
    member = ConsumerMember(group_id, member_id)
    member.instance_id = predecessor.instance_id
    member.rack_id = predecessor.rack_id
    member.subscribed_topic_names = predecessor.subscribed_topic_names
    member.subscribed_topic_regex = predecessor.subscribed_topic_regex
    member.rebalance_timeout_ms = predecessor.rebalance_timeout_ms
    member.server_assignor = predecessor.server_assignor
    member.assigned = predecessor.assigned
    return member


def build_succession(
    group: ConsumerGroup, predecessor: ConsumerMember, subscribed: facts.ConsumerMemberSubscribed
) -> Additions:
    """Remove the replaced member, and pass its instance id and target to its successor.

    The reconciliation after that writes the successor's current assignment.
    """
    group_id, gone = group.group_id, predecessor.member_id
    records: list[facts.Record] = [*tombstones.build_member_tombstones(group_id, gone), subscribed]
    target = group.targets.get(gone, NO_TARGET)
    if target:
        records.append(facts.MemberTargetSet(group_id=group_id, member_id=subscribed.member_id, partitions=target))
    # The timers of a classic member end as well: the group may be a classic one when they fire.
    kinds: tuple[TimerKind, ...] = ("rebalance",) if predecessor.classic is None else ("rebalance", "join", "sync")
    return records, [Disarm(predecessor.session_key), *(Disarm(TimerKey(kind, group_id, gone)) for kind in kinds)]


def decide_absence(group: ConsumerGroup, member: ConsumerMember) -> Additions:
    """Mark a static member as away: it keeps the partitions of its target, and its session runs on."""
    if is_away(member):
        return [], []
    # Partitions outside of its target are free at once: a member that is away cannot revoke them.
    kept = _within(member.assigned, group.targets.get(member.member_id, NO_TARGET))
    record = _build_absence(group.group_id, member, kept)
    return [record], [Disarm(TimerKey("rebalance", group.group_id, member.member_id))]


def decide_release(
    group: ConsumerGroup, goal: reconcile.ReconciliationTarget, records: Collection[facts.Record]
) -> tuple[list[facts.Record], Mapping[TopicId, Mapping[int, str]]]:
    """Release partitions of members that are away, if `goal` has them and the members' targets do not.

    Returns:
        The records to write before the assignment of the goal's member, and the holders after them.
    """
    released: dict[str, ConsumerMember] = {}
    # A member that this decision replaces has no partition left to release.
    gone = {record.member_id for record in records if isinstance(record, facts.ConsumerMemberForgotten)}
    # Only partitions that the goal wants are of interest: others may stay reserved.
    for topic_id, wanted in goal.target.items():
        holders = goal.holders.get(topic_id, {})
        for partition in wanted:
            holder = group.members.get(holders.get(partition, ""))
            if holder is not None and is_away(holder) and holder.member_id not in gone:
                released[holder.member_id] = holder
    written: list[facts.Record] = []
    # The holders of the group must not change before the commit, so a copy is made.
    now = {topic_id: dict(holders) for topic_id, holders in goal.holders.items()} if released else {}
    for member_id, holder in released.items():
        # The target of this decision counts, if it has one.
        kept = _within(holder.assigned, effective_target.target_in(records, group, member_id))
        if kept == holder.assigned:
            continue
        written.append(_build_absence(group.group_id, holder, kept))
        for topic_id, grants in holder.assigned.items():
            for partition in grants.keys() - kept.get(topic_id, {}).keys():
                del now[topic_id][partition]
    return written, now


def _build_absence(group_id: str, member: ConsumerMember, kept: facts.Grants) -> facts.CurrentAssignmentSet:
    return facts.CurrentAssignmentSet(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=LEAVE_STATIC_EPOCH,
        previous_member_epoch=member.previous_member_epoch,
        state=facts.MemberState.STABLE,
        assigned=kept,
        pending_revocation={},
    )


def _within(grants: facts.Grants, target: Mapping[TopicId, tuple[int, ...]]) -> facts.Grants:
    kept: facts.Grants = {}
    for topic_id, partitions in grants.items():
        wanted = frozenset(target.get(topic_id, ()))
        stay = {partition: epoch for partition, epoch in partitions.items() if partition in wanted}
        if stay:
            kept[topic_id] = stay
    return kept
