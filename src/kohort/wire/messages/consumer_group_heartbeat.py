"""ConsumerGroupHeartbeat (key 68), KIP-848: join, stay in, move within and leave a group of the new protocol.

Version 1 adds the subscription by regular expression, which the coordinator evaluates, and demands a member id made by
the client (KIP-1082); in version 0 an empty id asks the coordinator for one.
Flexible from the first version.

A null field of the request means "as before"; the full state is sent when joining and after a failed answer.
"""

from __future__ import annotations

from kohort.wire.schema import INT16, INT32, STRING, UUID, Message, array, field, message, struct


@struct
class TopicPartitions(Message):
    """Partitions of one topic, owned or assigned."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


@message(key=68, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    """State of one member; `member_epoch` 0 joins, -1 leaves, -2 leaves for a while (static members)."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    rack_id: str | None = field(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = field(STRING, since=1, nullable=1, default=None)
    server_assignor: str | None = field(STRING, nullable=0, default=None)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable=0, default=None)
    #: Ours (wire.private): how often the member would like to heartbeat; -1 leaves it to the coordinator.
    proposed_heartbeat_interval_ms: int = field(INT32, tag=10_000, default=-1)


@struct
class Assignment(Message):
    """All partitions that the member shall own, not only the changes."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


@message(key=68, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch; `assignment` None means that nothing changed since the last answer."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    member_id: str | None = field(STRING, nullable=0, default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable=0, default=None)
    #: Ours (wire.private): why there is a new assignment, for people.
    rebalance_reason: str | None = field(STRING, nullable=0, tag=10_000, default=None)
