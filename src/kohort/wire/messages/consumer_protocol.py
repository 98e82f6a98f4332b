"""The two blobs that members of a classic group exchange through JoinGroup and SyncGroup.

Version 1 of the subscription tells which partitions the member owns (KIP-429), version 2 in which generation it got
them (KIP-341, KIP-792), version 3 its rack (KIP-881). The assignment has the same versions without a change.

A blob begins with its version as int16, which is no part of these messages. A reader takes a version newer than it
knows as the newest that it knows, so later versions may only append fields.
"""

from kohort.wire.schema import BYTES, INT32, STRING, Message, array, field, message


class TopicPartition(Message):
    """Partitions of one topic, owned or assigned."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(kind="data", versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    """A member's subscription and owned partitions; `generation_id` is -1 if it owns none so far."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable=0, default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), since=1)
    generation_id: int = field(INT32, since=2, default=-1)
    rack_id: str | None = field(STRING, since=3, nullable=3, default=None)


@message(kind="data", versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    """The leader's assignment for one member."""

    assigned_partitions: list[TopicPartition] = field(array(TopicPartition))
    user_data: bytes | None = field(BYTES, nullable=0, default=None)
