"""Ours: KIP-848 membership data in tagged fields of Fetch and OffsetCommit (wire.private).

A request says whose fetches, or commits, these are and what the member knows; the answer says what a heartbeat's would
if that is not what the coordinator has told the member, or would tell it now.
"""

from kohort.wire.messages.consumer_group_heartbeat import Assignment, OwnershipGrant, TopicPartitions
from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field


class KnownMembership(Message):
    """The asking member, its epoch, and all partitions that it was told it may have."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class MembershipUpdate(Message):
    """The coordinator's news for a member; `number` orders it among the answers to its heartbeats.

    With an `error_code` it is a heartbeat at `member_epoch` that would be answered so.
    """

    number: int = field(INT64)
    error_code: int = field(INT16)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable=0, default=None)
    rebalance_reason: str | None = field(STRING, nullable=0, default=None)
    #: The token for the member's partitions; null: it has the latest, or its group enforces nothing.
    grant: OwnershipGrant | None = field(OwnershipGrant, nullable=0, tag=10_000, default=None)
