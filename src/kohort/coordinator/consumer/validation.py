"""Validation of a KIP-848 heartbeat before its group is looked up.

Source: Apache Kafka's checks of the request; the bounds on lengths and counts are kohort's own, far above real clients.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kohort.coordinator.commands import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerGroupHeartbeat
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused

#: Longest name of a topic in Kafka.
MAX_TOPIC_NAME: Final = 249
#: Most topics that one member may name.
MAX_SUBSCRIBED_TOPICS: Final = 10_000
#: Longest id or host name, in characters.
MAX_NAME: Final = 1_024
#: Most partitions that one member may list as owned.
MAX_OWNED_PARTITIONS: Final = 200_000


def check_heartbeat(command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    """Refuse a malformed heartbeat, with a message that names the field."""
    # Patterns are checked where they are resolved.
    _check_ids(command)
    epoch = command.member_epoch
    if epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is invalid: -2 or above is expected")
    if epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        raise _invalid("MemberEpoch -2 needs an InstanceId")
    if command.rebalance_timeout_ms < -1:
        raise _invalid(f"RebalanceTimeoutMs {command.rebalance_timeout_ms} is invalid")
    if epoch == JOIN_EPOCH:
        _check_join(command)
    _check_subscription(command, settings)
    owned = command.topic_partitions
    # A topic without partitions counts as well: it takes as much memory as one with.
    if owned is not None and sum(len(partitions) or 1 for partitions in owned.values()) > MAX_OWNED_PARTITIONS:
        raise _invalid(f"TopicPartitions has more than {MAX_OWNED_PARTITIONS} partitions")


def _check_ids(command: ConsumerGroupHeartbeat) -> None:
    if not command.member_id:
        raise _invalid("MemberId can't be empty")
    for name, value in (("InstanceId", command.instance_id), ("RackId", command.rack_id)):
        if value is not None and not value:
            raise _invalid(f"{name} can't be empty: null means that there is none")
    names = (
        command.member_id,
        command.client_id,
        command.client_host,
        command.rack_id or "",
        command.instance_id or "",
    )
    if max(map(len, names)) > MAX_NAME:
        raise _invalid(f"an id in the request is longer than {MAX_NAME} characters")


def _check_join(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in the first request")
    if command.topic_partitions is None or command.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining")
    if command.subscribed_topic_names is None and command.subscribed_topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be provided in the first request")


def _check_subscription(command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    check_topics(command.subscribed_topic_names or ())
    assignor = command.server_assignor
    if assignor is not None and assignor not in settings.group_consumer_assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor[:MAX_TOPIC_NAME]} is not supported. "
            f"Supported assignors: {', '.join(settings.group_consumer_assignors)}.",
        )


def check_topics(names: Collection[str]) -> None:
    """Refuse a subscription with too many topics or an invalid name: INVALID_REQUEST."""
    if len(names) > MAX_SUBSCRIBED_TOPICS:
        raise _invalid(f"{len(names)} topics are subscribed to, more than {MAX_SUBSCRIBED_TOPICS}")
    if not all(0 < len(name) <= MAX_TOPIC_NAME for name in names):
        raise _invalid(f"a subscribed topic's name is empty or longer than {MAX_TOPIC_NAME} characters")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
