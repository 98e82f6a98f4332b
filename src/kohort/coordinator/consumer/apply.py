"""Application of records to KIP-848 groups, for live decisions and for recovery from the log.

Laws: no decision is made here. A record for a group or member that does not exist creates it, or has no effect if it is
a tombstone: compaction may have removed earlier records of a log (KAFKA-19862).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from kohort.coordinator import commands, model
from kohort.coordinator.consumer.member_metadata import apply_metadata_forgotten, put_metadata
from kohort.coordinator.consumer.reconciliation.effective_target import follow_release, follow_target, note_reconciled
from kohort.coordinator.consumer.regex import PatternSeen, apply_seen
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.model import NO_GRANTS, NO_NAMES, NO_PATTERNS, NO_TARGET, NOBODY, ConsumerGroup, ConsumerMember
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import MemberState

Key = TypeVar("Key")


def apply_epoch_set(groups: model.GroupsState, record: facts.ConsumerGroupEpochSet) -> None:
    """Set the group epoch (type 3)."""
    group = group_of(groups, record.group_id)
    group.epoch = record.epoch
    group.metadata_hash = record.metadata_hash
    if group.balance is not None and group.balance.metadata_hash != record.metadata_hash:
        group.balance = None


def apply_group_forgotten(groups: model.GroupsState, record: facts.ConsumerGroupForgotten) -> None:
    """Remove the group (tombstone of type 3)."""
    groups.consumer.pop(record.group_id, None)


def apply_member_subscribed(groups: model.GroupsState, record: facts.ConsumerMemberSubscribed) -> None:
    """Set a member and its subscription (type 5)."""
    group = group_of(groups, record.group_id)
    member = _member(group, record.member_id)
    _count_subscription(group, member, -1)
    _forget_name(group, member)
    member.instance_id = record.instance_id
    member.rack_id = record.rack_id
    same = groups.sharing.plain
    member.client_id = same(record.client_id)
    member.client_host = same(record.client_host)
    member.subscribed_topic_names = same(record.subscribed_topic_names)
    member.subscribed_topic_regex = record.subscribed_topic_regex
    member.rebalance_timeout_ms = same(record.rebalance_timeout_ms)
    _count_vote(group, member, -1)
    member.server_assignor = record.server_assignor
    _count_vote(group, member, 1)
    _count_classic(group, member.classic, -1)
    member.classic = record.classic
    _count_classic(group, member.classic, 1)
    _count_subscription(group, member, 1)
    if member.instance_id is not None:
        if group.instance_ids is NO_NAMES:
            group.instance_ids = {}
        group.instance_ids[member.instance_id] = member.member_id


def apply_member_forgotten(groups: model.GroupsState, record: facts.ConsumerMemberForgotten) -> None:
    """Remove a member (tombstone of type 5), and release the partitions that it still owns."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    member = group.members.pop(record.member_id, None)
    if member is not None:
        if group.balance is not None and not group.balance.remove_member(
            member.member_id, group.targets.get(member.member_id)
        ):
            group.balance = None
        _count_classic(group, member.classic, -1)
        _count_subscription(group, member, -1)
        _count_vote(group, member, -1)
        _forget_name(group, member)
        group.behind.discard(member.member_id)
        if group.client_assignors is not None:
            group.client_assignors.forget_member(member.member_id)
        held, member.assigned = member.assigned, NO_GRANTS
        _release(group, member.member_id, held, member.pending_revocation)
        if group.waiting:
            follow_release(group, member, held)


def apply_target_epoch_set(groups: model.GroupsState, record: facts.TargetAssignmentEpochSet) -> None:
    """Set the epoch of the target assignment (type 6)."""
    group = group_of(groups, record.group_id)
    group.target_epoch = record.assignment_epoch
    group.target_timestamp_ms = record.assignment_timestamp_ms
    if group.target_epoch >= group.epoch:
        # The target is as new as the group: no computation is awaited, whatever is still running.
        group.window_opened_ms = 0
        group.computing = group.failure = None
    if group.client_assignors is not None:
        group.client_assignors.forget_failures()


def apply_target_epoch_forgotten(groups: model.GroupsState, record: facts.TargetAssignmentEpochForgotten) -> None:
    """Remove the epoch of the target assignment (tombstone of type 6)."""
    group = groups.consumer.get(record.group_id)
    if group is not None:
        group.target_epoch = 0
        group.target_timestamp_ms = 0


def apply_member_target_set(groups: model.GroupsState, record: facts.MemberTargetSet) -> None:
    """Set the target of a member (type 7)."""
    group = group_of(groups, record.group_id)
    _follow_target(group, record.member_id, record.partitions)
    member = group.members.get(record.member_id)
    # The id object that the member has already, rather than the record's copy of it.
    member_id = record.member_id if member is None else member.member_id
    group.targets[member_id] = groups.sharing.target(record.partitions)
    if group.waiting:
        follow_target(group, member_id, record.partitions)
    if member is not None:
        note_reconciled(group, member)


def apply_member_target_forgotten(groups: model.GroupsState, record: facts.MemberTargetForgotten) -> None:
    """Remove the target of a member (tombstone of type 7)."""
    group = groups.consumer.get(record.group_id)
    if group is not None:
        _follow_target(group, record.member_id, NO_TARGET)
        group.targets.pop(record.member_id, None)
        member = group.members.get(record.member_id)
        if member is not None:
            note_reconciled(group, member)


def apply_current_assignment_set(groups: model.GroupsState, record: facts.CurrentAssignmentSet) -> None:
    """Set the current assignment of a member (type 8)."""
    group = group_of(groups, record.group_id)
    member = _member(group, record.member_id)
    held = member.assigned
    _release(group, member.member_id, held, member.pending_revocation)
    member.member_epoch = record.member_epoch
    member.previous_member_epoch = record.previous_member_epoch
    member.state = record.state
    member.assigned = groups.sharing.grants(record.assigned or NO_GRANTS)
    member.pending_revocation = groups.sharing.grants(record.pending_revocation or NO_GRANTS)
    if not record.pending_revocation:
        member.revoke_by = NO_GRANTS
    _hold(group, member.member_id, member.assigned)
    _hold(group, member.member_id, member.pending_revocation)
    if group.waiting:
        follow_release(group, member, held)
    note_reconciled(group, member)


def apply_current_assignment_forgotten(groups: model.GroupsState, record: facts.CurrentAssignmentForgotten) -> None:
    """Remove the current assignment of a member (tombstone of type 8)."""
    group = groups.consumer.get(record.group_id)
    member = None if group is None else group.members.get(record.member_id)
    if group is None or member is None:
        return
    held = member.assigned
    _release(group, member.member_id, held, member.pending_revocation)
    member.member_epoch = 0
    member.previous_member_epoch = -1
    member.state = MemberState.STABLE
    member.assigned = NO_GRANTS
    member.pending_revocation = NO_GRANTS
    if group.waiting:
        follow_release(group, member, held)
    note_reconciled(group, member)


def apply_submitted_move_set(groups: model.GroupsState, record: facts.SubmittedMoveSet) -> None:
    """Set the progress of a submitted move (type 20,002)."""
    group_of(groups, record.group_id).submitted[record.topic_id, record.partition] = record.move


def apply_submitted_move_forgotten(groups: model.GroupsState, record: facts.SubmittedMoveForgotten) -> None:
    """Remove a submitted move (tombstone of type 20,002)."""
    group = groups.consumer.get(record.group_id)
    if group is not None:
        group.submitted.pop((record.topic_id, record.partition), None)


def apply_metadata_set(groups: model.GroupsState, record: facts.MemberMetadataSet) -> None:
    """Set the published metadata of a member (type 20,008)."""
    put_metadata(group_of(groups, record.group_id), record)


def apply_connection_seen(groups: model.GroupsState, record: facts.MemberConnectionSeen) -> None:
    """Note that the connection of a member is closed, or that the member has sent a request since."""
    member = groups.find_member(record.group_id, record.member_id)
    if member is not None:
        member.is_disconnected = record.is_gone


def apply_regex_resolved(groups: model.GroupsState, record: facts.RegularExpressionResolved) -> None:
    """Set the topics of a pattern (type 16)."""
    _resolve(group_of(groups, record.group_id), record.regex, record)


def apply_regex_forgotten(groups: model.GroupsState, record: facts.RegularExpressionForgotten) -> None:
    """Remove the topics of a pattern (tombstone of type 16)."""
    group = groups.consumer.get(record.group_id)
    if group is not None:
        _resolve(group, record.regex, None)


def group_of(groups: model.GroupsState, group_id: str) -> ConsumerGroup:
    """Return the group of a record; create it if it does not exist."""
    group = groups.consumer.get(group_id)
    if group is None:
        # An id is of one type only; compaction may have removed the tombstone of the other type.
        groups.classic.pop(group_id, None)
        group = groups.consumer[group_id] = ConsumerGroup(group_id)
        # Before the first topic image a log is read, which does not say which moves waited.
        group.has_held_back = not groups.image.version
    return group


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        member = group.members[member_id] = ConsumerMember(group.group_id, member_id)
        if group.balance is not None:
            group.balance.add_member(member_id)
        _count_subscription(group, member, 1)
        note_reconciled(group, member)
    return member


def _follow_target(group: ConsumerGroup, member_id: str, target: facts.Target) -> None:
    """Update the cached balance of the target, or discard it: it is rebuilt when needed."""
    balance = group.balance
    if balance is not None and not balance.change_target(member_id, group.targets.get(member_id), target):
        group.balance = None


def _hold(group: ConsumerGroup, member_id: str, grants: facts.Grants) -> None:
    for topic_id, partitions in grants.items():
        holders = group.holders.setdefault(topic_id, {})
        for partition in partitions:
            holders[partition] = member_id


def _release(group: ConsumerGroup, member_id: str, *held: facts.Grants) -> None:
    for grants in held:
        for topic_id, partitions in grants.items():
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                # While a log is read, a later grant of another member may have come first.
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                group.holders.pop(topic_id, None)


def _forget_name(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Free the member's instance id, unless another member holds it already."""
    if member.instance_id is not None and group.instance_ids.get(member.instance_id) == member.member_id:
        del group.instance_ids[member.instance_id]


def _resolve(group: ConsumerGroup, regex: str, resolved: facts.RegularExpressionResolved | None) -> None:
    """Set or remove the topics of a pattern, and update the subscriber counts of topics."""
    concerned = [member for member in group.members.values() if member.subscribed_topic_regex == regex]
    # Many members have equal subscriptions: each set of topics is walked through once.
    for topics, count in Counter(topics_of(group, member) for member in concerned).items():
        _count_topics(group, topics, -count)
    if resolved is None:
        group.regexes.pop(regex, None)
        if group.sights:
            group.sights.pop(regex, None)
    else:
        if group.regexes is NO_PATTERNS:
            group.regexes = {}
        group.regexes[regex] = resolved
    for topics, count in Counter(topics_of(group, member) for member in concerned).items():
        _count_topics(group, topics, count)


def _count_subscription(group: ConsumerGroup, member: ConsumerMember, by: int) -> None:
    _count_topics(group, topics_of(group, member), by)
    if member.subscribed_topic_regex is not None:
        group.regex_subscribers = _own(group.regex_subscribers)
        _count(group.regex_subscribers, member.subscribed_topic_regex, by)


def _count_topics(group: ConsumerGroup, topics: tuple[str, ...], by: int) -> None:
    _count(group.subscriptions, topics, by)
    for name in topics:
        _count(group.topic_subscribers, name, by)


def _count_classic(group: ConsumerGroup, classic: commands.ClassicMemberFacts | None, by: int) -> None:
    if classic is None:
        return
    group.classic_count += by
    group.classic_metadata_bytes += by * classic.metadata_bytes
    group.classic_protocols = _own(group.classic_protocols)
    for name in classic.protocol_names:
        _count(group.classic_protocols, name, by)


def _count_vote(group: ConsumerGroup, member: ConsumerMember, by: int) -> None:
    if member.server_assignor is not None:
        group.assignor_votes = _own(group.assignor_votes)
        _count(group.assignor_votes, member.server_assignor, by)


def _own(counts: dict[str, int]) -> dict[str, int]:
    return {} if counts is NOBODY else counts


def _count(counts: dict[Key, int], key: Key, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


#: Record type -> function that applies it to KIP-848 groups.
CONSUMER_RECORDS: Final[dict[type[facts.Record], Callable[..., None]]] = {
    facts.ConsumerGroupEpochSet: apply_epoch_set,
    facts.ConsumerGroupForgotten: apply_group_forgotten,
    facts.ConsumerMemberSubscribed: apply_member_subscribed,
    facts.ConsumerMemberForgotten: apply_member_forgotten,
    facts.TargetAssignmentEpochSet: apply_target_epoch_set,
    facts.TargetAssignmentEpochForgotten: apply_target_epoch_forgotten,
    facts.MemberTargetSet: apply_member_target_set,
    facts.MemberTargetForgotten: apply_member_target_forgotten,
    facts.CurrentAssignmentSet: apply_current_assignment_set,
    facts.CurrentAssignmentForgotten: apply_current_assignment_forgotten,
    facts.MemberConnectionSeen: apply_connection_seen,
    facts.SubmittedMoveSet: apply_submitted_move_set,
    facts.SubmittedMoveForgotten: apply_submitted_move_forgotten,
    facts.MemberMetadataSet: apply_metadata_set,
    facts.MemberMetadataForgotten: apply_metadata_forgotten,
    facts.RegularExpressionResolved: apply_regex_resolved,
    PatternSeen: apply_seen,
    facts.RegularExpressionForgotten: apply_regex_forgotten,
}
