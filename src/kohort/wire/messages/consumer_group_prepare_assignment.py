"""ConsumerGroupPrepareAssignment (key 10005): what a member shall assign. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API: KIP-848 as drafted had one.
"""

from __future__ import annotations

from kohort.wire.schema import BYTES, INT8, INT16, INT32, STRING, UUID, Message, array, field, message, struct


@message(key=10_005, kind="request", versions="0", flexible="0+")
class ConsumerGroupPrepareAssignmentRequest(Message):
    """Who asks has been told to compute, in the answer to its heartbeat."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)


@struct
class TopicToAssign(Message):
    """A topic that somebody subscribes to and that exists."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: int = field(INT32)


@struct
class SubscriptionToAssign(Message):
    """Topics by their places in `topics`, ascending; what several members want alike is here once."""

    topics: list[int] = field(array(INT32))


@struct
class MemberToAssign(Message):
    """A member, what it subscribes to (a place in `subscriptions`) and what it tells the assignor."""

    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    rack_id: str | None = field(STRING, nullable=0, default=None)
    subscription: int = field(INT32)
    reason: int = field(INT8)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


@message(key=10_005, kind="response", versions="0", flexible="0+")
class ConsumerGroupPrepareAssignmentResponse(Message):
    """The group as its assignor sees it; `group_epoch` comes back with the assignment.

    `owners`: for each partition, topics in the order of `topics` and partitions in theirs, the place in `members` of
    the one that shall own it by the target of before; -1 nobody. `max_moves` -1: as many as balance needs.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    group_epoch: int = field(INT32, default=-1)
    assignor_name: str = field(STRING)
    assignor_version: int = field(INT16, default=-1)
    max_moves: int = field(INT32, default=-1)
    imbalance: int = field(INT32)
    topics: list[TopicToAssign] = field(array(TopicToAssign))
    subscriptions: list[SubscriptionToAssign] = field(array(SubscriptionToAssign))
    members: list[MemberToAssign] = field(array(MemberToAssign))
    owners: list[int] = field(array(INT32))
