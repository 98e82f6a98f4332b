"""Removal of committed offsets: OffsetDelete, DeleteGroups, and deleted topics.

Source: Apache Kafka's `OffsetMetadataManager.deleteOffsets` and `GroupMetadataManager.deleteGroups`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, topics_of
from kohort.coordinator.commands.admin import DeleteGroup, DeleteOffsets, DeleteOffsetsReply
from kohort.coordinator.commands.base import Done
from kohort.coordinator.consumer.targets.batching_window import assignment_key
from kohort.coordinator.consumer.tombstones import build_group_tombstones
from kohort.coordinator.decision import Decision, Disarm, Effect, Reply
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import ClassicGroupForgotten, OffsetForgotten, Record
from kohort.errors import ErrorCode, Refused


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
        facts = image.by_name.get(topic)
        is_there = facts is not None and 0 <= partition < facts.partition_count
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
        effects.append(Disarm(assignment_key(group_id)))
    if classic is not None:
        records.append(ClassicGroupForgotten(group_id=group_id))
    return Decision(tuple(records), tuple(effects))


def build_offset_tombstones(
    groups: GroupsState, group_id: str, topics: Collection[str] | None = None
) -> list[OffsetForgotten]:
    """Build tombstones of a group's offsets for `topics`, `None`: all, also of pending ones."""
    return [
        OffsetForgotten(group_id=group_id, topic=topic, partition=partition)
        for topic, partition in sorted(_partitions_of(groups, group_id))
        if topics is None or topic in topics
    ]


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
    """Return a test for subscribed topics; raises `Refused` if no offset of the group may be deleted."""
    group = groups.consumer.get(group_id)
    if group is not None:
        return group.topic_subscribers.__contains__
    classic = groups.classic.get(group_id)
    if classic is None:
        if not groups.has_offsets(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group_id} does not exist")
        return _never
    if not classic.members:
        return _never
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"the group {group_id} has members")
    in_use = topics_of(classic)
    # A subscription that cannot be decoded may be to any topic.
    return _always if in_use is None else in_use.__contains__


def _never(_: str) -> bool:
    return False


def _always(_: str) -> bool:
    return True
