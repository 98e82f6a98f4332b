"""The content of a KIP-848 member's messages: lists of partitions, its leave, refusals.

Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.client.refusals import refused
from kohort.client.requests import Answer, message_of
from kohort.errors import BrokerError, ErrorCode
from kohort.ids import TopicId, TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

#: Epochs that leave: for good, and for a while, so that the partitions wait for a static member's return.
_LEAVE, _LEAVE_FOR_A_WHILE = -1, -2


def build_list(
    given: Mapping[TopicId, Sequence[int]], owned: Iterable[TopicPartition], ids: Mapping[str, TopicId]
) -> list[TopicPartitions]:
    """List the given and the owned partitions once each; `ids` are those of the owned topics."""
    listed = {topic_id: set(partitions) for topic_id, partitions in given.items()}
    for topic, partition in owned:
        listed.setdefault(ids[topic], set()).add(partition)
    return [TopicPartitions(topic_id=each, partitions=sorted(listed[each])) for each in sorted(listed)]


def read_assignment(assignment: Assignment) -> dict[TopicId, tuple[int, ...]]:
    """Return the assigned partitions by topic id, without topics that have none."""
    return {TopicId(each.topic_id): tuple(each.partitions) for each in assignment.topic_partitions if each.partitions}


def build_leave(
    group_id: str, member_id: str, instance_id: str | None, goes_for_good: bool | None
) -> ConsumerGroupHeartbeatRequest | None:
    """Build the heartbeat that leaves; `None`: the member sends none, since it comes back and has no name.

    Args:
        group_id: its group.
        member_id: its id.
        instance_id: its `group.instance.id`, `None` for a dynamic member.
        goes_for_good: whether it gives its name up, too; `None`: only a dynamic member does.
    """
    if instance_id is None and goes_for_good is False:
        return None
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        member_epoch=_LEAVE if instance_id is None or goes_for_good is True else _LEAVE_FOR_A_WHILE,
    )


def is_fenced(answer: Answer) -> bool:
    """Return whether a heartbeat is refused for its epoch."""
    response = message_of(answer, ConsumerGroupHeartbeatResponse)
    return response is not None and response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def explain_trouble(code: ErrorCode, message: str | None, group_id: str, topics: Sequence[str]) -> BrokerError:
    """Build the error that tells the application of a refusal that may pass by itself."""
    # The broker does not say which of several topics it refuses.
    only = topics[0] if len(topics) == 1 else ""
    return refused(code, message, during=f"heartbeating in group {group_id}", operation="read", name=only)
