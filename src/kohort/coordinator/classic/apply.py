"""Application of records to classic groups, for live decisions and for recovery from the log.

Laws: a record is applied as it is; no decision is made here. An impossible record is a bug and fails an assertion.
"""

from __future__ import annotations

from kohort.base.values import from_row
from kohort.coordinator.classic import state as volatile
from kohort.coordinator.records import types as facts


def apply_classic(groups: dict[str, volatile.ClassicGroup], record: facts.Record) -> None:
    """Apply `record` to `groups` (group id -> group).

    A record of another family than classic groups is a bug of the caller.
    """
    match record:
        case facts.ClassicGroupForgotten() | volatile.ClassicGroupDropped():
            groups.pop(record.group_id, None)
        case volatile.ClassicGroupOpened():
            assert record.group_id not in groups, "a group was opened twice"
            groups[record.group_id] = volatile.ClassicGroup(record.group_id)
        case facts.ClassicGroupStored():
            group = groups.get(record.group_id)
            if group is None:
                group = groups[record.group_id] = volatile.ClassicGroup(record.group_id)
            _apply_stored(group, record)
        case facts.ClassicRebalanceDue():
            # In a compacted log it may come before the group's own record.
            groups.setdefault(record.group_id, volatile.ClassicGroup(record.group_id)).due = record
        case facts.ClassicRebalanceDone():
            if record.group_id in groups:
                groups[record.group_id].due = None
        case _:
            _apply_volatile(groups[record.group_id], record)


def _apply_volatile(group: volatile.ClassicGroup, record: facts.Record) -> None:
    match record:
        case volatile.MemberIdHandedOut():
            group.pending[record.member_id] = None
        case volatile.PendingMemberRemoved():
            group.pending.pop(record.member_id, None)
        case volatile.MemberPut():
            _apply_member_put(group, record)
        case volatile.MemberRemoved():
            _apply_member_removed(group, record.member_id)
        case volatile.StaticMemberReplaced():
            _apply_member_replaced(group, record)
        case volatile.JoinDelayed():
            assert record.member_id in group.members, "who waits is a member"
            group.awaiting_join[record.member_id] = record.request
        case volatile.ClassicConnectionLost():
            group.awaiting_join.pop(record.member_id, None)
            # The member counts as one that has not sent SyncGroup yet.
            if group.awaiting_sync.pop(record.member_id, None) is not None:
                group.unsynced[record.member_id] = None
        case volatile.RebalanceBegun():
            assert not group.awaiting_sync, "a rebalance leaves no SyncGroup waiting"
            _enter(group, volatile.ClassicGroupState.PREPARING_REBALANCE, record.timestamp_ms)
            group.rebalance_reason = record.reason
            group.initial_remaining_ms = record.initial_remaining_ms
            group.new_member_added = False
            # A new rebalance makes assignments and replacements of the old generation obsolete.
            group.unsynced, group.handed_on = {}, {}
        case volatile.InitialDelayExtended():
            group.initial_remaining_ms = record.initial_remaining_ms
            group.new_member_added = False
        case volatile.GenerationBegun():
            _apply_generation_begun(group, record)
        case volatile.SyncReceived():
            group.unsynced.pop(record.member_id, None)
            if record.request is not None:
                group.awaiting_sync[record.member_id] = record.request
        case volatile.SyncsAnswered():
            group.awaiting_sync = {}
        case _:
            _apply_static_mode(group, record)


def _apply_static_mode(group: volatile.ClassicGroup, record: facts.Record) -> None:
    match record:
        case volatile.NewMemberHosted():
            group.new_members.pop(record.member_id, None)
        case volatile.NewMemberPending():
            instance_id = record.pending_join.member.instance_id
            assert instance_id is not None and instance_id not in group.instance_ids, (
                "a pending join is not of a member"
            )
            group.pending_joins[instance_id] = record.pending_join
        case volatile.NewMemberGone():
            group.pending_joins.pop(record.instance_id, None)
        case volatile.OfflineMemberEntered():
            _uncount(group, group.members[record.member.member_id])
            _count(group, record.member)
        case _:
            raise AssertionError(f"not a record of a classic group: {record!r}")


def _enter(group: volatile.ClassicGroup, state: volatile.ClassicGroupState, timestamp_ms: int) -> None:
    assert group.state in volatile.PREDECESSORS[state], f"{group.state.value} does not become {state.value}"
    group.state = state
    group.state_timestamp_ms = timestamp_ms


def _apply_generation_begun(group: volatile.ClassicGroup, record: volatile.GenerationBegun) -> None:
    away = [member for member_id, member in group.members.items() if member_id not in group.awaiting_join]
    assert all(member.instance_id is not None for member in away), "who did not rejoin and is not static is removed"
    assert record.generation > group.generation
    assert record.leader in group.awaiting_join
    _enter(group, volatile.ClassicGroupState.COMPLETING_REBALANCE, record.timestamp_ms)
    group.generation = record.generation
    group.protocol_name = record.protocol_name
    group.leader = record.leader
    group.initial_remaining_ms = None
    # Offline static members are not in the join phase, and no SyncGroup is expected of them.
    group.unsynced = dict.fromkeys(member_id for member_id in group.members if member_id in group.awaiting_join)
    group.awaiting_join = {}
    group.new_members = {}


def _apply_member_put(group: volatile.ClassicGroup, record: volatile.MemberPut) -> None:
    member = record.member
    # The first member decides the type of an empty group, and leads it.
    if not group.members:
        group.protocol_type = record.protocol_type
        group.leader = member.member_id
    older = group.members.get(member.member_id)
    if older is not None:
        _uncount(group, older)
    else:
        group.pending.pop(member.member_id, None)
        # Until its first JoinGroup is answered, the member may be removed while it waits.
        group.new_members[member.member_id] = None
        group.new_member_added = True
    _count(group, member)


def _apply_member_replaced(group: volatile.ClassicGroup, record: volatile.StaticMemberReplaced) -> None:
    former_id, member = record.replaced_id, record.member
    former = group.members[former_id]
    assert former.instance_id == member.instance_id, "an instance is replaced by itself"
    # The leader may be assigning for the former id, and its SyncGroup will name that id.
    if group.state is volatile.ClassicGroupState.COMPLETING_REBALANCE:
        told = volatile.FormerMember(former_id, former.metadata(group.protocol_name))
        group.handed_on[member.member_id] = group.handed_on.pop(former_id, told)
    _uncount(group, former)
    # The position in the order decides votes and the next leader; it belongs to the instance.
    group.members = {_renamed(member_id, record): found for member_id, found in group.members.items()}
    group.unsynced = dict.fromkeys(_renamed(member_id, record) for member_id in group.unsynced)
    for waiting in (group.awaiting_join, group.awaiting_sync, group.new_members):
        waiting.pop(former_id, None)
    group.pending.pop(member.member_id, None)
    _count(group, member)
    if group.leader == former_id:
        group.leader = member.member_id


def _renamed(member_id: str, record: volatile.StaticMemberReplaced) -> str:
    return record.member.member_id if member_id == record.replaced_id else member_id


def _apply_member_removed(group: volatile.ClassicGroup, member_id: str) -> None:
    member = group.members.pop(member_id)
    _uncount(group, member)
    if member.instance_id is not None and group.instance_ids.get(member.instance_id) == member_id:
        del group.instance_ids[member.instance_id]
    group.handed_on.pop(member_id, None)
    for waiting in (group.awaiting_join, group.awaiting_sync, group.unsynced, group.new_members):
        waiting.pop(member_id, None)
    # The member that joined first leads next.
    if group.leader == member_id:
        group.leader = next(iter(group.members), None)


def _apply_stored(group: volatile.ClassicGroup, record: facts.ClassicGroupStored) -> None:
    state = volatile.ClassicGroupState.STABLE if record.members else volatile.ClassicGroupState.EMPTY
    # A live group keeps its members' other protocols; a group from the log has none.
    known = group.members
    group.members, group.instance_ids, group.protocol_counts, group.metadata_bytes = {}, {}, {}, 0
    for stored in record.members:
        _count(group, _restore(stored, known.get(stored.member_id), record.protocol_name))
    group.state = state
    group.state_timestamp_ms = record.state_timestamp_ms
    group.protocol_type = record.protocol_type or None
    group.generation = record.generation
    group.protocol_name = record.protocol_name
    group.leader = record.leader
    group.initial_remaining_ms = None
    group.handed_on = {}
    group.stored = record


def _restore(
    stored: facts.StoredClassicMember, known: volatile.ClassicMember | None, protocol_name: str | None
) -> volatile.ClassicMember:
    protocols: tuple[tuple[str, bytes], ...] = ((protocol_name or "", stored.subscription),)
    if known is not None and known.metadata(protocol_name) == stored.subscription:
        # The record keeps one protocol only; the others of a live member are needed for the next vote.
        protocols = known.protocols
    return from_row(volatile.ClassicMember, stored, protocols=protocols)


def _count(group: volatile.ClassicGroup, member: volatile.ClassicMember) -> None:
    group.members[member.member_id] = member
    group.metadata_bytes += member.metadata_bytes
    for name in member.protocol_names:
        group.protocol_counts[name] = group.protocol_counts.get(name, 0) + 1
    if member.instance_id is not None:
        group.instance_ids[member.instance_id] = member.member_id


def _uncount(group: volatile.ClassicGroup, member: volatile.ClassicMember) -> None:
    group.metadata_bytes -= member.metadata_bytes
    for name in member.protocol_names:
        left = group.protocol_counts[name] - 1
        if left:
            group.protocol_counts[name] = left
        else:
            del group.protocol_counts[name]
