"""ConsumerGroupPrepareAssignment (key 10005): the input of an assignment that a member computes.

An API of kohort's own.
Version 0. Announced to kohort's clients only; Apache Kafka has no such API: KIP-848 as drafted had one.
"""

from kohort.wire.schema import BYTES, INT8, INT16, INT32, STRING, UUID, Message, array, field, message


@message(key=10_005, kind="request", versions="0", flexible="0+")
class ConsumerGroupPrepareAssignmentRequest(Message):
    """The request of a member that was told to compute, in the answer to its heartbeat."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)


class TopicToAssign(Message):
    """A topic that exists and has a subscriber."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: int = field(INT32)


class SubscriptionToAssign(Message):
    """A subscription, as ascending indexes of `topics`; equal subscriptions of members are sent once."""

    topics: list[int] = field(array(INT32))


class MemberToAssign(Message):
    """A member, its subscription (an index of `subscriptions`) and its metadata for the assignor."""

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
    its owner by the previous target; -1: none. `max_moves` -1: as many as balance needs.
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
