"""Removal of committed offsets: OffsetDelete, DeleteGroups, and deleted topics.

Source: Apache Kafka's `OffsetMetadataManager.deleteOffsets` and `GroupMetadataManager.deleteGroups`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, topics_of
from kohort.coordinator.commands import Done, ExpireOffsets, ExpireOffsetsReply, TopicsChanged
from kohort.coordinator.commands.admin import DeleteGroup, DeleteOffsets, DeleteOffsetsReply
from kohort.coordinator.consumer.assignment import batching_window, target
from kohort.coordinator.consumer.tombstones import build_group_tombstones
from kohort.coordinator.decision import Decision, Disarm, Effect, Reply
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records.types import ClassicGroupForgotten, OffsetCommitted, OffsetForgotten, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import ZERO_TOPIC_ID


def decide_delete_offsets(groups: GroupsState, command: DeleteOffsets) -> Decision:
    """Forget offsets of partitions without subscribers in the group; raises `Refused` for the request."""
    is_subscribed = _subscription_test(groups, command.group_id)
    known = set(_partitions_of(groups, command.group_id))
    image = groups.image
    records: list[Record] = []
    errors: list[ErrorCode] = []
    for topic, partition in dict.fromkeys(command.partitions):
        if (topic, partition) in known and not is_subscribed(topic):
            records.append(OffsetForgotten(group_id=command.group_id, topic=topic, partition=partition))
    for topic, partition in command.partitions:
        known_topic = image.by_name.get(topic)
        is_there = known_topic is not None and 0 <= partition < known_topic.partition_count
        if is_subscribed(topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        elif image.version and not is_there and (topic, partition) not in known:
            errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            errors.append(ErrorCode.NONE)
    return Decision(tuple(records), (Reply(command.request, DeleteOffsetsReply(errors=tuple(errors))),))


def decide_delete_group(groups: GroupsState, command: DeleteGroup) -> Decision:
    """Forget an empty group and its offsets."""
    # Offsets come first, so that a torn log has no offsets of a removed group.
    group_id = command.group_id
    group = groups.consumer.get(group_id)
    classic = groups.classic.get(group_id)
    if group is None and classic is None and not groups.has_offsets(group_id):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group_id} does not exist")
    if (group is not None and group.members) or (classic is not None and classic.state is not ClassicGroupState.EMPTY):
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"the group {group_id} has members")
    records: list[Record] = [*build_offset_tombstones(groups, group_id)]
    effects: list[Effect] = [Reply(command.request, Done())]
    if group is not None:
        records.extend(build_group_tombstones(group))
        effects.append(Disarm(batching_window.assignment_key(group_id)))
    if classic is not None:
        records.append(ClassicGroupForgotten(group_id=group_id))
    return Decision(tuple(records), tuple(effects))


def decide_topics_changed(
    groups: GroupsState, command: TopicsChanged, settings_for: Callable[[str], GroupSettings], *, now_ms: int
) -> Decision:
    """Raise the epochs of the groups that a change of topics concerns, and forget offsets of deleted topics."""
    decision = target.decide_topics_changed(groups, command, settings_for, now_ms=now_ms)
    tombstones: list[Record] = []
    for group_id in {**groups.offsets, **groups.pending_offsets}:
        samples = _samples(groups, group_id).items()
        # A topic that is deleted and created again is another one: offsets of the first are not offered for the second.
        gone = [name for name, sample in samples if _is_gone(name, sample, groups, command.image)]
        if gone:
            tombstones += build_offset_tombstones(groups, group_id, gone)
    return replace(decision, records=(*decision.records, *tombstones))


def build_offset_tombstones(
    groups: GroupsState, group_id: str, topics: Collection[str] | None = None
) -> list[OffsetForgotten]:
    """Build tombstones of a group's offsets for `topics`, `None`: all, also of pending ones."""
    return [
        OffsetForgotten(group_id=group_id, topic=topic, partition=partition)
        for topic, partition in sorted(_partitions_of(groups, group_id))
        if topics is None or topic in topics
    ]


def _samples(groups: GroupsState, group_id: str) -> dict[str, OffsetCommitted | None]:
    """Return topic -> one of its commits in the group; `None` if all its commits are pending."""
    samples: dict[str, OffsetCommitted | None] = dict.fromkeys(
        topic for topic, _ in groups.pending_offsets.get(group_id, {})
    )
    for name, offsets in groups.offsets.get(group_id, {}).items():
        samples[name] = next(iter(offsets.values()))
    return samples


def _is_gone(name: str, sample: OffsetCommitted | None, groups: GroupsState, image: TopicImage) -> bool:
    """Return whether a topic no longer exists, or was re-created; `sample` is one of its commits."""
    topic = image.by_name.get(name)
    if topic is None:
        return True
    before = groups.image.by_name.get(name)
    if before is not None:
        return before.topic_id != topic.topic_id
    return sample is not None and sample.topic_id not in (ZERO_TOPIC_ID, topic.topic_id)


def _partitions_of(groups: GroupsState, group_id: str) -> Iterator[tuple[str, int]]:
    """Yield every partition with a committed or pending offset, each once."""
    topics, pending = groups.offsets.get(group_id, {}), groups.pending_offsets.get(group_id, {})
    for topic, partitions in topics.items():
        for partition in partitions:
            yield topic, partition
    for topic, partition in pending:
        if partition not in topics.get(topic, {}):
            yield topic, partition


def _subscription_test(groups: GroupsState, group_id: str) -> Callable[[str], bool]:
    """Return a predicate for subscribed topics; raises `Refused` if no offset of the group may be deleted."""
    group = groups.consumer.get(group_id)
    if group is not None:
        return group.topic_subscribers.__contains__
    classic = groups.classic.get(group_id)
    if classic is None:
        if not groups.has_offsets(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group_id} does not exist")
        return lambda _: False
    if not classic.members:
        return lambda _: False
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"the group {group_id} has members")
    in_use = topics_of(classic)
    # A subscription that cannot be decoded may be to any topic.
    return (lambda _: True) if in_use is None else in_use.__contains__


# Expiry of unused offsets, and of the group with the last of them.
#
# Laws: an offset of a topic that a living group subscribes to, or that an open transaction is about to replace, is
# kept, whatever its age. A group is removed only while it is empty and has no offsets. One decision removes a bounded
# number, so that a batch of the log and a turn of the loop stay small.
# Source: Apache Kafka's `OffsetMetadataManager.cleanupExpiredOffsets` and the offset expiration conditions of its
# groups (KIP-211, KIP-496). Kafka counts from the time at which the group became empty, even for later commits by an
# administrator; here the later one of the two counts.

#: Most offsets that one decision removes.
EXPIRED_AT_ONCE: Final = 1_000
_MINUTE_MS: Final = 60_000


def decide_expire(groups: GroupsState, command: ExpireOffsets, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Expire offsets of the named groups in order, until the limit of one decision."""
    retention_ms = settings.offsets_retention_minutes * _MINUTE_MS
    records: list[Record] = []
    effects: list[Effect] = []
    expired = removed = 0
    unfinished: tuple[str, ...] = ()
    for position, group_id in enumerate(command.group_ids):
        old = list(_expired(groups, group_id, retention_ms, now_ms=now_ms))
        room = EXPIRED_AT_ONCE - expired
        records.extend(
            OffsetForgotten(group_id=group_id, topic=each.topic, partition=each.partition) for each in old[:room]
        )
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
            effects.append(Disarm(batching_window.assignment_key(group_id)))
    reply = ExpireOffsetsReply(unfinished=unfinished, expired=expired, removed=removed)
    return Decision(tuple(records), (Reply(command.request, reply), *effects))


def _expired(groups: GroupsState, group_id: str, retention_ms: int, *, now_ms: int) -> Iterator[OffsetCommitted]:
    """Yield the expired offsets of one group."""
    topics = groups.offsets.get(group_id)
    in_use = _topics_in_use(groups, group_id)
    if not topics or in_use is None:
        return
    classic = groups.classic.get(group_id)
    # A group without a protocol type never had a member: its clients commit without joining.
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
            # A retention that the client named takes precedence.
            if now_ms >= (over_ms if offset.expire_timestamp_ms == -1 else offset.expire_timestamp_ms):
                yield offset


def _topics_in_use(groups: GroupsState, group_id: str) -> Collection[str] | None:
    """Return the topics of a group's members; `None` where they are unknown or about to change."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        return consumer.topic_subscribers
    if classic is None or classic.state is ClassicGroupState.EMPTY:
        return ()
    is_known = classic.state is ClassicGroupState.STABLE and classic.protocol_type == CONSUMER_PROTOCOL_TYPE
    return topics_of(classic) if is_known else None


def _keeps_more(groups: GroupsState, group_id: str, count: int) -> bool:
    if group_id in groups.pending_offsets:
        return True
    return sum(map(len, groups.offsets.get(group_id, {}).values())) > count


def _forget_group(groups: GroupsState, group_id: str) -> list[Record]:
    """Build the tombstones of a group if it has no members and no pending members."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        return [] if consumer.members else build_group_tombstones(consumer)
    if classic is None or classic.state is not ClassicGroupState.EMPTY or classic.pending:
        return []
    return [ClassicGroupForgotten(group_id=group_id)]
