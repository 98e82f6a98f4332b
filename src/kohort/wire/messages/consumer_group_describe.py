"""ConsumerGroupDescribe (key 69), KIP-848: state and members of groups of the new protocol.

Version 1 tells which protocol each member speaks (KIP-1099); the request did not change.
Flexible from the first version.
"""

from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED
from kohort.wire.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Message, array, field, message


@message(key=69, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    """Groups to describe."""

    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class TopicPartitions(Message):
    """Partitions of one topic, with its id and its name."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class Assignment(Message):
    """The partitions that a member owns, or is to own."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class Member(Message):
    """One member; `member_type` is 0 classic, 1 new, -1 unknown."""

    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    rack_id: str | None = field(STRING, nullable=0, default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable=0, default=None)
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    member_type: int = field(INT8, since=1, default=-1)
    #: Ours (wire.private): of a static group, since when the member is offline, milliseconds since 1970.
    offline_since_ms: int = field(INT64, tag=10_000, default=-1)
    #: Ours (wire.private): the size of the metadata that the member publishes, -1 if there is none, and the metadata.
    #: Metadata that does not fit into the answer is null, too.
    metadata_size: int = field(INT32, tag=10_001, default=-1)
    metadata: bytes | None = field(BYTES, nullable=0, tag=10_002, default=None)
    #: Ours (wire.private): milliseconds since the member's last sign, fetch and commit, until its session ends, and for
    #: how long others have waited for it; -1: not known, or it does not apply.
    last_heard_ms: int = field(INT64, tag=10_003, default=-1)
    last_fetch_ms: int = field(INT64, tag=10_004, default=-1)
    last_commit_ms: int = field(INT64, tag=10_005, default=-1)
    session_left_ms: int = field(INT64, tag=10_006, default=-1)
    overdue_ms: int = field(INT64, tag=10_007, default=-1)
    #: Ours (wire.private): 1 if a connection of the member is open, 0 if not, -1: not known.
    is_connected: int = field(INT8, tag=10_008, default=-1)
    #: Ours (wire.private): milliseconds since its application polled, as it told; -1: not known.
    last_poll_ms: int = field(INT64, tag=10_009, default=-1)


class DescribedGroup(Message):
    """One group and the epochs that it has reached."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)
    #: Ours (wire.private): `group.membership` is static.
    is_static: bool = field(BOOL, tag=10_000)
    #: Ours: how an assignor of the user's own has failed last; "": it has not since the latest assignment.
    assignor_failure: str = field(STRING, tag=10_001, default="")


@message(key=69, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    """One description per group of the request."""

    throttle_time_ms: int = field(INT32)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
