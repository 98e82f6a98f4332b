"""Offsets that nobody reads by any more are forgotten after a while, and with the last of them the group.

Laws: an offset of a topic that a living group subscribes to, or that an open transaction is about to replace, is kept,
whatever its age. A group is forgotten only while it is empty and nothing is kept for it. One decision forgets only so
much, so that a batch of the log and a turn of the loop stay small.
Source: Apache Kafka's `OffsetMetadataManager.cleanupExpiredOffsets` and the offset expiration conditions of its groups
(KIP-211, KIP-496). Kafka counts from the moment at which the group became empty even for what was committed later, by
an administrator; here the later one of the two counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, topics_of
from kohort.coordinator.commands import ExpireOffsets, ExpireOffsetsReply
from kohort.coordinator.consumer.targets.window import assignment_key
from kohort.coordinator.consumer.tombstones import build_group_tombstones
from kohort.coordinator.decision import Decision, Disarm, Effect, Reply
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import ClassicGroupForgotten, OffsetCommitted, OffsetForgotten, Record
from kohort.coordinator.settings import GroupSettings

#: Offsets that one decision forgets at most.
EXPIRED_AT_ONCE: Final = 1_000
_MINUTE_MS: Final = 60_000


def decide_expire(groups: GroupsState, command: ExpireOffsets, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Look at the groups in the order in which they are named, until as much is forgotten as one decision may."""
    retention_ms = settings.offsets_retention_minutes * _MINUTE_MS
    records: list[Record] = []
    effects: list[Effect] = []
    expired = removed = 0
    unfinished: tuple[str, ...] = ()
    for position, group_id in enumerate(command.group_ids):
        old = list(_expired(groups, group_id, retention_ms, now_ms=now_ms))
        room = EXPIRED_AT_ONCE - expired
        records.extend(_tombstone(offset) for offset in old[:room])
        expired += min(len(old), room)
        if len(old) > room:
            unfinished = command.group_ids[position:]
            break
        if _keeps_more(groups, group_id, len(old)):
            continue
        tombstones = _forget_group(groups, group_id)
        if tombstones:
            removed += 1
            records.extend(tombstones)
            effects.append(Disarm(assignment_key(group_id)))
    reply = ExpireOffsetsReply(unfinished=unfinished, expired=expired, removed=removed)
    return Decision(tuple(records), (Reply(command.request, reply), *effects))


def _expired(groups: GroupsState, group_id: str, retention_ms: int, *, now_ms: int) -> Iterator[OffsetCommitted]:
    """The offsets of one group that may be forgotten."""
    topics = groups.offsets.get(group_id)
    in_use = _topics_in_use(groups, group_id)
    if not topics or in_use is None:
        return
    classic = groups.classic.get(group_id)
    # A group without a type never had a member: who commits to it comes and goes unseen.
    since_ms = classic.state_timestamp_ms if classic is not None and classic.protocol_type else 0
    if classic is not None and classic.members:
        since_ms = 0
    pending = groups.pending_offsets.get(group_id, {})
    for topic, partitions in topics.items():
        if topic in in_use:
            continue
        for partition, offset in partitions.items():
            if (topic, partition) in pending:
                continue
            over_ms = max(since_ms, offset.commit_timestamp_ms) + retention_ms
            # A client that named a time of its own is taken at its word.
            if now_ms >= (over_ms if offset.expire_timestamp_ms == -1 else offset.expire_timestamp_ms):
                yield offset


def _topics_in_use(groups: GroupsState, group_id: str) -> Collection[str] | None:
    """What the members of a group read; `None` where that is not known or about to change."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        return consumer.topic_subscribers
    if classic is None or classic.state is ClassicGroupState.EMPTY:
        return ()
    is_known = classic.state is ClassicGroupState.STABLE and classic.protocol_type == CONSUMER_PROTOCOL_TYPE
    return topics_of(classic) if is_known else None


def _tombstone(offset: OffsetCommitted) -> OffsetForgotten:
    return OffsetForgotten(group_id=offset.group_id, topic=offset.topic, partition=offset.partition)


def _keeps_more(groups: GroupsState, group_id: str, count: int) -> bool:
    if group_id in groups.pending_offsets:
        return True
    return sum(map(len, groups.offsets.get(group_id, {}).values())) > count


def _forget_group(groups: GroupsState, group_id: str) -> list[Record]:
    """The tombstones of a group in which nobody is and nobody is expected; none if somebody is."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        return [] if consumer.members else build_group_tombstones(consumer)
    if classic is None or classic.state is not ClassicGroupState.EMPTY or classic.pending:
        return []
    return [ClassicGroupForgotten(group_id=group_id)]
